// Each JavaScript snippet of the documentation, as it stands there, through the unmodified SDK and through the thin
// wrapper that gives the documented payload key for key. Names of tables, the address and the key are the only changes.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createClient as createClient109 } from 'supabase-js-2.109'
import { createClient as createClient119 } from 'supabase-js-2.119'
import { WebSocket } from 'ws'
import { seedClient } from '../../seed/anvilbase.mjs'
import { assertTime, unknownColumns } from '../lib/change.mjs'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET, SERVICE_KEY, URL_1 } from '../lib/env.mjs'
import { Journal } from '../lib/journal.mjs'
import { isLive } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

const MATRIX = [createClient119, createClient109].flatMap((createClient, n) => {
  const sdk = `supabase-js ${['2.119.1', '2.109.0'][n]}`
  return [
    { name: `${sdk}, unmodified`, wrapped: false, createClient },
    { name: `${sdk}, with the wrapper`, wrapped: true, createClient: seedClient({ createClient, WebSocket }) },
  ]
})

/** `db` of the documentation, signed in; everything is closed when test `t` ends. */
function open(t, { createClient }, token) {
  const db = createClient(URL_1, token, { realtime: { transport: WebSocket } })
  t.after(async () => {
    await db.removeAllChannels()
    await db.realtime.disconnect()
  })
  return db
}

/** Waits until the channel's feed is live: what is written before that may be missed. */
async function live(channel) {
  const system = new Journal('system frames')
  channel.on('system', {}, (payload) => system.push(payload))
  return () => system.first(isLive, '"Subscribed to PostgreSQL"')
}

/** What the documentation shows, and what of it the unmodified SDK leaves out or shows otherwise. */
function assertPayload(payload, { wrapped }, want) {
  assertTime(payload.commit_timestamp)
  const documented = {
    schema: 'public',
    errors: null,
    columns: unknownColumns(want.new ?? want.old),
    ...want,
    commit_timestamp: payload.commit_timestamp,
  }
  if (!wrapped) {
    delete documented.columns
    documented.new ??= {}
    documented.old ??= {}
  }
  assert.deepEqual(payload, documented)
}

for (const combination of MATRIX) {
  describe(`the documentation's snippets: ${combination.name}`, () => {
    test('subscribe to inserts, then tear down', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const seen = new Journal('new messages')
      const db = open(t, combination, user.token)

      const channel = db
        .channel('messages-feed')
        .on(
          'postgres_changes',
          { event: 'INSERT', schema: 'public', table },
          (payload) => {
            seen.push(payload)
          }
        )
      const ready = await live(channel)
      channel.subscribe()
      await ready()

      const row = { id: 1, owner: user.id, room: 1, body: 'hello' }
      await database.insert(table, row)
      const payload = await seen.first(() => true, 'message')
      assertPayload(payload, combination, { table, eventType: 'INSERT', new: row, old: null })

      await channel.unsubscribe()
      await db.removeAllChannels()
      assert.deepEqual(db.getChannels(), [])
    })

    test('every event, the update with its prior row', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const seen = new Journal('changes')
      const db = open(t, combination, user.token)
      const channel = db
        .channel('my-orders')
        .on('postgres_changes',
          { event: '*', schema: 'public', table, filter: `owner=eq.${user.id}` },
          (payload) => seen.push(payload))
      const ready = await live(channel)
      channel.subscribe()
      await ready()

      const row = { id: 1, owner: user.id, room: 1, body: 'hello' }
      await database.insert(table, { ...row, id: 2, owner: newUser(JWT_SECRET).id })
      await database.insert(table, row)
      await database.query(`update public.${table} set body = 'edited'`)
      await seen.count(2, () => true, 'changes')
      const [inserted, updated] = seen.items
      assertPayload(inserted, combination, { table, eventType: 'INSERT', new: row, old: null })
      assertPayload(updated, combination, { table, eventType: 'UPDATE', new: { ...row, body: 'edited' }, old: row })
      await db.removeAllChannels()
    })

    test('a deletion carries its key, and a row too large the marker', async (t) => {
      const database = await openDatabase(t)
      const table = await database.table('id uuid primary key, body text', {
        policies: ['create policy everybody on $table for select using (true)'],
      })
      const user = newUser(JWT_SECRET)
      const seen = new Journal('changes')
      const db = open(t, combination, user.token)
      const channel = db
        .channel('documents')
        .on('postgres_changes', { event: '*', schema: 'public', table }, (payload) => seen.push(payload))
      const ready = await live(channel)
      channel.subscribe()
      await ready()

      const id = newUser(JWT_SECRET).id
      await database.query(`insert into public.${table} values ($1, repeat('x', 9000))`, [id])
      // A reference is checked by its key, so the row must still be there.
      await seen.first(() => true, 'reference')
      await database.query(`delete from public.${table}`)
      await seen.count(2, () => true, 'changes')
      const [large, deleted] = seen.items
      assertPayload(large, combination, {
        table,
        eventType: 'INSERT',
        new: { id },
        old: null,
        columns: [{ name: 'id', type: 'uuid' }],
        errors: ['payload_too_large'],
      })
      assertPayload(deleted, combination, {
        table,
        eventType: 'DELETE',
        new: null,
        old: { id },
        columns: [{ name: 'id', type: 'uuid' }],
        errors: ['payload_too_large'],
      })
      await db.removeAllChannels()
    })

    test('service_role follows changes of users', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const seen = new Journal('changes')
      const db = open(t, combination, SERVICE_KEY)
      const channel = db
        .channel('cdc')
        .on('postgres_changes', { event: 'DELETE', schema: 'public', table }, (payload) => seen.push(payload))
      const ready = await live(channel)
      channel.subscribe()
      await ready()
      const row = { id: 1, owner: newUser(JWT_SECRET).id, room: 1, body: 'hello' }
      await database.insert(table, row)
      await database.query(`delete from public.${table}`)
      const deleted = await seen.first(() => true, 'deletion')
      assertPayload(deleted, combination, { table, eventType: 'DELETE', new: null, old: row })
      await db.removeAllChannels()
    })
  })
}
