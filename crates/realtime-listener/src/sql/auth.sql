-- auth.uid(), auth.jwt(), auth.role(), auth.email() over request.jwt.claims, each only where the project has none.
--
-- Must never replace a function that the platform made.

do $auth$
declare
  v_made boolean := false;
begin
  if not exists (select from pg_namespace n where n.nspname = 'auth') then
    create schema auth;
    grant usage on schema auth to public;
  end if;
  if to_regprocedure('auth.jwt()') is null then
    create function auth.jwt() returns jsonb language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select coalesce(nullif(current_setting('request.jwt.claims', true), '')::jsonb, '{}'::jsonb) $$;
  end if;
  if to_regprocedure('auth.uid()') is null then
    create function auth.uid() returns uuid language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid $$;
  end if;
  if to_regprocedure('auth.role()') is null then
    create function auth.role() returns text language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role' $$;
  end if;
  if to_regprocedure('auth.email()') is null then
    create function auth.email() returns text language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email' $$;
  end if;
end
$auth$;
