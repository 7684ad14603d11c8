// Where the server under test is. Everything comes from the environment, so that the same suite runs against
// `anvilbase dev`, against three separate services, and against two gateways.
// Never holds a default for an address or a key: a suite that silently tests something else proves nothing.

function required(name) {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set; see tests/clients/README.md`)
  return value
}

/** HTTP base of the gateway, such as http://127.0.0.1:4000, without a trailing slash. */
export const URL_1 = required('ANVILBASE_URL').replace(/\/+$/, '')

/** HTTP base of a second gateway of the same project, or null. */
export const URL_2 = process.env.ANVILBASE_URL_2?.replace(/\/+$/, '') || null

/** PostgreSQL connection string of a superuser of the project's database. */
export const DATABASE_URL = required('DATABASE_URL')

export const ANON_KEY = required('ANVILBASE_ANON_KEY')
export const SERVICE_KEY = required('ANVILBASE_SERVICE_KEY')
export const JWT_SECRET = required('ANVILBASE_JWT_SECRET')

/** Longest wait for anything that must happen, in milliseconds. Only a failing test waits this long. */
export const DEADLINE_MS = Number(process.env.ANVILBASE_TEST_DEADLINE_MS || 10_000)
