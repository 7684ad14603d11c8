// What each watcher must have received, worked out from the changes alone, and the comparison with what it did.
// Knows nothing of the server: policy, filter and the rules of the feed are written down here a second time.

import { isDeepStrictEqual } from 'node:util'

/** A row as the feed carries it, in the form of the plan: the time as milliseconds, absent rows as null. */
export function normal(row) {
  if (!row || Object.keys(row).length === 0) return null
  return 'at' in row ? { ...row, at: Date.parse(row.at) } : row
}

/** The changes that a watcher must see, in order, as `{op, old, new}`. */
export function expected({ as, role, bindings }, changes) {
  const minimum = bindings.map(({ filter }) => filter && Number(filter.split('gte.')[1])).find((n) => n) ?? null
  const matches = (row) => minimum === null || row.magnitude >= minimum
  const listens = (op) => bindings.some(({ event }) => event === '*' || event === op)
  const all = role === 'service_role'
  const sees = (row) => all || (role === 'authenticated' && row.owner === as.id)

  return changes.filter(({ op }) => listens(op)).flatMap((change) => {
    const { op, old, new: row } = change
    if (op === 'DELETE') {
      // The row is gone and no policy can be asked: users learn its key, and only without a filter on other columns.
      if (all) return [{ op, old, new: null }]
      return minimum === null ? [{ op, old: { id: old.id }, new: null }] : []
    }
    if (!sees(row) || !matches(row)) return []
    return [{ op, old: old && sees(old) ? old : null, new: row }]
  })
}

/** The checks of one watcher, as `{name, ok, why}`. */
export function check(watcher, changes) {
  const want = expected(watcher, changes)
  const got = watcher.received.map(({ op, old, new: row }) => ({ op, old: normal(old), new: normal(row) }))
  const label = `${watcher.name} (${watcher.library})`
  const differs = want.findIndex((change, i) => !isDeepStrictEqual(change, got[i]))
  const first = differs >= 0 ? differs : got.length > want.length ? want.length : -1
  // The Python library shows a notice without its code: there every notice counts.
  const gaps = watcher.notices.filter(({ code }) => code === 'gap' || code === undefined)
  const checks = [
    {
      name: `${label} received its ${want.length} changes, complete, in order, and nothing else`,
      ok: first < 0,
      why: first < 0 ? '' : `${got.length} received; number ${first + 1} is ${got[first]?.op ?? 'missing'}, not ${want[first]?.op ?? 'expected'}`,
    },
    { name: `${label} was told of no gap`, ok: gaps.length === 0, why: gaps.map(({ message }) => message).join('; ') },
  ]
  if (watcher.role === 'authenticated') {
    const foreign = watcher.received.some(({ old, new: row }) => [old, row].some((r) => r?.owner && r.owner !== watcher.as.id))
    checks.push({ name: `${label} saw no row, new or old, of anybody else`, ok: !foreign, why: 'a foreign row' })
  }
  return checks
}
