// Channels and bindings as the SDKs use them: several bindings, whole schemas, being live, refusals, and leaving.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET } from '../lib/env.mjs'
import { MATRIX, aboutRow, connect, follow } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

for (const combination of MATRIX) {
  describe(combination.name, () => {
    test('each of several bindings fires for its own changes only', async (t) => {
      const database = await openDatabase(t)
      const [table, other] = [await database.notes(), await database.notes()]
      const user = newUser(JWT_SECRET)
      const { client, frames } = await connect(t, combination, { token: user.token })
      const bindings = [
        { event: 'INSERT', schema: 'public', table },
        { event: 'UPDATE', schema: 'public', table },
        { event: 'DELETE', schema: 'public', table },
        { event: '*', schema: 'public', table: other },
        { event: '*', schema: 'public', table, filter: 'room=eq.2' },
        { event: 'INSERT', schema: 'public', table, filter: 'room=eq.1' },
      ]
      const { events, ready } = follow(client, 'several', bindings)
      await ready()

      await database.insert(table, { id: 1, owner: user.id, room: 1 })
      await database.query(`update public.${table} set room = 2 where id = 1`)
      await database.query(`delete from public.${table} where id = 1`)
      await database.insert(other, { id: 100, owner: user.id, room: 2 })
      await events.first(aboutRow(100), 'sentinel')

      const seen = events.items.map(({ binding, payload }) => `${payload.eventType} ${binding}`)
      assert.deepEqual(seen.toSorted(), ['DELETE 2', 'INSERT 0', 'INSERT 3', 'INSERT 5', 'UPDATE 1', 'UPDATE 4'])
      // On the wire each change is one frame, which carries the ids of all its bindings.
      const changes = frames.filter((f) => f.event === 'postgres_changes')
      assert.deepEqual(changes.map((f) => f.payload.ids.length), [2, 2, 1, 1])
    })

    test('a binding without a table follows the whole schema', async (t) => {
      const database = await openDatabase(t)
      const tables = [await database.notes(), await database.notes()]
      const user = newUser(JWT_SECRET)
      const { client } = await connect(t, combination, { token: user.token })
      const { events, ready } = follow(client, 'schema', [{ event: '*', schema: 'public' }])
      await ready()

      for (const [id, table] of tables.entries()) await database.insert(table, { id, owner: user.id })
      const late = await database.notes()
      await database.insert(late, { id: 2, owner: user.id })
      // Other tests' public rows may come in between: only these three tables count.
      const ours = ({ payload }) => [...tables, late].includes(payload.table)
      const got = await events.count(3, ours, 'row of the schema')
      assert.deepEqual(got.map(({ payload }) => [payload.table, payload.new.id]), [[tables[0], 0], [tables[1], 1], [late, 2]])
    })

    test('a row committed right after "Subscribed to PostgreSQL" arrives, 20 times in a row', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const { client } = await connect(t, combination, { token: user.token })
      for (let id = 1; id <= 20; id++) {
        const name = `fresh-${id}`
        const { channel, events, ready } = follow(client, name, [{ event: 'INSERT', schema: 'public', table }])
        const live = await ready()
        await database.insert(table, { id, owner: user.id })
        await events.first(aboutRow(id), `row ${id}`)
        const { extension, status, message, channel: named, role } = live
        assert.deepEqual(
          { extension, status, message, channel: named, role },
          {
            extension: 'postgres_changes',
            status: 'ok',
            message: 'Subscribed to PostgreSQL',
            channel: name,
            role: 'authenticated',
          },
        )
        await client.removeChannel(channel)
      }
    })

    test('a refused channel gets CHANNEL_ERROR with the reason, and its socket goes on', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const { client, frames } = await connect(t, combination, { token: user.token })
      const good = follow(client, 'good', [{ event: '*', schema: 'public', table }])
      await good.ready()

      for (const filter of ['nope=eq.1', 'room=foo.1', 'room=eq.abc']) {
        const bad = follow(client, `bad ${filter}`, [
          { event: '*', schema: 'public', table },
          { event: '*', schema: 'public', table, filter },
        ])
        const { message } = await bad.statuses.first(({ status }) => status === 'CHANNEL_ERROR', 'CHANNEL_ERROR')
        assert.match(message, /^RealtimeDisabledForConfiguration: .*\b1\b/)
        await client.removeChannel(bad.channel)
        assert.equal(bad.events.length, 0)
      }
      const later = follow(client, 'later', [{ event: '*', schema: 'public', table }])
      await later.ready()
      await database.insert(table, { id: 1, owner: user.id })
      for (const { events } of [good, later]) await events.first(aboutRow(1), 'the row')
      assert.deepEqual(good.statuses.items.map(({ status }) => status), ['SUBSCRIBED'])
      assert.ok(frames.items.every((f) => f.event !== 'phx_error'))
    })

    test('unsubscribed channels are answered, closed and silent', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const { client, frames } = await connect(t, combination, { token: user.token })
      const binding = { event: '*', schema: 'public', table }
      const [one, two] = ['one', 'two'].map((name) => follow(client, name, [binding]))
      await Promise.all([one.ready(), two.ready()])

      assert.equal(await client.removeChannel(one.channel), 'ok')
      await frames.first((f) => f.topic === 'realtime:one' && f.event === 'phx_close', 'phx_close of "one"')
      await database.insert(table, { id: 1, owner: user.id })
      await two.events.first(aboutRow(1), 'the row on the channel that stays')
      assert.equal(one.events.length, 0)

      // The SDK hangs up right after asking, so here its own view is what counts.
      assert.deepEqual(await client.removeAllChannels(), ['ok'])
      await two.statuses.first(({ status }) => status === 'CLOSED', 'status CLOSED')
      assert.deepEqual(client.getChannels(), [])

      // The same name again is a new channel: it gets what comes now, the old one nothing more.
      const again = follow(client, 'one', [binding])
      await again.ready()
      await database.insert(table, { id: 2, owner: user.id })
      await again.events.first(aboutRow(2), 'the row on the new channel')
      assert.deepEqual([one.events.length, two.events.length, again.events.length], [0, 1, 1])
    })
  })
}
