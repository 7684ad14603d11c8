-- What authz needs to judge policies: a guard for each role that it judges as, and the way to what policies name.
--
-- Must never let what a policy runs become anybody else: the prober may take on every role that tokens name, and a
-- helper that could RESET ROLE would be the prober. Within a function that runs with its owner's rights PostgreSQL
-- refuses to change roles at all; so each role is judged within such a function of its own.

-- One guard: runs a statement that the session has prepared, as the function's owner. Every name is written with its
-- schema: search_path is the one that policies are to be judged under, where anybody may have made anything.
-- Not STABLE: that would forbid EXECUTE of a prepared statement, and show the catalog as it was.
--
-- The function belongs to the very role that it confines, who may alter it and may not replace its body: so the body looks
-- first whether it still is what was made here. Rows and claims are in no text that it runs, and of an error it passes on
-- the SQLSTATE alone: all else would be in the server's log. What is handed over is gone before the policy begins.
create or replace function anvilbase_realtime.guard_role(role name) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $guard_role$
declare
  -- Cut as any name is; authz looks at the owner as well.
  c_guard constant name := ('as_' || role)::name;
begin
  if exists (
    select from pg_proc p
    where p.pronamespace = 'anvilbase_realtime'::regnamespace and p.proname = c_guard
      and p.proowner not in (select r.oid from pg_roles r where r.rolname in (role, current_user))
  ) then
    raise notice 'role % has no guard: another one has its name', role;
    return;
  end if;
  execute format($create$
    create or replace function anvilbase_realtime.%1$I(statement pg_catalog.text, parameters pg_catalog.text[])
    returns pg_catalog.bool[]
    language plpgsql volatile security definer
    as $as$
    declare
      v_call pg_catalog.text := 'EXECUTE ' operator(pg_catalog.||) pg_catalog.quote_ident(statement);
      v_at pg_catalog.int4 := 0;
      v_name pg_catalog.text;
      v_parameter pg_catalog.text;
      v_before pg_catalog.text := '(';
      v_said pg_catalog.bool[];
    begin
      if (
        select p.prosecdef and p.proconfig is null and p.provolatile operator(pg_catalog.=) 'v'::pg_catalog."char"
          and pg_catalog.array_length(p.proacl, 1) operator(pg_catalog.=) 1
          and pg_catalog.pg_get_userbyid(p.proowner) operator(pg_catalog.=) %2$L::pg_catalog.name
          and current_user operator(pg_catalog.=) %2$L::pg_catalog.name
        from pg_catalog.pg_proc p
        where p.proname operator(pg_catalog.=) %1$L::pg_catalog.name
          and p.proargtypes::pg_catalog.text operator(pg_catalog.=) '25 1009'
          and p.pronamespace operator(pg_catalog.=) (
            select n.oid from pg_catalog.pg_namespace n
            where n.nspname operator(pg_catalog.=) 'anvilbase_realtime'::pg_catalog.name
          )
      ) is not true then
        raise sqlstate 'AVB02';
      end if;
      foreach v_parameter in array parameters loop
        v_at := v_at operator(pg_catalog.+) 1;
        v_name := 'anvilbase_realtime.p' operator(pg_catalog.||) v_at::pg_catalog.text;
        -- An assignment costs less than PERFORM, which is a query.
        v_parameter := pg_catalog.set_config(v_name, v_parameter, true);
        v_name := pg_catalog.quote_literal(v_name);
        -- Read, and then emptied.
        v_call := v_call operator(pg_catalog.||) v_before
          operator(pg_catalog.||) 'pg_catalog.concat(pg_catalog.current_setting(' operator(pg_catalog.||) v_name
          operator(pg_catalog.||) '),pg_catalog.set_config(' operator(pg_catalog.||) v_name
          operator(pg_catalog.||) ','''',true))';
        v_before := ',';
      end loop;
      execute v_call operator(pg_catalog.||) ')' into v_said;
      return v_said;
    exception when others or query_canceled or assert_failure then
      raise exception using errcode = sqlstate, message = 'what a policy runs has raised an error';
    end
    $as$ $create$, c_guard, role);
  execute format('alter function anvilbase_realtime.%I(text, text[]) owner to %I', c_guard, role);
  -- From here on the role is not judged without its guard.
  insert into anvilbase_realtime.guarded (role_name) values (role) on conflict do nothing;
-- Since PostgreSQL 16 that takes SET on the role. A role that never had a guard is judged all the same.
exception when insufficient_privilege then
  raise notice 'role % has no guard: only a superuser, or a login that can become it, may make one', role;
end
$guard_role$;

-- A guard for every role that the prober can become.
create or replace function anvilbase_realtime.guard_roles() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $guard_roles$
  select anvilbase_realtime.guard_role(r.rolname)
  from pg_roles r
  where pg_has_role('anvilbase_realtime_prober', r.oid, 'member')
    and r.rolname <> 'anvilbase_realtime_prober' and r.rolname not like 'pg\_%'
$guard_roles$;

-- Lets the prober name what policies name. PostgreSQL keeps policies resolved, so that their roles need no USAGE on the
-- schemas of a policy's helpers and types; authz reads them as text, and somebody must be able to look the names up.
-- The prober gets no right on anything within those schemas.
create or replace function anvilbase_realtime.reach_policies() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $reach_policies$
declare
  v_schema record;
begin
  for v_schema in
    select distinct n.nspname
    from pg_depend d
    join lateral (
      select p.pronamespace as oid from pg_proc p where d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
      union all
      select t.typnamespace from pg_type t where d.refclassid = 'pg_type'::regclass and t.oid = d.refobjid
      union all
      select c.relnamespace from pg_class c where d.refclassid = 'pg_class'::regclass and c.oid = d.refobjid
      union all
      select o.oprnamespace from pg_operator o where d.refclassid = 'pg_operator'::regclass and o.oid = d.refobjid
      union all
      select l.collnamespace from pg_collation l where d.refclassid = 'pg_collation'::regclass and l.oid = d.refobjid
    ) used on true
    join pg_namespace n on n.oid = used.oid
    where d.classid = 'pg_policy'::regclass
      and not has_schema_privilege('anvilbase_realtime_prober', n.oid, 'USAGE')
  loop
    begin
      execute format('grant usage on schema %I to anvilbase_realtime_prober', v_schema.nspname);
    exception when insufficient_privilege then
      -- Its owner's to give; until then policies that name it admit nothing here, and say so.
      null;
    end;
  end loop;
end
$reach_policies$;
