// Filters as the SDKs send them, and as their builder writes them: every operator, matching and not, and NULL.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { postgresChangesFilter } from 'supabase-js-2.119'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET, SERVICE_KEY } from '../lib/env.mjs'
import { MATRIX, aboutRow, connect, follow } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

const COLUMNS = 'id bigint primary key, owner uuid, room int, amount numeric, done boolean, body text'
const OWN = ['create policy own on $table for select to authenticated using (owner = auth.uid())']

// id: room, amount, done, body. A last row, 100, has nothing else: it is the sentinel.
const ROWS = [
  { id: 1, room: 1, amount: '1.0000', done: true, body: 'a' },
  { id: 2, room: 2, amount: '9.99', done: false, body: 'b' },
  { id: 3, room: 3, amount: '10', done: null, body: 'a,b' },
  { id: 4, room: null, amount: null, done: null, body: null },
  { id: 5, room: 5, amount: '9007199254740993', done: true, body: 'null' },
]

// filter: ids of the rows that match
const FILTERS = {
  'room=eq.2': [2],
  'room=neq.2': [1, 3, 5],
  'room=gt.2': [3, 5],
  'room=gte.2': [2, 3, 5],
  'room=lt.2': [1],
  'room=lte.2': [1, 2],
  'room=in.(1,3,77)': [1, 3],
  'room=in.(2)': [2],
  'amount=eq.1': [1],
  'amount=gt.9.99': [3, 5],
  'amount=eq.9007199254740992': [],
  'done=eq.true': [1, 5],
  'done=neq.true': [2],
  'body=eq.a': [1],
  'body=neq.a': [2, 3, 5],
  'body=eq.null': [5],
  'body=in.(b,"a,b")': [2, 3],
  'id=gte.3': [3, 4, 5],
  ...Object.fromEntries(
    [
      [(on) => on.like('body', 'a%'), [1, 3]],
      [(on) => on.ilike('body', 'A_B'), [3]],
      [(on) => on.match('body', '^(a|b)$'), [1, 2]],
      [(on) => on.imatch('body', '^A'), [1, 3]],
      [(on) => on.not('body', 'like', 'a,%'), [1, 2, 5]],
      [(on) => on.is('done', null), [3, 4, 100]],
      [(on) => on.is('done', true), [1, 5]],
      [(on) => on.not('done', 'is', 'unknown'), [1, 2, 5]],
      [(on) => on.isDistinct('room', 2), [1, 3, 4, 5, 100]],
      [(on) => on.not('room', 'in', [1, 2]), [3, 5]],
      [(on) => on.in('body', ['a,b', 'a']).gt('room', 1), [3]],
    ].map(([build, ids]) => [build(postgresChangesFilter()).build(), ids]),
  ),
}

for (const combination of MATRIX) {
  describe(combination.name, () => {
    test('every operator, on INSERT', async (t) => {
      const database = await openDatabase(t)
      const table = await database.table(COLUMNS, { policies: OWN })
      const user = newUser(JWT_SECRET)
      const { client } = await connect(t, combination, { token: user.token })
      const filters = [...Object.keys(FILTERS), 'id=eq.100']
      const { events, ready } = follow(
        client,
        'filters',
        filters.map((filter) => ({ event: 'INSERT', schema: 'public', table, filter })),
      )
      await ready()

      for (const row of ROWS) await database.insert(table, { ...row, owner: user.id })
      // Rows that match as well but belong to somebody else: a filter never widens what a policy allows.
      for (const row of ROWS) await database.insert(table, { ...row, id: row.id + 10, owner: newUser(JWT_SECRET).id })
      await database.insert(table, { id: 100, owner: user.id })
      await events.first(aboutRow(100), 'sentinel')

      const got = {}
      for (const { binding, payload } of events.items) (got[filters[binding]] ??= []).push(payload.new.id)
      const want = Object.entries(FILTERS).filter(([, ids]) => ids.length)
      assert.deepEqual(got, { ...Object.fromEntries(want), 'id=gte.3': [3, 4, 5, 100], 'id=eq.100': [100] })
    })

    test('an UPDATE is judged by its new row', async (t) => {
      const database = await openDatabase(t)
      const table = await database.table(COLUMNS, { policies: OWN })
      const user = newUser(JWT_SECRET)
      await database.insert(table, { id: 1, owner: user.id, room: 1 })
      const { client } = await connect(t, combination, { token: user.token })
      const { events, ready } = follow(client, 'filters', [
        { event: 'UPDATE', schema: 'public', table, filter: 'room=eq.1' },
      ])
      await ready()

      await database.query(`update public.${table} set room = 2`)
      await database.query(`update public.${table} set room = 1`)
      await events.first(aboutRow(1), 'the row that comes back')
      assert.equal(events.length, 1)
      const { payload } = events.items[0]
      assert.deepEqual([payload.old.room, payload.new.room], [2, 1])
    })

    test('a DELETE is filtered by key columns only, except for service_role', async (t) => {
      const database = await openDatabase(t)
      const table = await database.table(COLUMNS, { policies: OWN })
      const user = newUser(JWT_SECRET)
      const bindings = ['room=eq.1', 'id=eq.2', 'id=eq.3'].map((filter) => ({
        event: 'DELETE',
        schema: 'public',
        table,
        filter,
      }))
      const feeds = []
      for (const who of [{ token: user.token }, { key: SERVICE_KEY }]) {
        const { client } = await connect(t, combination, who)
        const followed = follow(client, 'filters', bindings)
        await followed.ready()
        feeds.push(followed.events)
      }
      for (const id of [1, 2, 3]) await database.insert(table, { id, owner: user.id, room: 1 })
      for (const id of [1, 2, 3]) await database.query(`delete from public.${table} where id = ${id}`)

      const [forUser, forService] = feeds
      const seen = (events) => events.items.map(({ binding, payload }) => [binding, payload.old.id])
      await forUser.first(aboutRow(3), 'sentinel')
      assert.deepEqual(seen(forUser), [[1, 2], [2, 3]])
      await forService.count(5, () => true, 'deletions')
      assert.deepEqual(seen(forService).sort(), [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]])
    })
  })
}
