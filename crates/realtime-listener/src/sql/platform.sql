-- The platform's usual grants on schema public, for `anvilbase dev` and for tests: anon, authenticated and service_role
-- may read and write every table there, now and later, and row-level security decides about rows.
--
-- Must never be applied by `provision` to a project's own database: there, these grants are the platform's to make.

grant usage on schema public to anon, authenticated, service_role;
grant select, insert, update, delete on all tables in schema public to anon, authenticated, service_role;
grant usage, select on all sequences in schema public to anon, authenticated, service_role;
alter default privileges in schema public grant select, insert, update, delete on tables to anon, authenticated, service_role;
alter default privileges in schema public grant usage, select on sequences to anon, authenticated, service_role;
