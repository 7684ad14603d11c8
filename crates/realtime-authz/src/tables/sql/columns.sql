-- The columns of one relation. $1: its oid; $2: the role's name. Run with an empty search_path, so that type names come
-- out with their schemas.
with recursive
  -- Every type that a column's value is made of: through domains, array elements and composite fields.
  parts(attnum, typid, top, in_array) as (
    select a.attnum, a.atttypid, true, false
    from pg_catalog.pg_attribute a
    where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
    union
    select p.attnum, inner_type.typid, p.top and t.typtype = 'd', t.typtype <> 'd' and t.typelem <> 0
      or t.typtype = 'd' and p.in_array
    from parts p
    join pg_catalog.pg_type t on t.oid = p.typid
    cross join lateral (
      select t.typbasetype where t.typtype = 'd'
      union all
      select t.typelem where t.typtype = 'b' and t.typelem <> 0 and t.typlen = -1
      union all
      select f.atttypid from pg_catalog.pg_attribute f
      where t.typtype = 'c' and f.attrelid = t.typrelid and f.attnum > 0 and not f.attisdropped
    ) as inner_type(typid)
  ),
  shapes as (
    select
      p.attnum,
      pg_catalog.bool_or(p.top and t.oid in (114, 3802)) as json_top,
      pg_catalog.bool_or(t.oid in (114, 3802)) as json_inside,
      pg_catalog.bool_or(
        -- Printed by a function of a user's.
        (t.oid >= 16384 and exists (
          select from pg_catalog.pg_cast k where k.castsource = t.oid and k.casttarget = 114 and k.castmethod = 'f'
        ))
        -- An array below an array, which an image shows as one of more dimensions.
        or (p.in_array and t.typtype = 'b' and t.typelem <> 0 and t.typlen = -1)
        -- Names of objects, which mean what the search path makes of them.
        or t.oid in (24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191)
      ) as opaque
    from parts p
    join pg_catalog.pg_type t on t.oid = p.typid
    group by p.attnum
  )
