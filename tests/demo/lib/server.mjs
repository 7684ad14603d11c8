// `anvilbase dev` as a child: started on a temporary directory and any free port, ended with all it started.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const READY_MS = 120_000
const STOP_MS = 30_000
const root = new URL('../../..', import.meta.url).pathname

/**
 * Starts the server; resolves, once it serves, to the fields of its one line of output (`url`, `database_url`, keys)
 * with `stop()`, which waits for its end, and `endedWell()`.
 */
export async function startServer() {
  const binary = process.env.ANVILBASE_BIN || join(process.env.CARGO_TARGET_DIR || join(root, 'target'), 'debug/anvilbase')
  const directory = mkdtempSync(join(tmpdir(), 'anvilbase-demo-'))
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
    child.once('error', (error) => resolve({ error }))
    child.once('exit', (code, signal) => resolve({ code, signal }))
  })
  let result = null
  const stop = async () => {
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
    result = await ended
    clearTimeout(timer)
    rmSync(directory, { recursive: true, force: true })
  }
  const lines = createInterface({ input: child.stdout })
  const line = await Promise.race([
    once(lines, 'line').then(([text]) => text),
    ended.then(() => null),
    new Promise((resolve) => setTimeout(resolve, READY_MS, null).unref()),
  ])
  if (!line) {
    const text = readFileSync(logFile, 'utf8').trimEnd().split('\n').slice(-20).join('\n')
    await stop()
    throw new Error(`${binary} did not start${result.error ? ` (${result.error.code})` : ''}\n${text}`)
  }
  return { ...JSON.parse(line), stop, endedWell: () => result?.code === 0 || result?.signal === 'SIGTERM' }
}
