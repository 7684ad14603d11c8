// The payload of the documentation, key for key, over the unmodified JavaScript SDK. The SDK hands out most of it
// already; it drops `columns`, and shows an absent row as `{}` instead of null. Both are on the wire: this wrapper
// taps the transport, which is an option of the SDK, and gives callbacks what came.

const KEYS = ['schema', 'table', 'commit_timestamp', 'eventType', 'new', 'old', 'columns', 'errors']

/** `createClient(url, key, options)` as in the SDK; `sdk.createClient` and `sdk.WebSocket` are what it is made of. */
export const seedClient = (sdk) => (url, key, options = {}) => {
  let current // `data` of the frame that is being handled; the SDK calls back before the next one
  class Tap extends sdk.WebSocket {
    get onmessage() {
      return super.onmessage
    }
    set onmessage(handler) {
      super.onmessage = (event) => {
        const frame = typeof event.data === 'string' ? JSON.parse(event.data) : {}
        current = (Array.isArray(frame) ? frame[4] : frame.payload)?.data
        handler(event)
      }
    }
  }
  const client = sdk.createClient(url, key, { ...options, realtime: { ...options.realtime, transport: Tap } })
  const open = client.channel.bind(client)
  client.channel = (name, config) => {
    const channel = open(name, config)
    const on = channel.on.bind(channel)
    channel.on = (type, filter, callback) => {
      const seed = () => callback(Object.fromEntries(KEYS.map((name) => [name, current[name]])))
      return on(type, filter, type === 'postgres_changes' ? seed : callback)
    }
    return channel
  }
  return client
}
