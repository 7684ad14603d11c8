-- Stands for what the facts about one relation for one role are read from, so that facts can be believed for as long as
-- the catalog stamps alike. $1: its oid; $2: the role's name. Run as the prober: the settings are its own to read. What a
-- type is made of is not in here: it hides nothing.
--
-- Conditions are in here as text: facts hold them so, and what a name in them stands for changes with renames that leave
-- the policy itself alone. How they come out as text depends on settings, which may differ from session to session.
with settled as materialized (
  select pg_catalog.count(pg_catalog.set_config(s.name, s.value, true)) as settings
  from (values
    ('search_path', ''), ('extra_float_digits', '1'), ('quote_all_identifiers', 'off'), ('datestyle', 'ISO'),
    ('timezone', 'UTC'), ('intervalstyle', 'postgres'), ('bytea_output', 'hex'), ('lc_monetary', 'C')
  ) as s(name, value)
)
select pg_catalog.hashtextextended(
  pg_catalog.json_build_array(
    n.nspname, n.oid, c.relname, c.relkind, c.relispartition, c.relrowsecurity, c.relforcerowsecurity,
    pg_catalog.has_schema_privilege($2::name, n.oid, 'USAGE'),
    granted.whole, c.relacl::text,
    -- Whether row security binds the role.
    pg_catalog.pg_has_role($2::name, c.relowner, 'USAGE'),
    (select pg_catalog.json_build_array(r.rolsuper, r.rolbypassrls) from pg_catalog.pg_roles r where r.rolname = $2::name),
    (
      select pg_catalog.json_build_array(s.cdc_enabled, s.realtime_public, s.delete_events)
      from anvilbase_realtime.table_settings s where s.relid = c.oid
    ),
    (
      select pg_catalog.json_agg(pg_catalog.json_build_array(
        a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attgenerated,
        case when not granted.whole then pg_catalog.has_column_privilege($2::name, c.oid, a.attnum, 'SELECT') end
      ) order by a.attnum)
      from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ),
    (
      select pg_catalog.json_agg(pg_catalog.json_build_array(
        p.oid, p.xmin::text,
        -- Null where the table is gone meanwhile.
        case when p.polcmd::text = any ('{r,*}'::text[]) then pg_catalog.pg_get_expr(p.polqual, p.polrelid) end,
        (
          select pg_catalog.bool_or(case when r.role = 0::oid then true else pg_catalog.pg_has_role($2::name, r.role, 'USAGE') end)
          from pg_catalog.unnest(p.polroles) as r(role)
        )
      ) order by p.oid)
      from pg_catalog.pg_policy p where p.polrelid = c.oid
    ),
    (
      select pg_catalog.json_build_array(i.indexrelid, i.indkey::text)
      from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary
    )
  )::text, 0)
from settled
join pg_catalog.pg_class c on settled.settings > 0
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral (select pg_catalog.has_table_privilege($2::name, c.oid, 'SELECT')) as granted(whole)
where c.oid = $1
