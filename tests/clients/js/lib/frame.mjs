// The two text forms of a channel-protocol frame (protocol versions 1.0.0 and 2.0.0), and the rules that every
// frame from the server must keep so that all public SDKs accept it. Never repairs a frame: it reports.

import assert from 'node:assert/strict'

/** The text of a client's frame. */
export function encode(vsn, { joinRef = null, ref = null, topic, event, payload }) {
  return vsn === '2.0.0'
    ? JSON.stringify([joinRef, ref, topic, event, payload])
    : JSON.stringify({ topic, event, payload, ref, join_ref: joinRef })
}

/** `{joinRef, ref, topic, event, payload, text}` of a server's frame; `joinRef` is undefined in version 1.0.0. */
export function decode(vsn, text) {
  const value = JSON.parse(text)
  if (vsn === '2.0.0') {
    const [joinRef, ref, topic, event, payload] = value
    return { joinRef, ref, topic, event, payload, text }
  }
  const { ref, topic, event, payload } = value
  return { joinRef: undefined, ref, topic, event, payload, text }
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)
const isRef = (value) => value === null || typeof value === 'string'

/** Throws when a server's frame breaks a rule that some public SDK relies on. */
export function check(vsn, text) {
  const value = JSON.parse(text)
  const frame = decode(vsn, text)
  if (vsn === '2.0.0') {
    assert.ok(Array.isArray(value) && value.length === 5, `not an array of five: ${text}`)
    assert.ok(isRef(frame.joinRef), `join_ref is neither string nor null: ${text}`)
  } else {
    assert.deepEqual(Object.keys(value).sort(), ['event', 'payload', 'ref', 'topic'], `keys of a 1.0.0 frame: ${text}`)
  }
  assert.ok(isRef(frame.ref), `ref is neither string nor null: ${text}`)
  assert.equal(typeof frame.topic, 'string', text)
  assert.equal(typeof frame.event, 'string', text)
  assert.ok(isObject(frame.payload), `payload is no object: ${text}`)
  checkEvent(vsn, frame)
}

function checkEvent(vsn, { joinRef, ref, topic, event, payload, text }) {
  switch (event) {
    case 'phx_reply':
      assert.ok(['ok', 'error'].includes(payload.status), `status of a reply: ${text}`)
      assert.ok(isObject(payload.response), `response of a reply is no object: ${text}`)
      break
    case 'phx_close':
    case 'phx_error':
      assert.equal(typeof ref, 'string', `${event} without the reference of its join: ${text}`)
      if (vsn === '2.0.0') assert.equal(joinRef, ref, text)
      break
    case 'system':
      assert.equal(ref, null, text)
      for (const key of ['extension', 'status', 'message']) assert.equal(typeof payload[key], 'string', text)
      assert.equal(`realtime:${payload.channel}`, topic, `channel of a system frame: ${text}`)
      if (vsn === '2.0.0') assert.equal(typeof joinRef, 'string', text)
      break
    case 'postgres_changes':
      assert.equal(ref, null, text)
      if (vsn === '2.0.0') assert.equal(joinRef, null, text)
      assert.ok(payload.ids.length > 0 && payload.ids.every((id) => Number.isSafeInteger(id) && id !== 0), text)
      break
  }
}
