// `anvilbase dev` as a child: started on a temporary directory and any free port, ended with all it started.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const READY_MS = 120_000
const STOP_MS = 30_000
const root = new URL('../../..', import.meta.url).pathname

const lastLines = (file) => readFileSync(file, 'utf8').trimEnd().split('\n').slice(-20).join('\n')

/**
 * Starts the server; resolves, once it serves, to the fields of its one line of output (`url`, `database_url`, keys)
 * with `endedWell()` and `died`, which rejects when it ends by itself. How to end it is put into `closing` at once.
 */
export async function startServer(closing) {
  const binary = process.env.ANVILBASE_BIN || join(process.env.CARGO_TARGET_DIR || join(root, 'target'), 'debug/anvilbase')
  const directory = mkdtempSync(join(tmpdir(), 'anvilbase-demo-'))
  chmodSync(directory, 0o711) // as root, the private PostgreSQL runs as another user and must come through
  const logFile = join(directory, 'log')
  const log = openSync(logFile, 'w')
  const { DATABASE_URL, ...env } = process.env
  const child = spawn(binary, ['dev', '--data-dir', join(directory, 'data'), '--port', '0', '--output', 'json'], {
    env,
    stdio: ['ignore', 'pipe', log],
    // In a group of its own: Ctrl-C in a terminal is for the demo, which then ends the server in order, once.
    detached: true,
  })
  closeSync(log)
  const ended = new Promise((resolve) => {
    child.once('error', (error) => resolve({ code: error.code }))
    child.once('exit', (code, signal) => resolve({ code, signal }))
  })
  let result = null
  let stopping = false
  const stop = async () => {
    stopping = true
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
    result = await ended
    clearTimeout(timer)
    rmSync(directory, { recursive: true, force: true })
  }
  closing.push(stop)
  const lines = createInterface({ input: child.stdout })
  const line = await Promise.race([
    once(lines, 'line').then(([text]) => text),
    ended.then(() => null),
    new Promise((resolve) => setTimeout(resolve, READY_MS, null).unref()),
  ])
  if (!line) {
    throw new Error(`${binary} did not start\n${lastLines(logFile)}`)
  }
  const died = new Promise((_, reject) => {
    ended.then(() => stopping || reject(new Error(`the server ended by itself\n${lastLines(logFile)}`)))
  })
  died.catch(() => {}) // whoever waits for it gets the error; nobody may be waiting yet
  return { ...JSON.parse(line), died, endedWell: () => result?.code === 0 }
}