select
  a.attnum,
  a.attname::text as name,
  base.oid as type_oid,
  base.typname::text as type_name,
  base.typtype::text as type_kind,
  own.typtype = 'd' as is_domain,
  coalesce(pg_catalog.has_column_privilege($2::name, $1, a.attnum, 'SELECT'), false) as readable,
  -- Generated on reading ('v'): its image is not its value.
  shapes.opaque or a.attgenerated::text = 'v' as opaque,
  shapes.json_top,
  shapes.json_inside,
  -- By the server's bytes; ours are UTF-8's, in the same order only for UTF8 and LATIN1.
  d.encoding in (6, 8) and coalesce(
    case
      when a.attcollation = 0 then null
      when l.collprovider::text = 'd' then
        -- Read through jsonb: the column does not exist in PostgreSQL 14.
        case coalesce(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c')
          when 'b' then true
          when 'c' then d.datcollate::text in ('C', 'POSIX')
          else false
        end
      when l.collprovider::text = 'b' then true
      else l.collprovider::text = 'c' and l.collcollate::text in ('C', 'POSIX')
    end,
    false
  ) as ordered_by_bytes,
  coalesce(l.collisdeterministic, true) as deterministic,
  (
    select pg_catalog.array_agg(e.enumlabel::text order by e.enumsortorder)
    from pg_catalog.pg_enum e
    where e.enumtypid = coalesce(element.oid, base.oid)
  ) as labels,
  element.oid as element_oid,
  element.typname::text as element_name,
  element.typtype::text as element_kind,
  case
    when a.attcollation = 0 or letters.known is not true then null
    when l.collprovider::text = 'c' and l.collctype::text in ('C', 'POSIX') then 'ascii'
    when l.collprovider::text = 'b' and pg_catalog.to_jsonb(l) ->> 'colllocale' = 'C' then 'ascii'
    when l.collprovider::text <> 'd' then null
    else letters.own
  end as letters,
  letters.dotted_i,
  letters.kelvin,
  key.place as key_place,
  -- Only where the role may name them: REST needs to name neither.
  case
    when pg_catalog.has_schema_privilege($2::name, own.typnamespace, 'USAGE')
      and (l.oid is null or pg_catalog.has_schema_privilege($2::name, l.collnamespace, 'USAGE'))
    then pg_catalog.format_type(a.atttypid, a.atttypmod)
      || case when l.oid is null then '' else pg_catalog.format(' COLLATE %I.%I', ln.nspname, l.collname) end
  end as type_sql,
  case when key.equals is null then '' else pg_catalog.format('OPERATOR(%I.%s)', key.equals_schema, key.equals) end as equals_sql
from pg_catalog.pg_attribute a
join pg_catalog.pg_type own on own.oid = a.atttypid
join shapes on shapes.attnum = a.attnum
cross join lateral (
  select t.oid, t.typname, t.typtype
  from (
    with recursive chain(oid, typbasetype, typtype, depth) as (
      select own.oid, own.typbasetype, own.typtype, 0
      union all
      select t.oid, t.typbasetype, t.typtype, chain.depth + 1
      from chain
      join pg_catalog.pg_type t on t.oid = chain.typbasetype
      where chain.typtype = 'd'
    )
    select chain.oid from chain order by chain.depth desc limit 1
  ) as last
  join pg_catalog.pg_type t on t.oid = last.oid
) as base
-- The elements of an array, their domains followed to their base. What is only like an array (int2vector) has none.
left join lateral (
  with recursive chain(oid, typbasetype, typtype, depth) as (
    select e.oid, e.typbasetype, e.typtype, 0
    from pg_catalog.pg_type outer_type
    join pg_catalog.pg_type e on e.oid = outer_type.typelem and e.typarray = outer_type.oid
    where outer_type.oid = base.oid
    union all
    select t.oid, t.typbasetype, t.typtype, chain.depth + 1
    from chain
    join pg_catalog.pg_type t on t.oid = chain.typbasetype
    where chain.typtype = 'd'
  )
  select t.oid, t.typname, t.typtype
  from chain
  join pg_catalog.pg_type t on t.oid = chain.oid
  order by chain.depth desc
  limit 1
) as element on true
join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
-- What the database's own collation takes for letters, asked of itself; encodings whose characters are numbered as
-- Unicode's (UTF8, LATIN1) only. The numbers are no constants: the planner must not work out what an
-- encoding has not.
cross join lateral (
  select
    d.encoding in (6, 8) as known,
    case
      when case coalesce(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c')
          when 'c' then d.datctype::text in ('C', 'POSIX')
          when 'b' then pg_catalog.to_jsonb(d) ->> 'datlocale' = 'C'
        end then 'ascii'
      when pg_catalog.lower('ABCDEFGHIJKLMNOPQRSTUVWXYZ' collate pg_catalog."default") = 'abcdefghijklmnopqrstuvwxyz'
        and pg_catalog.upper('abcdefghijklmnopqrstuvwxyz' collate pg_catalog."default") = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
        -- Lithuanian writes an accented i as two characters.
        and pg_catalog.lower(pg_catalog.chr(case when d.encoding in (6, 8) then 204 else 65 end) collate pg_catalog."default")
          = pg_catalog.chr(case when d.encoding in (6, 8) then 236 else 97 end)
        then 'wide'
    end as own,
    case when d.encoding = 6 then pg_catalog.lower(pg_catalog.chr(304 + 0 * d.encoding) collate pg_catalog."default") else '' end
      as dotted_i,
    case when d.encoding = 6 then pg_catalog.lower(pg_catalog.chr(8490 + 0 * d.encoding) collate pg_catalog."default") else '' end
      as kelvin
) as letters
left join pg_catalog.pg_collation l on l.oid = a.attcollation
left join pg_catalog.pg_namespace ln on ln.oid = l.collnamespace
left join lateral (
  select k.place, o.oprname::text as equals, opn.nspname as equals_schema
  from pg_catalog.pg_index i
  cross join lateral unnest(i.indkey::int2[], i.indclass::oid[]) with ordinality as k(attnum, opclass, place)
  join pg_catalog.pg_opclass oc on oc.oid = k.opclass
  join pg_catalog.pg_amop m
    on m.amopfamily = oc.opcfamily and m.amopstrategy = 3
    and m.amoplefttype = oc.opcintype and m.amoprighttype = oc.opcintype
  join pg_catalog.pg_operator o on o.oid = m.amopopr
  join pg_catalog.pg_namespace opn on opn.oid = o.oprnamespace
  where i.indrelid = $1 and i.indisprimary and k.place <= i.indnkeyatts and k.attnum = a.attnum
) as key on true
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
