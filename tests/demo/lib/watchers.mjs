// The followers: unmodified client libraries, each with the identity and the bindings that it is given. A watcher is
// `{name, library, about, as, role, bindings, received, notices, done}`; `received` holds `{op, old, new, delay}` with
// the delay in milliseconds, `notices` what the server said besides that the feed is live, such as that events were lost,
// and `done` resolves when the closing announcement has arrived.

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { createClient } from '@supabase/supabase-js'
import { WebSocket } from 'ws'

const DEADLINE_MS = 30_000
const ANNOUNCEMENTS = { event: 'INSERT', schema: 'public', table: 'announcements' }
const python = new URL('../../../.venv/bin/python', import.meta.url).pathname

const roleOf = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).role

/** Wall-clock milliseconds with a fraction, to compare with the time that the database put on a change. */
const now = () => performance.timeOrigin + performance.now()

class Watcher {
  constructor({ name, library, as, bindings, live }) {
    Object.assign(this, { name, library, as, bindings, live, received: [], notices: [] })
    this.role = roleOf(as.token)
    const events = bindings.map(({ event, filter }) => `${event}${filter ? ` where ${filter}` : ''}`)
    this.about = `${events.join(', ')} of quakes, role ${this.role}`
    this.ready = this.#deadline('the feed is not live', (resolve) => (this.isReady = resolve))
  }

  receive(op, row, old, committed, at = now()) {
    const change = { op, new: row, old, delay: Math.max(0, at - Date.parse(committed)) }
    this.received.push(change)
    this.live.show(this, change)
  }

  system({ status, message, code }) {
    if (status === 'ok' && message === 'Subscribed to PostgreSQL') this.isReady()
    else this.notices.push({ code, message })
  }

  /** Starts to wait for the end; its deadline runs from the last sign of life. */
  finish() {
    this.done = new Promise((resolve, reject) => {
      let seen = -1
      const timer = setInterval(() => {
        if (seen === this.received.length) reject(new Error(`${this.name} (${this.library}) waits in vain for the end`))
        seen = this.received.length
      }, DEADLINE_MS)
      this.isDone = () => {
        clearInterval(timer)
        resolve()
      }
    })
    return this
  }

  #deadline(what, start) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.name} (${this.library}): ${what}`)), DEADLINE_MS)
      start(() => {
        clearTimeout(timer)
        resolve()
      })
      this.fail = (text) => reject(new Error(`${this.name} (${this.library}): ${text}`))
    })
  }
}

/** A watcher on @supabase/supabase-js. */
export async function watchWithJs({ server, closing, ...rest }) {
  const watcher = new Watcher({ ...rest, library: 'supabase-js' }).finish()
  const client = createClient(server.url, server.anon_key, {
    realtime: { transport: WebSocket },
    accessToken: async () => rest.as.token,
  })
  closing.push(async () => client.realtime.disconnect())
  await client.realtime.setAuth()
  const channel = client.channel('demo')
  for (const binding of watcher.bindings) {
    channel.on('postgres_changes', binding, (p) => watcher.receive(p.eventType, p.new, p.old, p.commit_timestamp))
  }
  channel.on('postgres_changes', ANNOUNCEMENTS, () => watcher.isDone())
  channel.on('system', {}, (payload) => watcher.system(payload))
  channel.subscribe((status, error) => {
    if (status === 'CHANNEL_ERROR' || status === 'TIMED_OUT') watcher.fail(`${status}: ${error?.message}`)
  })
  await watcher.ready
  return watcher
}

/** A watcher on PyPI's realtime, in a process of its own (watch.py), which reports a line for everything it gets. */
export async function watchWithPython({ server, closing, ...rest }) {
  const watcher = new Watcher({ ...rest, library: 'realtime (Python)' }).finish()
  // Through standard input, not as arguments or environment: a token is a secret. Its end ends the child.
  const child = spawn(python, [new URL('../watch.py', import.meta.url).pathname], { stdio: ['pipe', 'pipe', 'pipe'] })
  const ended = new Promise((resolve) => {
    child.once('error', resolve)
    child.once('exit', resolve)
  })
  let errors = ''
  child.stderr.on('data', (text) => (errors = (errors + text).slice(-2000)))
  child.stdin.on('error', () => {}) // a child that is gone already is reported by its exit
  ended.then(() => watcher.fail(`ended early\n${errors}`))
  closing.push(async () => {
    child.stdin.end()
    await ended
  })
  const { url, anon_key: key } = server
  const bindings = [...watcher.bindings, ANNOUNCEMENTS]
  child.stdin.write(`${JSON.stringify({ url: `${url}/realtime/v1`, key, token: rest.as.token, bindings })}\n`)
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { system, data, at } = JSON.parse(line)
    if (system) watcher.system(system)
    else if (data.table === 'announcements') watcher.isDone()
    else watcher.receive(data.type, data.record, data.old_record, data.commit_timestamp, at)
  })
  await watcher.ready
  return watcher
}
