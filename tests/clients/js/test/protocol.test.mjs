// The channel protocol frame by frame, in both versions: references, replies, refusals, tokens, leaving.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertData } from '../lib/change.mjs'
import { openDatabase } from '../lib/database.mjs'
import { ANON_KEY, JWT_SECRET, SERVICE_KEY } from '../lib/env.mjs'
import { openRaw, refusedUpgrade } from '../lib/raw.mjs'
import { newUser, seconds, sign } from '../lib/token.mjs'

const all = (table, more) => ({ event: '*', schema: 'public', table, ...more })
const isRow = (id) => (data) => (data.new ?? data.old).id === id

/** Asserts that a join was refused with `code`, quickly, and returns the sentence. */
function assertRefused({ reply, took }, code) {
  assert.equal(reply.payload.status, 'error', reply.text)
  const [, got, sentence] = /^(\w+): (.+)$/s.exec(reply.payload.response.reason) ?? []
  assert.equal(got, code, reply.text)
  assert.ok(took < 1000, `the refusal took ${took} ms`)
  return sentence
}

for (const vsn of ['2.0.0', '1.0.0']) {
  describe(`protocol ${vsn}`, () => {
    test('heartbeats are answered with the reference they had, null too', async (t) => {
      const raw = await openRaw(t, { vsn })
      for (const ref of ['17', null]) {
        const reply = await raw.heartbeat(ref)
        assert.equal(reply.ref, ref)
        assert.deepEqual(reply.payload, { status: 'ok', response: {} })
      }
    })

    test('a join is answered with its bindings as they were asked, each with an id', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const bindings = [
        { event: '*', schema: 'public', table, filter: 'room=eq.1' },
        { event: 'INSERT', schema: 'public' },
        { event: 'INSERT', schema: 'public', table, filter: '' },
        { event: 'UPDATE', schema: 'public', table },
      ]
      const { reply, joinRef, live } = await raw.joinLive('r:é1 / x', bindings, { token: user.token, ref: '1', joinRef: '11' })
      assert.equal(reply.ref, '1')
      if (vsn === '2.0.0') assert.deepEqual([reply.joinRef, live.joinRef], [joinRef, joinRef])
      const answered = reply.payload.response.postgres_changes
      assert.deepEqual(answered.map(({ id, ...rest }) => rest), bindings)
      const ids = answered.map(({ id }) => id)
      assert.ok(ids.every((id) => Number.isSafeInteger(id) && id !== 0))
      assert.equal(new Set(ids).size, ids.length, 'unequal bindings have ids of their own')
    })

    test('one change is one frame with the ids of the bindings that match it', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const bindings = [all(table, { filter: 'room=eq.1' }), { event: 'INSERT', schema: 'public', table }, all(table)]
      const { topic, reply } = await raw.joinLive('ids', bindings, { token: user.token })
      const [room, inserts, any] = reply.payload.response.postgres_changes.map(({ id }) => id)

      await database.insert(table, { id: 1, owner: user.id, room: 1, body: 'x' })
      await database.query(`update public.${table} set body = 'y'`)
      await database.query(`update public.${table} set room = 2`)
      await raw.change(topic, (data) => data.new?.room === 2, 'the last update')
      const sorted = (ids) => ids.toSorted((a, b) => a - b)
      assert.deepEqual(
        raw.changes(topic).map((f) => sorted(f.payload.ids)),
        [[room, inserts, any], [room, any], [any]].map(sorted),
      )
      const row = { id: 1, owner: user.id, room: 1, body: 'x' }
      assertData(raw.changes(topic)[0].payload.data, { table, type: 'INSERT', new: row })
      assertData(raw.changes(topic)[1].payload.data, { table, type: 'UPDATE', new: { ...row, body: 'y' }, old: row })
    })

    test('leaving is answered, then the channel is closed with the reference of its join', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const stays = await raw.joinLive('stays', [all(table)], { token: user.token })
      const { topic, joinRef } = await raw.joinLive('leave', [all(table)], { token: user.token })
      const from = raw.frames.length
      const reply = await raw.ask({ joinRef, ref: raw.ref(), topic, event: 'phx_leave', payload: {} })
      assert.deepEqual(reply.payload, { status: 'ok', response: {} })
      const close = await raw.frames.first((f) => f.event === 'phx_close', 'phx_close', { from })
      assert.deepEqual([close.topic, close.ref, close.payload], [topic, joinRef, {}])
      const order = raw.frames.items.slice(from).filter((f) => f.topic === topic)
      assert.deepEqual(order.map((f) => f.event), ['phx_reply', 'phx_close'])
      await database.insert(table, { id: 1, owner: user.id })
      await raw.change(stays.topic, isRow(1), 'the row on the channel that stays')
      assert.equal(raw.changes(topic).length, 0, 'a change for a channel that was left')
    })

    test('a second join of a topic closes the first, and only the second goes on', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const first = await raw.joinLive('twice', [all(table)], { token: user.token })
      const from = raw.frames.length
      const second = await raw.joinLive('twice', [all(table, { filter: 'room=eq.2' })], { token: user.token })
      const events = raw.frames.items.slice(from).filter((f) => f.topic === first.topic)
      assert.deepEqual(events.slice(0, 2).map((f) => [f.event, f.ref]), [
        ['phx_close', first.joinRef],
        ['phx_reply', second.joinRef],
      ])
      // A late goodbye to the first join must not end the second.
      if (vsn === '2.0.0') {
        raw.send({ joinRef: first.joinRef, ref: raw.ref(), topic: first.topic, event: 'phx_leave', payload: {} })
        await raw.heartbeat()
      }
      await database.insert(table, { id: 1, owner: user.id, room: 1 })
      await database.insert(table, { id: 2, owner: user.id, room: 2 })
      await raw.change(first.topic, isRow(2), 'the row of the second join')
      assert.equal(raw.changes(first.topic).length, 1)
    })

    test('what is not joined is answered, not ignored', async (t) => {
      const raw = await openRaw(t, { vsn })
      const unmatched = { status: 'error', response: { reason: 'unmatched topic' } }
      const ask = (topic, event) => raw.ask({ ref: raw.ref(), topic, event, payload: {} })
      assert.deepEqual((await ask('realtime:nobody', 'access_token')).payload, unmatched)
      assert.deepEqual((await ask('elsewhere', 'phx_join')).payload, unmatched)
      assert.deepEqual((await ask('realtime:nobody', 'phx_leave')).payload, { status: 'ok', response: {} })
    })

    test('a join with a bad token is refused with its reason, and the socket stays good', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const claims = { role: 'authenticated', sub: user.id, exp: seconds(600) }
      const { role, exp, ...bare } = claims
      const bad = [
        ['expired', 'InvalidJWTToken', sign(JWT_SECRET, { ...claims, exp: seconds(-3600) }), /^Token has expired \d+ seconds ago$/],
        ['no role', 'InvalidJWTToken', sign(JWT_SECRET, { ...bare, exp }), /role/],
        ['no exp', 'InvalidJWTToken', sign(JWT_SECRET, { ...bare, role }), /exp/],
        ['signature', 'JwtSignatureError', sign('x'.repeat(40), claims), /./],
        ['malformed', 'MalformedJWT', 'not-a-token', /./],
        ['unknown role', 'Unauthorized', sign(JWT_SECRET, { ...claims, role: 'nobody' }), /role/],
        ['forbidden role', 'Unauthorized', sign(JWT_SECRET, { ...claims, role: 'postgres' }), /role/],
      ]
      for (const [name, code, token, rule] of bad) {
        const refused = await raw.join(`bad ${name}`, [all(table)], { token })
        assert.match(assertRefused(refused, code), rule, name)
        assert.ok(!refused.reply.text.includes(token.split('.').at(-1)), `${name}: the answer repeats the token`)
      }
      const { topic } = await raw.joinLive('bad expired', [all(table)], { token: user.token })
      await database.insert(table, { id: 1, owner: user.id })
      await raw.change(topic, isRow(1), 'the row on the good channel')
    })

    test('a join with a bad binding is refused by index and rule, never by value', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const bad = {
        'unknown column': ['nope=eq.secretvalue', /nope/],
        'unknown operator': ['room=foo.secretvalue', /operator|foo/],
        'bad value': ['room=eq.secretvalue', /room/],
        'bad value in a list': ['room=in.(1,secretvalue)', /room/],
        'empty list': ['room=in.()', /condition 1: in needs/],
        'no condition': ['room', /filter/],
      }
      for (const [name, [filter, rule]] of Object.entries(bad)) {
        const refused = await raw.join(name, [all(table), all(table, { filter })], { token: user.token })
        const sentence = assertRefused(refused, 'RealtimeDisabledForConfiguration')
        assert.match(sentence, /\b1\b/, `${name}: the index of the binding`)
        assert.match(sentence, rule, name)
        assert.ok(!refused.reply.text.includes('secretvalue'), `${name}: the answer repeats the value`)
      }
      const { topic } = await raw.joinLive('unknown column', [all(table)], { token: user.token })
      await database.insert(table, { id: 1, owner: user.id })
      await raw.change(topic, isRow(1), 'the row on the good channel')
    })

    test('a new token counts from then on; none means the connection\'s own identity', async (t) => {
      const database = await openDatabase(t)
      const [table, beacon] = [await database.notes(), await database.beacon()]
      const [one, two] = [newUser(JWT_SECRET), newUser(JWT_SECRET)]
      const raw = await openRaw(t, { vsn })
      const { topic, joinRef, live } = await raw.joinLive('token', [all(table), all(beacon)], { token: one.token })
      assert.equal(live.payload.role, 'authenticated')
      // Claims have changed once the server says that the feed is live under them.
      const become = async (token) => {
        const from = raw.frames.length
        raw.send({ joinRef, ref: raw.ref(), topic, event: 'access_token', payload: { access_token: token } })
        return (await raw.live(topic, { from })).payload.role
      }
      const both = async (id) => {
        await database.insert(table, { id, owner: one.id })
        await database.insert(table, { id: id + 1, owner: two.id })
        await database.insert(beacon, { id: id + 2 })
        await raw.change(topic, isRow(id + 2), 'sentinel')
      }
      await both(10)
      assert.equal(await become(two.token), 'authenticated')
      await both(20)
      assert.equal(await become(null), 'anon')
      await both(30)
      const ids = raw.changes(topic).map((f) => f.payload.data.new.id)
      assert.deepEqual(ids, [10, 12, 21, 22, 32])
    })

    test('a bad new token ends its channel and no other', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const raw = await openRaw(t, { vsn })
      const [ends, stays] = [
        await raw.joinLive('ends', [all(table)], { token: user.token }),
        await raw.joinLive('stays', [all(table)], { token: user.token }),
      ]
      const from = raw.frames.length
      const { topic, joinRef } = ends
      raw.send({ joinRef, ref: raw.ref(), topic, event: 'access_token', payload: { access_token: 'not-a-token' } })
      await raw.frames.first((f) => f.event === 'phx_close', 'phx_close', { from })
      const told = raw.frames.items.slice(from).filter((f) => f.topic === topic)
      assert.deepEqual(told.map((f) => f.event), ['system', 'phx_close'])
      assert.deepEqual([told[0].payload.status, told[1].ref], ['error', joinRef])
      await database.insert(table, { id: 1, owner: user.id })
      await raw.change(stays.topic, isRow(1), 'the row on the channel that stays')
      assert.equal(raw.changes(topic).length, 0)
    })

    test('a channel ends when its token does', async (t) => {
      const database = await openDatabase(t)
      const table = await database.notes()
      const user = newUser(JWT_SECRET)
      const exp = seconds(3)
      const short = sign(JWT_SECRET, { role: 'authenticated', sub: user.id, exp })
      const raw = await openRaw(t, { vsn })
      const { topic, joinRef } = await raw.joinLive('short', [all(table)], { token: short })
      const stays = await raw.joinLive('long', [all(table)], { token: user.token })
      await database.insert(table, { id: 1, owner: user.id })
      await raw.change(topic, isRow(1), 'a row while the token is good')
      const told = await raw.frames.first((f) => f.topic === topic && f.payload.status === 'error', 'a system error')
      assert.deepEqual([told.event, told.payload.extension], ['system', 'system'])
      assert.match(told.payload.message, /expired/)
      assert.ok(Date.now() >= exp * 1000, 'the channel ended before its token')
      const close = await raw.frames.first((f) => f.topic === topic && f.event === 'phx_close', 'phx_close')
      assert.equal(close.ref, joinRef)
      await database.insert(table, { id: 2, owner: user.id })
      await raw.change(stays.topic, isRow(2), 'a row on the channel that stays')
      assert.equal(raw.changes(topic).length, 1)
    })
  })
}

