// What the demo prints: plain text, in bold and colour only on a terminal that wants it.

const styled = process.stdout.isTTY && !process.env.NO_COLOR
const style = (code, text) => (styled ? `\x1b[${code}m${text}\x1b[0m` : text)
const bold = (text) => style(1, text)

export const say = (text) => console.log(`  ${text}`)
export const title = (text) => console.log(`\n${bold(text)}\n`)

/** Shows a few of the changes as they arrive: the first ones, then one now and then, from everybody in turn. */
export class Live {
  #seen = 0
  #step

  /** About forty lines for the whole run. */
  constructor(changes) {
    this.#step = Math.ceil(changes.length / 17)
  }

  show(watcher, { op, new: row, old, delay }) {
    const n = this.#seen++
    if (n >= 6 && n % this.#step !== 0) return
    const what = op === 'DELETE' ? `key ${old.id}, the row is gone` : describe(row, old, op)
    say(`${watcher.name.padEnd(13)} ${watcher.library.padEnd(18)} ${op}  ${delay.toFixed(1).padStart(5)} ms  ${what}`)
  }
}

function describe({ magnitude, place }, old, op) {
  const before = op === 'UPDATE' ? ` (was ${old?.magnitude === undefined ? 'hidden' : `M ${old.magnitude.toFixed(1)}`})` : ''
  return `M ${magnitude.toFixed(1)}  ${place}${before}`
}

/** The value below which a share `p` of the sorted numbers lies. */
const percentile = (sorted, p) => sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * p) - 1)]

/** One line per watcher: how many of each operation, and how long they took. */
export function printTable(watchers) {
  const head = ['who', 'library', 'insert', 'update', 'delete', 'p50', 'p95', 'p99']
  const rows = watchers.map(({ name, library, received }) => {
    const count = (op) => String(received.filter((c) => c.op === op).length)
    const delays = received.map((c) => c.delay).sort((a, b) => a - b)
    const at = (p) => (delays.length ? `${percentile(delays, p).toFixed(1)} ms` : '-')
    return [name, library, count('INSERT'), count('UPDATE'), count('DELETE'), at(0.5), at(0.95), at(0.99)]
  })
  const widths = head.map((_, i) => Math.max(...[head, ...rows].map((row) => row[i].length)))
  const line = (row) => row.map((cell, i) => (i < 2 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('   ')
  say(bold(line(head)))
  say(widths.map((n) => '-'.repeat(n)).join('   '))
  for (const row of rows) say(line(row))
  say('')
  say('p50, p95, p99: from the time the database put on a change (whole milliseconds) to the callback.')
  say('A deleted row can no longer be judged by a policy: users learn its key only, and nothing through a')
  say('filter on another column (Ben). service_role, for trusted servers, sees everything.')
  for (const { name, library, notices } of watchers) {
    for (const { message } of notices) say(`The server told ${name} (${library}): ${message}`)
  }
}

/** Prints the checks and the verdict; returns whether all are good. */
export function printChecks(checks) {
  for (const { name, ok, why } of checks) {
    say(`${ok ? style(32, 'PASS') : style(31, 'FAIL')}  ${name}${ok || !why ? '' : `: ${why}`}`)
  }
  const good = checks.filter(({ ok }) => ok).length
  const all = good === checks.length
  console.log(`\ndemo: ${all ? style(32, 'PASS') : style(31, 'FAIL')}: ${good} of ${checks.length} checks`)
  return all
}
