// Follows one table with the SDK as it comes from npm, and prints a line for everything that the SDK says:
//
//   ANVILBASE_URL=… ANVILBASE_KEY=… node follow.mjs <table>
//
// For tests that do something to the server meanwhile (tests/it/restart.rs).

import { WebSocket } from 'ws'
import { createClient } from 'supabase-js-2.119'

const table = process.argv[2]
const say = (line) => process.stdout.write(`${line}\n`)
const client = createClient(process.env.ANVILBASE_URL, process.env.ANVILBASE_KEY, { realtime: { transport: WebSocket } })
client
  .channel('follow')
  .on('postgres_changes', { event: '*', schema: 'public', table }, (payload) => say(`row ${payload.new.id}`))
  .on('system', {}, (payload) => payload.message === 'Subscribed to PostgreSQL' && say('live'))
  .subscribe((status) => say(`status ${status}`))
