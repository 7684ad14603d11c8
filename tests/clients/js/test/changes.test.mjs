// Who sees which change of a table with row-level security, and what it looks like: through unmodified SDKs.
// Order is kept per project, so "nothing arrived" is proved by a later row that did: the sentinel.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertCallback, assertData, unknownColumns } from '../lib/change.mjs'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET, SERVICE_KEY } from '../lib/env.mjs'
import { MATRIX, aboutRow, connect, follow, isLive } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

const all = (table) => ({ event: '*', schema: 'public', table })

/** A user with a client subscribed to every change of `tables`, live. */
async function subscriber(t, combination, tables, { token, key, channel = 'feed' } = {}) {
  const { frames, client, become } = await connect(t, combination, { token, key })
  const followed = follow(client, channel, tables.map(all))
  await followed.ready()
  return { frames, become, ...followed }
}

/** The `data` of the frame that carries the `n`-th change seen on a socket. */
const dataOf = (frames, n) => frames.filter((f) => f.event === 'postgres_changes')[n].payload.data

for (const combination of MATRIX) {
  describe(combination.name, () => {
    test('INSERT, UPDATE and DELETE reach the owner, in callback and on the wire', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const { events, frames } = await subscriber(t, combination, [table], { token: user.token })

      const first = { id: 1, owner: user.id, room: 7, body: 'first' }
      const edited = { ...first, body: null }
      await database.insert(table, first)
      await database.query(`update public.${table} set body = null where id = 1`)
      await database.query(`delete from public.${table} where id = 1`)
      await events.count(3, () => true, 'changes')

      const [inserted, updated, deleted] = events.items.map(({ payload }) => payload)
      assertCallback(inserted, { table, type: 'INSERT', new: first })
      assertCallback(updated, { table, type: 'UPDATE', new: edited, old: first })
      assertCallback(deleted, { table, type: 'DELETE', old: { id: 1 } })

      assertData(dataOf(frames, 0), { table, type: 'INSERT', new: first })
      assertData(dataOf(frames, 1), { table, type: 'UPDATE', new: edited, old: first })
      const gone = dataOf(frames, 2)
      assertData(gone, { table, type: 'DELETE', old: { id: 1 }, columns: gone.columns })
      const allowed = unknownColumns(first)
      assert.ok(gone.columns.some(({ name }) => name === 'id'), 'columns of a DELETE name the key')
      for (const column of gone.columns) {
        assert.ok(allowed.some(({ name, type }) => name === column.name && type === column.type), JSON.stringify(column))
      }
    })

    test('service_role sees every row, and the whole row of a DELETE', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const { events, frames } = await subscriber(t, combination, [table], { key: SERVICE_KEY })

      const row = { id: 1, owner: newUser(JWT_SECRET).id, room: null, body: 'nobody in particular' }
      await database.insert(table, row)
      await database.query(`delete from public.${table}`)
      await events.count(2, () => true, 'changes')
      assertCallback(events.items[0].payload, { table, type: 'INSERT', new: row })
      assertCallback(events.items[1].payload, { table, type: 'DELETE', old: row })
      assertData(dataOf(frames, 1), { table, type: 'DELETE', old: row })
    })

    test('two users subscribed alike each receive their own rows only', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const users = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const feeds = []
      for (const user of users) feeds.push(await subscriber(t, combination, [table], { token: user.token }))

      for (let id = 1; id <= 10; id++) {
        await database.insert(table, { id, owner: users[id % 2].id, room: id, body: `row ${id}` })
      }
      // Each user's last row is its sentinel: what is not there by then is not coming.
      for (const [i, { events, frames }] of feeds.entries()) {
        const own = [2, 4, 6, 8, 10].map((n) => n - i).sort((a, b) => a - b)
        await events.first(aboutRow(own.at(-1)), `row ${own.at(-1)}`)
        assert.deepEqual(events.items.map(({ payload }) => payload.new.id), own)
        const other = users[1 - i].id
        assert.ok(frames.items.every(({ text }) => !text.includes(other)), 'a frame names the other user')
      }
    })

    test('anonymous subscribers receive nothing of a table that only users may read', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const beacon = await database.beacon()
      const { events, system, frames } = await subscriber(t, combination, [table, beacon])
      assert.equal(system.items.find(isLive).role, 'anon')

      const owner = newUser(JWT_SECRET).id
      await database.insert(table, { id: 1, owner, room: 1, body: 'hidden' })
      await database.query(`update public.${table} set body = 'still hidden'`)
      await database.insert(beacon, { id: 99 })
      await events.first(aboutRow(99), 'sentinel')
      assert.deepEqual(events.items.map(({ binding }) => binding), [1])
      assert.ok(frames.items.every(({ text }) => !text.includes('hidden') && !text.includes(owner)))
    })

    test('an UPDATE into view arrives without the prior row', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const [user, other] = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const { events, frames } = await subscriber(t, combination, [table], { token: user.token })

      await database.insert(table, { id: 1, owner: other.id, room: 1, body: 'before the hand-over' })
      await database.query(`update public.${table} set owner = $1, body = 'after' where id = 1`, [user.id])
      await events.first(aboutRow(1), 'the update')
      const now = { id: 1, owner: user.id, room: 1, body: 'after' }
      assert.equal(events.length, 1)
      assertCallback(events.items[0].payload, { table, type: 'UPDATE', new: now })
      assertData(dataOf(frames, 0), { table, type: 'UPDATE', new: now, old: null })
      assert.ok(frames.items.every(({ text }) => !text.includes('hand-over') && !text.includes(other.id)))
    })

    test('an UPDATE out of view tells nothing, to the former owner', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const [user, other] = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const { events, frames } = await subscriber(t, combination, [table], { token: user.token })

      await database.insert(table, { id: 1, owner: user.id, room: 1, body: 'mine' })
      await database.query(`update public.${table} set owner = $1, body = 'theirs' where id = 1`, [other.id])
      await database.insert(table, { id: 2, owner: user.id, room: 1, body: 'sentinel' })
      await events.first(aboutRow(2), 'sentinel')
      assert.deepEqual(events.items.map(({ payload }) => payload.new.id), [1, 2])
      assert.ok(frames.items.every(({ text }) => !text.includes('theirs') && !text.includes(other.id)))
    })

    test('a change of the token changes what later events show', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const [before, after] = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const { become, events, system } = await subscriber(t, combination, [table], { token: before.token })
      await database.insert(table, { id: 1, owner: before.id, room: 1, body: 'a' })
      await events.first(aboutRow(1), 'the row of the first user')

      const from = system.length
      await become(after.token)
      await system.first(isLive, '"Subscribed to PostgreSQL" after the refresh', { from })
      await database.insert(table, { id: 2, owner: before.id, room: 1, body: 'b' })
      await database.insert(table, { id: 3, owner: after.id, room: 1, body: 'c' })
      await events.first(aboutRow(3), 'the row of the second user')
      assert.deepEqual(events.items.map(({ payload }) => payload.new.id), [1, 3])
    })
  })
}
