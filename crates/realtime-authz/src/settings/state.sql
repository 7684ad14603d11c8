-- Base tables of a schema that are on the feed or could be, with the settings in force; only those that service_role may
-- read whole: whoever asks acts for its tokens. Callers add conditions on c.relname, an order and a limit.
select
  n.nspname::pg_catalog.text as schema_name,
  c.relname::pg_catalog.text as table_name,
  coalesce(s.cdc_enabled, true) as cdc_enabled,
  c.relrowsecurity as rls_enabled,
  coalesce(s.realtime_public, false) as realtime_public,
  coalesce(s.delete_events, true) as delete_events,
  coalesce(s.emit_events, false) as emit_events,
  coalesce(s.replica_events, false) as replica_events,
  coalesce(s.emitting, false) as emitting,
  exists (
    select from pg_catalog.pg_index i
    join pg_catalog.pg_attribute a
      on a.attrelid OPERATOR(pg_catalog.=) i.indrelid
      and a.attnum OPERATOR(pg_catalog.=) any (i.indkey::pg_catalog.int2[])
    join pg_catalog.pg_type y on y.oid OPERATOR(pg_catalog.=) a.atttypid
    where i.indrelid OPERATOR(pg_catalog.=) c.oid and i.indisprimary
      and y.typcategory OPERATOR(pg_catalog.=) 'S'::"char"
  ) as text_key
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid OPERATOR(pg_catalog.=) c.relnamespace
left join anvilbase_realtime.table_settings s on s.relid OPERATOR(pg_catalog.=) c.oid
where n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.name
  and n.nspname OPERATOR(pg_catalog.<>) all ('{anvilbase_realtime,pg_catalog,information_schema}'::pg_catalog.name[])
  and c.relkind OPERATOR(pg_catalog.=) any ('{r,p}'::"char"[])
  and c.relpersistence OPERATOR(pg_catalog.<>) 't'::"char"
  and not c.relispartition
  and not exists (
    select from pg_catalog.pg_depend d
    where d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
      and d.objid OPERATOR(pg_catalog.=) c.oid
      and d.deptype OPERATOR(pg_catalog.=) 'e'::"char"
  )
  and exists (
    select from pg_catalog.pg_roles r
    where r.rolname OPERATOR(pg_catalog.=) 'service_role'::pg_catalog.name
      and pg_catalog.has_schema_privilege(r.oid, n.oid, 'usage')
      and pg_catalog.has_table_privilege(r.oid, c.oid, 'select')
  )
