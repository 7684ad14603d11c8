-- Cluster-wide roles of the feed, and the project's own roles where the platform has not made them.
--
-- Idempotent. Sets no password: `provision` gives the logins SCRAM verifiers in a statement of its own.
-- Must never give a role of the feed a membership or an attribute that is not listed here.

do $roles$
declare
  v_super boolean := (select r.rolsuper from pg_roles r where r.rolname = current_user);
  v_role record;
begin
  for v_role in
    select * from (values
      -- Owns the tables and the emit function.
      ('anvilbase_realtime_owner', false),
      -- Prints rows. A type's own cast to json runs as this role, so it holds nothing.
      ('anvilbase_realtime_printer', false),
      ('anvilbase_realtime_listener', true),
      ('anvilbase_realtime_prober', true),
      ('anvilbase_realtime_service', true)
    ) as wanted(name, login)
  loop
    if not exists (select from pg_roles r where r.rolname = v_role.name) then
      execute format('create role %I nologin noinherit', v_role.name);
    elsif exists (
      select from pg_roles r
      where r.rolname = v_role.name
        and (r.rolsuper or r.rolreplication or r.rolbypassrls or r.rolcreaterole or r.rolcreatedb)
    ) then
      raise exception 'role % exists with an attribute that it must not have', v_role.name
        using hint = 'It must be NOSUPERUSER NOREPLICATION NOBYPASSRLS NOCREATEROLE NOCREATEDB.';
    end if;
    if v_role.login then
      -- NOINHERIT: a session of ours has a member role's rights only after SET ROLE.
      execute format('alter role %I login noinherit', v_role.name);
    else
      execute format('alter role %I nologin noinherit password null', v_role.name);
    end if;
  end loop;

  for v_role in
    select * from (values ('anon', ''), ('authenticated', ''), ('service_role', 'bypassrls')) as wanted(name, attribute)
  loop
    if exists (select from pg_roles r where r.rolname = v_role.name) then
      continue;
    end if;
    if v_role.attribute <> '' and not v_super then
      raise notice 'role % is missing and only a superuser may create it with BYPASSRLS', v_role.name;
      continue;
    end if;
    execute format('create role %I nologin noinherit %s', v_role.name, v_role.attribute);
  end loop;
end
$roles$;
