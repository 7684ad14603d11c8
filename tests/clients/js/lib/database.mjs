// The project's database as its owner sees it: tests write rows here and look at what comes out of the feed.
// Each test makes tables of its own under a name that no other run has, and drops them at the end.

import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { DATABASE_URL } from './env.mjs'

/** Opens a connection that ends, and drops the tables made through it, when test `t` ends. */
export async function openDatabase(t) {
  const client = new pg.Client({ connectionString: DATABASE_URL, application_name: 'client-tests' })
  await client.connect()
  const database = new Database(client)
  t.after(() => database.close())
  return database
}

class Database {
  #tables = []

  constructor(client) {
    this.client = client
  }

  query(text, values) {
    return this.client.query(text, values)
  }

  /**
   * Makes a table in one transaction and returns its name. `columns` is the body of CREATE TABLE; `policies` are
   * statements in which `$table` stands for the name. Row-level security is on unless `rls` is false.
   */
  async table(columns, { rls = true, policies = [], stem = 'notes' } = {}) {
    const name = `${stem}_${randomBytes(6).toString('hex')}`
    const statements = [
      `create table public.${name} (${columns})`,
      `grant select on public.${name} to anon, authenticated, service_role`,
      ...(rls ? [`alter table public.${name} enable row level security`] : []),
      ...policies.map((text) => text.replaceAll('$table', `public.${name}`)),
    ]
    await this.client.query(statements.join(';\n'))
    this.#tables.push(name)
    return name
  }

  /** A table of notes of which each user sees their own: (id, owner, room, body). */
  notes() {
    return this.table('id bigint primary key, owner uuid, room int, body text', {
      policies: ['create policy own on $table for select to authenticated using (owner = auth.uid())'],
    })
  }

  /** A table whose rows everybody sees, RLS included; its rows are the sentinels that end a wait for nothing. */
  beacon() {
    return this.table('id bigint primary key', {
      stem: 'beacon',
      policies: ['create policy everybody on $table for select using (true)'],
    })
  }

  /** Inserts one row given as an object. */
  insert(table, row) {
    const names = Object.keys(row)
    const places = names.map((_, i) => `$${i + 1}`)
    return this.query(
      `insert into public.${table} (${names.map((n) => `"${n}"`).join(', ')}) values (${places.join(', ')})`,
      Object.values(row),
    )
  }

  async close() {
    try {
      if (this.#tables.length) {
        await this.client.query(`drop table if exists ${this.#tables.map((n) => `public.${n}`).join(', ')} cascade`)
      }
    } finally {
      await this.client.end()
    }
  }
}