test('the older path of the socket is served too, and vsn may be absent', async (t) => {
  const raw = await openRaw(t, { path: '/socket/websocket', vsn: '1.0.0' })
  assert.deepEqual((await raw.heartbeat()).payload, { status: 'ok', response: {} })
})

test('without a good key the upgrade is refused with a reason', async () => {
  const claims = { role: 'anon', exp: seconds(600) }
  const bad = [
    [null, /key/i],
    ['junk', /not a valid JWT/],
    [sign('x'.repeat(40), claims), /signature/],
    [sign(JWT_SECRET, { ...claims, exp: seconds(-10_000) }), /expired/],
  ]
  for (const [apikey, rule] of bad) {
    const { status, body } = await refusedUpgrade({ apikey })
    assert.equal(status, 401, body)
    assert.match(JSON.parse(body).error, rule)
    assert.ok(apikey === null || !body.includes(apikey))
  }
})

test('the keys of the project are tokens themselves', async (t) => {
  for (const [apikey, role] of [[ANON_KEY, 'anon'], [SERVICE_KEY, 'service_role']]) {
    const database = await openDatabase(t)
    const raw = await openRaw(t, { apikey })
    const { live } = await raw.joinLive('keys', [all(await database.beacon())])
    assert.equal(live.payload.role, role)
  }
})
