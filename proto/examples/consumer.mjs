// Follows one project's feed on NATS and prints a line per change and per hole.
//
//     NATS_URL=… NATS_USER=… NATS_PASSWORD_FILE=… node consumer.mjs <project>

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'

// The packages are found from where the command is run; a service of your own would import them plainly.
const require = createRequire(`${process.cwd()}/`)
const { connect } = require('@nats-io/transport-node')
const protobuf = require('protobufjs')

const root = new protobuf.Root()
root.resolvePath = (_, file) => fileURLToPath(new URL(`../${file.replace(/^.*?anvilbase\//, 'anvilbase/')}`, import.meta.url))
await root.load(['anvilbase/realtime/v1/change.proto', 'anvilbase/realtime/v1/feed.proto'])
const ChangeEvent = root.lookupType('anvilbase.realtime.v1.ChangeEvent')
const FeedStatus = root.lookupType('anvilbase.realtime.v1.FeedStatus')
const Operation = root.lookupEnum('anvilbase.realtime.v1.Operation')

const hole = (why) => console.log(`HOLE ${why}: read again what you keep`)

/** The rules of the feed: what is old is ignored, what is missing is told. */
class Follower {
  #epoch = 0n
  #seq = null

  /** Whether a message counts. `repeats`: it names the last sequence instead of using the next. */
  at(position, repeats = false) {
    const epoch = BigInt(position?.epoch?.toString() ?? 0)
    const seq = BigInt(position?.seq?.toString() ?? 0)
    if (epoch < this.#epoch) return false
    if (epoch > this.#epoch) {
      if (this.#epoch) hole('another session')
      this.#epoch = epoch
      this.#seq = null
    }
    const expected = this.#seq === null ? null : repeats ? this.#seq : this.#seq + 1n
    if (expected !== null && seq > expected) hole(`${seq - expected} messages`)
    this.#seq = seq
    return true
  }
}

const project = process.argv[2]
const connection = await connect({
  servers: process.env.NATS_URL,
  user: process.env.NATS_USER,
  pass: readFileSync(process.env.NATS_PASSWORD_FILE, 'utf8').trim(),
  maxReconnectAttempts: -1,
})
const watchConnection = async () => {
  for await (const status of connection.status()) if (status.type === 'reconnect') hole('reconnected')
}
watchConnection()

// One subscription for all of the project: the order of changes and holes is kept within it.
const feed = connection.subscribe(`anvilbase.rt.${project}.>`)
await connection.flush()
console.log('FOLLOWING')
const follower = new Follower()
for await (const message of feed) {
  if (message.subject === `anvilbase.rt.${project}.ctl`) {
    const status = FeedStatus.decode(message.data)
    const kind = ['up', 'down', 'gap', 'tableChanged', 'truncated'].find((name) => status[name])
    if (!follower.at(status.position, kind === 'up' || kind === 'down')) continue
    if (kind === 'gap') hole(status.gap.reason)
    else if (kind === 'down') hole('the feed is down')
    else if (kind === 'truncated') console.log('TRUNCATE', status.truncated.schema, status.truncated.table)
  } else if (message.subject.startsWith(`anvilbase.rt.${project}.cdc.`)) {
    const event = ChangeEvent.decode(message.data)
    if (!follower.at(event.position)) continue
    const operation = Operation.valuesById[event.operation].replace('OPERATION_', '')
    // Absent rows are null; the text is PostgreSQL's own.
    const row = (name) => (Object.hasOwn(event, name) ? event[name] : 'null')
    console.log(operation, event.schema, event.table, row('newJson'), row('oldJson'))
  }
}
