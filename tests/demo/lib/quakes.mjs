// The data: a week of real earthquakes (USGS, from the npm package vega-datasets), and what is done with them.

import { readFileSync } from 'node:fs'

/** How many earthquakes are written. */
export const ROWS = 500

const file = new URL('../node_modules/vega-datasets/data/earthquakes.json', import.meta.url)
const ANAS = ['CA', 'California', 'Nevada']
const BENS = ['Alaska']

/**
 * The changes to make, in order, as `{op, old, new, sql, values}` with whole rows in `old` and `new`. `ana` and
 * `ben` are the ids of the users who watch over a region each; the rest of the world belongs to nobody.
 *
 * Every fifth earthquake is revised later, every eleventh turns out to be noise and is deleted, and every
 * twenty-fifth of Ana's is handed over to Ben: an update that moves a row across the border of what each may see.
 */
export function plan(ana, ben) {
  const changes = []
  let handed = 0
  for (const [i, quake] of newest(ana, ben).entries()) {
    let row = quake
    changes.push(insert(row))
    if (i % 5 === 4) {
      const revised = { ...row, magnitude: Math.round((row.magnitude + 0.3) * 100) / 100, status: 'reviewed' }
      changes.push(update(row, revised))
      row = revised
    }
    if (row.owner === ana && handed++ % 25 === 24) {
      const moved = { ...row, owner: ben }
      changes.push(update(row, moved))
      row = moved
    }
    if (i % 11 === 10) changes.push({ op: 'DELETE', old: row, new: null, sql: 'delete from quakes where id = $1', values: [row.id] })
  }
  return changes
}

function newest(ana, ben) {
  return JSON.parse(readFileSync(file, 'utf8'))
    .features.slice(0, ROWS)
    .reverse()
    .map(({ id, properties: { mag, place, time } }) => {
      const region = place.split(', ').at(-1)
      const owner = ANAS.includes(region) ? ana : BENS.includes(region) ? ben : null
      return { id, owner, region, place, magnitude: mag, at: time, status: 'automatic' }
    })
}

const insert = (row) => ({
  op: 'INSERT',
  old: null,
  new: row,
  sql: `insert into quakes values ($1, $2, $3, $4, $5, to_timestamp($6::float8 / 1000), $7)`,
  values: [row.id, row.owner, row.region, row.place, row.magnitude, row.at, row.status],
})

const update = (old, row) => ({
  op: 'UPDATE',
  old,
  new: row,
  sql: 'update quakes set magnitude = $2, status = $3, owner = $4 where id = $1',
  values: [row.id, row.magnitude, row.status, row.owner],
})
