// Two gateways of one project: whichever a client reaches, it gets the same changes in the same order.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openDatabase } from '../lib/database.mjs'
import { JWT_SECRET, URL_1, URL_2 } from '../lib/env.mjs'
import { MATRIX, aboutRow, connect, follow } from '../lib/sdk.mjs'
import { newUser } from '../lib/token.mjs'

for (const combination of MATRIX) {
  test(`${combination.name}: two gateways deliver alike`, async (t) => {
    const database = await openDatabase(t)
    const table = await database.notes()
    const user = newUser(JWT_SECRET)
    const feeds = []
    for (const url of [URL_1, URL_2]) {
      const { client } = await connect(t, combination, { token: user.token, url })
      const followed = follow(client, 'both', [{ event: '*', schema: 'public', table }])
      await followed.ready()
      feeds.push(followed.events)
    }
    for (let id = 1; id <= 20; id++) {
      await database.insert(table, { id, owner: id % 5 ? user.id : newUser(JWT_SECRET).id, room: id })
      await database.query(`update public.${table} set body = 'seen' where id = ${id}`)
    }
    await database.insert(table, { id: 21, owner: user.id })
    const [one, two] = await Promise.all(
      feeds.map(async (events) => {
        await events.first(aboutRow(21), 'sentinel')
        return events.items.map(({ payload }) => payload)
      }),
    )
    assert.equal(one.length, 33)
    assert.deepEqual(one, two)
  })
}
