-- Privileges on our own objects, and who of our logins may become whom. Runs last.
--
-- Must never leave a privilege on an object of ours that is not listed here: default privileges of the database may
-- have given some away when the objects were made.

do $logins$
declare
  v_member record;
begin
  -- The prober judges as these roles; never as service_role, whose work has a login of its own.
  for v_member in
    select wanted.role, wanted.login
    from (values
      ('anon', 'anvilbase_realtime_prober'),
      ('authenticated', 'anvilbase_realtime_prober'),
      ('service_role', 'anvilbase_realtime_service')
    ) as wanted(role, login)
    join pg_roles r on r.rolname = wanted.role
    where not pg_has_role(wanted.login, wanted.role, 'member')
  loop
    begin
      execute format('grant %I to %I', v_member.role, v_member.login);
    exception when insufficient_privilege then
      -- Since PostgreSQL 16 that takes ADMIN on the role. `provision` reports what is missing.
      null;
    end;
  end loop;
  if exists (select from pg_roles r where r.rolname = 'service_role')
    and pg_has_role('anvilbase_realtime_prober', 'service_role', 'member')
  then
    raise exception 'anvilbase_realtime_prober is a member of service_role'
      using hint = 'Revoke that membership: policies would be judged as a role that no policy binds.';
  end if;
  execute format('grant connect, temporary on database %I to anvilbase_realtime_prober', current_database());
  execute format('grant connect on database %I to anvilbase_realtime_listener, anvilbase_realtime_service', current_database());
end
$logins$;

select anvilbase_realtime.guard_roles();
select anvilbase_realtime.reach_policies();

do $grants$
declare
  v_object record;
begin
  -- Everything that anybody but an object's owner holds.
  for v_object in
    select distinct format('revoke all on %s %s from %s',
        case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass,
        case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end) as revoke
    from pg_class c, aclexplode(c.relacl) x
    where c.relnamespace = 'anvilbase_realtime'::regnamespace and c.relkind in ('r', 'v') and x.grantee <> c.relowner
    union all
    select distinct format('revoke all on function %s from %s', p.oid::regprocedure,
        case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end)
    from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
    where p.pronamespace = 'anvilbase_realtime'::regnamespace and x.grantee <> p.proowner
    union all
    select distinct format('revoke all on schema anvilbase_realtime from %s',
        case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end)
    from pg_namespace n, aclexplode(n.nspacl) x
    where n.nspname = 'anvilbase_realtime' and x.grantee <> n.nspowner
  loop
    execute v_object.revoke;
  end loop;
end
$grants$;

-- The emit function's owner is the only one who may print rows.
grant execute on function anvilbase_realtime.row_json(record) to anvilbase_realtime_owner;

-- Who makes a partition makes a copy of its root's row trigger, and the server asks for this right then. A trigger
-- function cannot be called; in a trigger of somebody's own it announces his own table's rows, which he may read.
grant execute on function anvilbase_realtime.emit() to public;

grant usage on schema anvilbase_realtime to anvilbase_realtime_listener, anvilbase_realtime_prober, anvilbase_realtime_service;
-- Whoever is judged calls his own guard by name, and nothing else here.
do $guarded$
declare
  v_role record;
begin
  for v_role in
    select distinct r.rolname
    from pg_proc p
    join pg_roles r on r.oid = p.proowner
    where p.pronamespace = 'anvilbase_realtime'::regnamespace and p.proname = ('as_' || r.rolname)::name
  loop
    execute format('grant usage on schema anvilbase_realtime to %I', v_role.rolname);
  end loop;
end
$guarded$;
grant select on anvilbase_realtime.settings to anvilbase_realtime_listener;
grant execute on function anvilbase_realtime.open_feed() to anvilbase_realtime_listener;
grant execute on function anvilbase_realtime.beat(text) to anvilbase_realtime_listener;
grant select on anvilbase_realtime.table_settings to anvilbase_realtime_prober, anvilbase_realtime_service;
grant select on anvilbase_realtime.guarded to anvilbase_realtime_prober;
grant execute on function anvilbase_realtime.set_table(text, text, boolean, boolean, boolean, boolean, boolean)
  to anvilbase_realtime_owner, anvilbase_realtime_service;
