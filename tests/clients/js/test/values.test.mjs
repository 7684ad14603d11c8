// Values travel as PostgreSQL printed them: compared in the raw text of the frame, before any JavaScript number.
// And rows too large for one notification: they arrive as a reference, under the same row-level security.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertCallback, assertData } from '../lib/change.mjs'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET, SERVICE_KEY } from '../lib/env.mjs'
import { openRaw } from '../lib/raw.mjs'
import { MATRIX, aboutRow, connect, follow } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

const OWN = ['create policy own on $table for select to authenticated using (owner = auth.uid())']
const TOO_LARGE = ['payload_too_large']
const large = 'é'.repeat(6000)

/** How often `part` occurs in `text`. */
const occurrences = (text, part) => text.split(part).length - 1

for (const vsn of ['2.0.0', '1.0.0']) {
  test(`protocol ${vsn}: numbers beyond a double, texts and documents arrive byte for byte`, async (t) => {
    const database = await openDatabase(t)
    const table = await database.table(
      'id bigint primary key, owner uuid, amount numeric, small numeric, tags text[], doc json, "naïve "" col" text',
      { policies: OWN },
    )
    const user = newUser(JWT_SECRET)
    const raw = await openRaw(t, { vsn })
    const { topic } = await raw.joinLive('values', [{ event: '*', schema: 'public', table }], { token: user.token })
    await database.query(
      `insert into public.${table} values
        (9223372036854775807, $1, 12345678901234567890.123456789, 1.50, '{a,"b c",null}', '{"z":1,"a":1.0}', $2)`,
      [user.id, 'tab\t "quoted" \\ 日本語'],
    )
    await database.query(`update public.${table} set small = 1.500`)
    await database.query(`delete from public.${table}`)
    await raw.change(topic, ({ type }) => type === 'DELETE', 'the deletion')

    const [inserted, updated, deleted] = raw.changes(topic).map(({ text }) => text)
    // Each image is there twice: under the public SDKs' name for it and under ours.
    for (const [text, images] of [[inserted, 2], [updated, 4]]) {
      assert.equal(occurrences(text, '"id":9223372036854775807'), images)
      assert.equal(occurrences(text, '"amount":12345678901234567890.123456789'), images)
      assert.equal(occurrences(text, '"doc":{"z":1,"a":1.0}'), images)
    }
    assert.equal(occurrences(updated, '"small":1.500,'), 2)
    assert.equal(occurrences(updated, '"small":1.50,'), 2)
    assert.equal(occurrences(deleted, '{"id":9223372036854775807}'), 2)
    const row = raw.changes(topic)[0].payload.data.new
    assert.deepEqual(row.tags, ['a', 'b c', null])
    assert.equal(row['naïve " col'], 'tab\t "quoted" \\ 日本語')
  })
}

for (const combination of MATRIX) {
  describe(combination.name, () => {
    test('E04 arrays and documents reach the callback as REST gives them', async (t) => {
      const database = await openDatabase(t)
      const table = await database.table(
        'id int primary key, owner uuid, tags text[], meta jsonb, doc json, span int4range, nested int[], flag bool',
        { policies: OWN },
      )
      const user = newUser(JWT_SECRET)
      const { client } = await connect(t, combination, { token: user.token })
      const { events, ready } = follow(client, 'values', [{ event: '*', schema: 'public', table }])
      await ready()
      const rows = [
        [`{"a,b",NULL,"c\\"d"}`, '{}', '[]', '[1,5)', '{{1,2},{3,NULL}}', true],
        ['{}', '[]', '"s"', 'empty', '{}', false],
        [null, '"s"', 'null', null, null, null],
        [null, '{"a":{"b":[1,{"c":null}]}}', '{"z":1,"a":[]}', '(,)', '{1}', true],
      ]
      for (const [id, values] of rows.entries()) {
        await database.query(`insert into public.${table} values ($1, $2, $3, $4, $5, $6, $7, $8)`, [id, user.id, ...values])
      }
      await events.count(rows.length, () => true, 'rows')
      const { rows: rest } = await database.query(`select row_to_json(r) as row from public.${table} r order by id`)
      assert.deepEqual(events.items.map(({ payload }) => payload.new), rest.map(({ row }) => row))
    })

    test('a row too large for a notification arrives as a reference to its key', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const [user, other] = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const bindings = ['', 'room=eq.1', 'id=eq.1'].map((filter) => ({
        event: '*',
        schema: 'public',
        table,
        ...(filter && { filter }),
      }))
      const feeds = []
      for (const who of [{ token: user.token }, { token: other.token }, { key: SERVICE_KEY }]) {
        const { client, frames } = await connect(t, combination, who)
        const followed = follow(client, 'large', bindings)
        await followed.ready()
        feeds.push({ frames, ...followed })
      }
      const [owner, stranger, service] = feeds

      await database.insert(table, { id: 1, owner: user.id, room: 1, body: large })
      await database.query(`update public.${table} set body = body || 'x' where id = 1`)
      await owner.events.count(4, () => true, 'references')
      await database.insert(table, { id: 2, owner: other.id, room: 1, body: 'sentinel' })
      await stranger.events.count(2, aboutRow(2), 'sentinel')
      await service.events.count(2, aboutRow(2), 'sentinel')

      // A filter on another column than the key cannot be judged and gives nothing: bindings 0 and 2 only.
      for (const { events, frames } of [owner, service]) {
        const got = events.filter(aboutRow(1))
        assert.deepEqual(got.map(({ binding }) => binding).toSorted(), [0, 0, 2, 2])
        const of = (type) => got.find(({ payload }) => payload.eventType === type).payload
        assertCallback(of('INSERT'), { table, type: 'INSERT', new: { id: 1 }, errors: TOO_LARGE })
        assertCallback(of('UPDATE'), { table, type: 'UPDATE', new: { id: 1 }, old: { id: 1 }, errors: TOO_LARGE })
        const columns = [{ name: 'id', type: 'int8' }]
        const [first] = frames.filter((f) => f.event === 'postgres_changes')
        assertData(first.payload.data, { table, type: 'INSERT', new: { id: 1 }, columns, errors: TOO_LARGE })
      }
      assert.deepEqual(stranger.events.filter(aboutRow(1)), [])
    })
  })
}
