// The product in a minute: real earthquakes go into a table with row-level security, unmodified client libraries
// follow it, and at the end each must have seen exactly its own rows. Exits non-zero when one check fails, and
// leaves no process and no file behind, on Ctrl-C too.

import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { newUser, seconds, sign } from '../clients/js/lib/token.mjs'
import { plan, ROWS } from './lib/quakes.mjs'
import { check } from './lib/model.mjs'
import { Live, printChecks, printTable, say, title } from './lib/report.mjs'
import { startServer } from './lib/server.mjs'
import { watchWithJs, watchWithPython } from './lib/watchers.mjs'

const SCHEMA = `
  create table quakes (
    id text primary key, owner uuid, region text not null, place text not null,
    magnitude numeric not null, at timestamptz not null, status text not null);
  alter table quakes enable row level security;
  create policy "own region" on quakes for select to authenticated using (owner = auth.uid());
  grant select on quakes to anon, authenticated, service_role;

  create table announcements (id bigint primary key, body text not null);
  alter table announcements enable row level security;
  create policy "for everybody" on announcements for select using (true);
  grant select on announcements to anon, authenticated, service_role;`

const CHANGES_PER_SECOND = 100
const closing = [] // how to end what was started, newest last
let closed = null

/** Ends everything that was started, once, newest first; whoever calls it waits for the end of all. */
const close = () => (closed ??= endAll())

async function endAll() {
  for (const end of closing.reverse()) {
    await end().catch((error) => console.error(`demo: ${error.message}`)) // and still end the others
  }
}

async function main() {
  title('AnvilBase Realtime: earthquakes under row-level security')
  const server = await startServer(closing)
  say(`server    ${server.url}, with a private PostgreSQL`)

  const database = new pg.Client({ connectionString: server.database_url })
  database.on('error', () => {}) // a server that is gone is reported once, by server.died
  await database.connect()
  closing.push(() => database.end())
  await database.query(SCHEMA)
  say('table     quakes; policy: select to authenticated using (owner = auth.uid())')

  const ana = newUser(server.jwt_secret)
  const ben = newUser(server.jwt_secret)
  const changes = plan(ana.id, ben.id)
  const live = new Live(changes)
  const watchers = await subscribe(server, ana, ben, live)

  const count = (op) => changes.filter((c) => c.op === op).length
  title(`Writing ${ROWS} earthquakes: ${count('INSERT')} inserts, ${count('UPDATE')} updates, ${count('DELETE')} deletes`)
  say('Some of what arrives, as it arrives (delay: from commit to callback):\n')
  await Promise.race([server.died, run(database, changes, watchers)])

  title('Who received what')
  printTable(watchers)
  title('Checks')
  const checks = watchers.flatMap((watcher) => check(watcher, changes))
  await close()
  checks.push({ name: 'the server and its PostgreSQL ended', ok: server.endedWell() })
  return printChecks(checks)
}

/** Subscribes everybody; returns when every feed is live. */
async function subscribe(server, ana, ben, live) {
  const every = { event: '*', schema: 'public', table: 'quakes' }
  const anonymous = { token: sign(server.jwt_secret, { role: 'anon', exp: seconds(3600) }) }
  const common = { server, live, closing }
  const watchers = await Promise.all([
    watchWithJs({ ...common, name: 'Ana', as: ana, bindings: [every] }),
    watchWithPython({ ...common, name: 'Ana', as: ana, bindings: [every] }),
    watchWithJs({ ...common, name: 'Ben', as: ben, bindings: [{ ...every, filter: 'magnitude=gte.2' }] }),
    watchWithJs({ ...common, name: 'service_role', as: { token: server.service_key }, bindings: [every] }),
    watchWithJs({
      ...common,
      name: 'anonymous',
      as: anonymous,
      bindings: [
        { ...every, event: 'INSERT' },
        { ...every, event: 'UPDATE' },
      ],
    }),
  ])
  for (const { name, library, about } of watchers) say(`watching  ${name.padEnd(13)} ${library.padEnd(19)} ${about}`)
  return watchers
}

/** Makes all changes, and waits until everybody has had theirs. */
async function run(database, changes, watchers) {
  await write(database, changes)
  // The last row of all, which everybody may read: whoever has it has had everything before it.
  await database.query(`insert into announcements values (1, 'the end')`)
  await Promise.all(watchers.map((watcher) => watcher.done))
}

/** Makes the changes one by one, each in a transaction of its own, at a steady pace. */
async function write(database, changes) {
  const start = performance.now()
  for (const [i, { sql, values }] of changes.entries()) {
    await database.query(sql, values)
    const due = start + ((i + 1) * 1000) / CHANGES_PER_SECOND
    if (due > performance.now()) await pause(due - performance.now())
  }
}

let stopped = null
for (const [signal, status] of [['SIGINT', 130], ['SIGTERM', 143], ['SIGHUP', 129]]) {
  process.on(signal, () => {
    if (stopped === null) say('\nstopping')
    stopped ??= status
    close().finally(() => process.exit(stopped))
  })
}

let status = 1
try {
  if (await main()) status = 0
} catch (error) {
  if (stopped === null) console.error(`demo: FAIL: ${error.message}`)
}
await close()
process.exit(stopped ?? status)
