// HS256 tokens as an identity provider of the project would sign them.
// Has no dependency and reads no environment: the demo uses it too.

import { createHmac, randomUUID } from 'node:crypto'

const base64url = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')

/** The token of `claims` signed with `secret`. Times are seconds since 1970, as in RFC 7519. */
export function sign(secret, claims) {
  const body = `${base64url({ alg: 'HS256', typ: 'JWT' })}.${base64url(claims)}`
  return `${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`
}

/** Seconds since 1970, `offset` seconds from now. */
export const seconds = (offset = 0) => Math.floor(Date.now() / 1000) + offset

/** A new user: `{id, token}`; the token is good for an hour unless `claims` say otherwise. */
export function newUser(secret, claims = {}) {
  const id = randomUUID()
  return { id, token: sign(secret, { role: 'authenticated', sub: id, exp: seconds(3600), ...claims }) }
}
