-- One relation as one role meets it. $1: its oid; $2: the role's name. Run with an empty search_path, as the role itself
-- where it can be taken on (row_security_active judges the current user).
select
  n.nspname::text as schema_name,
  c.relname::text as table_name,
  c.relkind::text as relkind,
  c.relispartition as is_partition,
  coalesce(pg_catalog.has_schema_privilege($2::name, n.oid, 'USAGE'), false) as schema_usage,
  coalesce(pg_catalog.has_any_column_privilege($2::name, c.oid, 'SELECT'), false) as may_select,
  coalesce(pg_catalog.row_security_active(c.oid), false) as rls_active,
  -- O fires in ordinary sessions, A always; R only in a replica, D never.
  exists (
    select from pg_catalog.pg_trigger g
    join pg_catalog.pg_proc f on f.oid = g.tgfoid
    join pg_catalog.pg_namespace fn on fn.oid = f.pronamespace
    where g.tgrelid = c.oid
      and g.tgenabled in ('O', 'A')
      and fn.nspname = 'anvilbase_realtime'
      and f.proname = 'emit'
  ) as attached,
  -- Whether some function claims to be immutable and looks at more than its arguments: the planner then puts one caller's
  -- answer into a plan that serves the next one, in statements and in the functions that they call.
  exists (
    select from pg_catalog.pg_proc p
    join pg_catalog.pg_language l on l.oid = p.prolang
    where p.oid >= 16384
      and p.provolatile = 'i'
      and l.lanname not in ('c', 'internal')
      and (
        p.prosqlbody is not null
        or p.prosrc ~* '(current_|session_user|auth|jwt|claim|\mfrom\M)'
        or exists (
          select from pg_catalog.pg_proc called
          where called.oid >= 16384 and called.provolatile <> 'i' and pg_catalog.strpos(p.prosrc, called.proname::text) > 0
        )
      )
      and not exists (
        select from pg_catalog.pg_depend d
        where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
      )
  ) as plans_lie
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = $1
