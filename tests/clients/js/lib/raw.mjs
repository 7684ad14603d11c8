// The channel protocol by hand, frame by frame, for what no SDK shows: references, order, refusals, exact text.

import assert from 'node:assert/strict'
import { WebSocket } from 'ws'
import { ANON_KEY, DEADLINE_MS, URL_1 } from './env.mjs'
import { check, decode, encode } from './frame.mjs'
import { Journal } from './journal.mjs'

/** The address of the socket; a parameter that is null is left out. */
export function socketUrl({ url = URL_1, path = '/realtime/v1/websocket', apikey = ANON_KEY, vsn = '2.0.0' } = {}) {
  const address = new URL(url.replace(/^http/, 'ws') + path)
  if (apikey !== null) address.searchParams.set('apikey', apikey)
  if (vsn !== null) address.searchParams.set('vsn', vsn)
  return address
}

/** Opens a socket that test `t` closes at its end; fails when the server broke the protocol on it. */
export async function openRaw(t, options = {}) {
  const vsn = options.vsn ?? '2.0.0'
  const raw = new RawSocket(new WebSocket(socketUrl({ ...options, vsn })), vsn)
  await raw.opened
  t.after(async () => {
    await raw.close()
    assert.deepEqual(raw.broken, [], 'the server broke the protocol')
  })
  return raw
}

/** Tries to open a socket that must be refused; resolves to `{status, body}` of the HTTP answer. */
export function refusedUpgrade(options) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(socketUrl(options), { handshakeTimeout: DEADLINE_MS })
    socket.once('open', () => {
      socket.terminate()
      reject(new Error('the upgrade was accepted'))
    })
    socket.once('error', reject)
    socket.once('unexpected-response', async (_request, response) => {
      let body = ''
      for await (const chunk of response) body += chunk
      resolve({ status: response.statusCode, body })
    })
  })
}

class RawSocket {
  #next = 1

  constructor(socket, vsn) {
    this.socket = socket
    this.vsn = vsn
    this.frames = new Journal('frames')
    this.broken = []
    this.opened = new Promise((resolve, reject) => {
      socket.once('open', resolve)
      socket.once('error', reject)
    })
    this.closed = new Promise((resolve) => socket.once('close', (code) => resolve(code)))
    socket.on('message', (data) => this.#receive(data.toString()))
  }

  #receive(text) {
    try {
      check(this.vsn, text)
    } catch (error) {
      this.broken.push(error)
    }
    this.frames.push(decode(this.vsn, text))
  }

  ref() {
    return String(this.#next++)
  }

  send(frame) {
    this.socket.send(encode(this.vsn, frame))
  }

  /** Sends a frame and waits for its reply. */
  async ask(frame, { ms } = {}) {
    const from = this.frames.length
    this.send(frame)
    return this.frames.first(
      (f) => f.event === 'phx_reply' && f.topic === frame.topic && f.ref === frame.ref,
      `reply to ${frame.event}`,
      { from, ms },
    )
  }

  /** Joins `realtime:<name>` and returns `{topic, joinRef, reply, took}`, `took` in milliseconds. */
  async join(name, bindings, { token, ref = this.ref(), joinRef = ref, ms, config = {} } = {}) {
    const topic = `realtime:${name}`
    const payload = { config: { postgres_changes: bindings, ...config } }
    if (token !== undefined) payload.access_token = token
    const started = performance.now()
    const reply = await this.ask({ joinRef, ref, topic, event: 'phx_join', payload }, { ms })
    return { topic, joinRef, reply, took: performance.now() - started }
  }

  /** Joins, insists on success, and waits until the feed is live. */
  async joinLive(name, bindings, options) {
    const from = this.frames.length
    const joined = await this.join(name, bindings, options)
    assert.equal(joined.reply.payload.status, 'ok', joined.reply.text)
    joined.live = await this.live(joined.topic, { from })
    return joined
  }

  /** The next `system` frame at or after `from` that says the feed of `topic` is live. */
  live(topic, { from = 0 } = {}) {
    return this.frames.first(
      (f) => f.topic === topic && f.event === 'system' && f.payload.message === 'Subscribed to PostgreSQL',
      `"Subscribed to PostgreSQL" for ${topic}`,
      { from },
    )
  }

  /** The first change at or after `from` whose data satisfy `test`. */
  change(topic, test, what, options) {
    return this.frames.first(
      (f) => f.topic === topic && f.event === 'postgres_changes' && test(f.payload.data),
      what,
      options,
    )
  }

  /** All changes of `topic` so far, in order. */
  changes(topic) {
    return this.frames.filter((f) => f.topic === topic && f.event === 'postgres_changes')
  }

  /** A heartbeat's round trip: whatever was sent before it has been read by the server when it returns. */
  heartbeat(ref = this.ref()) {
    return this.ask({ ref, topic: 'phoenix', event: 'heartbeat', payload: {} })
  }

  async close() {
    if (this.socket.readyState !== WebSocket.CLOSED) this.socket.close()
    await this.closed
  }
}
