// Unmodified @supabase/supabase-js, in each version and protocol version that is in the field, with a listening
// post on its socket: tests see both what the SDK made of a frame and the frame itself.

import assert from 'node:assert/strict'
import { WebSocket } from 'ws'
import { createClient as createClient109 } from 'supabase-js-2.109'
import { createClient as createClient119 } from 'supabase-js-2.119'
import { ANON_KEY, URL_1 } from './env.mjs'
import { check, decode } from './frame.mjs'
import { Journal } from './journal.mjs'

/** Every combination that the tests run over: `{name, createClient, vsn}`. */
export const MATRIX = [
  ['supabase-js 2.119.1', createClient119],
  ['supabase-js 2.109.0', createClient109],
].flatMap(([label, createClient]) =>
  ['2.0.0', '1.0.0'].map((vsn) => ({ name: `${label}, protocol ${vsn}`, createClient, vsn })),
)

/**
 * A client of `combination`, signed in with `token` when one is given (else with `key` alone), as
 * `{client, frames, become}`. `frames` is the journal of the text frames that the server sent; `become(token)` is a
 * change of the session, as when an identity provider refreshes it. Closed when test `t` ends, which fails when the
 * server broke a rule of the protocol on this socket.
 */
export async function connect(t, combination, { token, key = ANON_KEY, url = URL_1 } = {}) {
  const { createClient, vsn } = combination
  const frames = new Journal('frames')
  const broken = []
  class Tapped extends WebSocket {
    constructor(address, protocols) {
      super(address, protocols)
      this.on('message', (data, isBinary) => {
        if (isBinary) return
        const text = data.toString()
        try {
          check(vsn, text)
        } catch (error) {
          broken.push(error)
        }
        frames.push(decode(vsn, text))
      })
    }
  }
  // The token comes through the SDK's callback: a token that is set by hand lasts only until the SDK asks again.
  let session = token ?? key
  const client = createClient(url, key, {
    realtime: { transport: Tapped, vsn },
    accessToken: async () => session,
  })
  const become = (next) => {
    session = next
    return client.realtime.setAuth()
  }
  await become(session)
  t.after(async () => {
    await client.removeAllChannels()
    await client.realtime.disconnect()
    assert.deepEqual(broken, [], 'the server broke the protocol')
  })
  return { client, frames, become }
}

/**
 * Subscribes `client` to a channel with `bindings` and returns `{channel, events, system, statuses, ready}`.
 * `events` holds `{binding, payload}`: the index of the binding whose callback ran, and what it got.
 * `ready()` waits until the channel is subscribed and the server says that the feed is live.
 */
export function follow(client, name, bindings) {
  const events = new Journal(`events of ${name}`)
  const system = new Journal(`system frames of ${name}`)
  const statuses = new Journal(`statuses of ${name}`)
  const channel = client.channel(name)
  bindings.forEach((binding, index) => {
    channel.on('postgres_changes', binding, (payload) => events.push({ binding: index, payload }))
  })
  channel.on('system', {}, (payload) => system.push(payload))
  channel.subscribe((status, error) => statuses.push({ status, message: error?.message }))

  const failed = () => {
    const bad = statuses.items.find(({ status }) => ['CHANNEL_ERROR', 'TIMED_OUT', 'CLOSED'].includes(status))
    return bad && new Error(`${name} ended as ${bad.status}: ${bad.message}`)
  }
  const ready = async ({ from = 0 } = {}) => {
    await statuses.first(({ status }) => status === 'SUBSCRIBED', 'status SUBSCRIBED', { broken: failed })
    return system.first(isLive, 'message "Subscribed to PostgreSQL"', { from, broken: failed })
  }
  return { channel, events, system, statuses, ready }
}

/** Whether a `system` payload says that the database side of a channel is up. */
export const isLive = (payload) => payload.status === 'ok' && payload.message === 'Subscribed to PostgreSQL'

/** An event predicate: it is about a row whose key is `id`, in `new` or, for a DELETE, in `old`. */
export const aboutRow = (id) => ({ payload }) => (payload.eventType === 'DELETE' ? payload.old : payload.new).id === id
