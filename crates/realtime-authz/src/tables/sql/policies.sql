-- The policies that stand between one role and the rows that it may SELECT. $1: the table's oid; $2: the role's name.
-- A policy without a USING condition adds nothing, as in PostgreSQL itself. How names come out depends on search_path.
select
  p.polpermissive as permissive,
  -- Null where the table is dropped meanwhile: then nothing is to be seen.
  coalesce(pg_catalog.pg_get_expr(p.polqual, p.polrelid), 'false') as condition,
  p.polqual::text as stored
from pg_catalog.pg_policy p
where p.polrelid OPERATOR(pg_catalog.=) $1
  and p.polcmd::text OPERATOR(pg_catalog.=) any ('{r,*}'::text[])
  and p.polqual is not null
  and exists (
    select from pg_catalog.unnest(p.polroles) as r(role)
    where case
      when r.role OPERATOR(pg_catalog.=) 0::oid then true
      else pg_catalog.pg_has_role($2::name, r.role, 'USAGE')
    end
  )
order by p.polname
