// A list that can be waited on: what arrived, in order, and a promise for what must still arrive.
// Never polls and never sleeps; the one timer is the deadline after which a wait has failed.

import { DEADLINE_MS } from './env.mjs'

export class Journal {
  #waiting = new Set()

  /** `name` says in a failure whose journal this is. */
  constructor(name) {
    this.name = name
    this.items = []
  }

  push(item) {
    this.items.push(item)
    for (const check of [...this.#waiting]) check()
  }

  get length() {
    return this.items.length
  }

  filter(test) {
    return this.items.filter(test)
  }

  /**
   * The first item at or after index `from` for which `test` is true; waits for it if need be. Rejects after
   * `ms` milliseconds with everything that did arrive, or at once when `broken` returns an error.
   */
  first(test, what, { from = 0, ms = DEADLINE_MS, broken } = {}) {
    return new Promise((resolve, reject) => {
      const settle = (act, value) => {
        clearTimeout(timer)
        this.#waiting.delete(check)
        act(value)
      }
      const check = () => {
        const found = this.items.slice(from).find(test)
        if (found !== undefined) return settle(resolve, found)
        const error = broken?.()
        if (error) settle(reject, error)
      }
      const timer = setTimeout(() => {
        const seen = this.items.slice(from).map((item) => `\n  ${(item.text ?? JSON.stringify(item)).slice(0, 600)}`)
        settle(reject, new Error(`${this.name}: no ${what} within ${ms} ms; since then:${seen.join('') || ' nothing'}`))
      }, ms)
      this.#waiting.add(check)
      check()
    })
  }

  /** Waits until at least `count` items satisfy `test`, then returns all that do. */
  async count(count, test, what, options = {}) {
    await this.first(() => this.items.filter(test).length >= count, `${count} × ${what}`, options)
    return this.items.filter(test)
  }
}
