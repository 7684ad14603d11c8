// What one change must look like: to a callback of the JavaScript SDK, and as `data` on the wire.
// The expectations are exact, key by key; only the time, which nobody can know beforehand, is matched by form.

import assert from 'node:assert/strict'

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** Fails unless `text` is UTC with exactly three fractional digits, and within a minute of now. */
export function assertTime(text) {
  assert.match(text, TIME)
  assert.ok(Math.abs(Date.parse(text) - Date.now()) < 60_000, `commit_timestamp is not about now: ${text}`)
}

/** `columns` of an ordinary event: the names of the row, in order, and no knowledge of types. */
export const unknownColumns = (row) => Object.keys(row).map((name) => ({ name, type: 'unknown' }))

/**
 * Checks the payload that the SDK hands to a callback. `want` is `{table, type, new, old, errors}`; the SDK shows an
 * absent row as `{}`.
 */
export function assertCallback(payload, want) {
  assertTime(payload.commit_timestamp)
  assert.deepEqual(payload, {
    schema: want.schema ?? 'public',
    table: want.table,
    commit_timestamp: payload.commit_timestamp,
    eventType: want.type,
    new: want.new ?? {},
    old: want.old ?? {},
    errors: want.errors ?? null,
  })
}

/**
 * Checks `data` of a `postgres_changes` frame: both the names that the public SDKs read and our own. `want` is
 * `{table, type, new, old, columns, errors}`, `new` and `old` being null where there is none to be seen.
 * Key order is free; an INSERT has no `old_record` and a DELETE no `record`, not even null (a public SDK drops
 * the frame on null), while an UPDATE whose prior row is hidden has an empty `old_record`.
 */
export function assertData(data, want) {
  assertTime(data.commit_timestamp)
  const expected = {
    schema: want.schema ?? 'public',
    table: want.table,
    type: want.type,
    commit_timestamp: data.commit_timestamp,
    columns: want.columns ?? unknownColumns(want.new ?? want.old),
    errors: want.errors ?? null,
    eventType: want.type,
    new: want.new ?? null,
    old: want.old ?? null,
  }
  if (want.type !== 'DELETE') expected.record = want.new
  if (want.type !== 'INSERT') expected.old_record = want.old ?? {}
  assert.deepEqual(data, expected)
}
