-- Event triggers: new tables are attached, and changes of shape, policies or privileges announced in their own
-- transaction. Only a superuser may have these; they run as that superuser, inside other people's DDL.
--
-- Must never fail the user's DDL, and must never execute a user's text: names reach statements through attach() alone.

create or replace function anvilbase_realtime.ddl_end() returns event_trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $ddl_end$
declare
  v_command record;
  v_everything boolean := false;
begin
  for v_command in select c.classid, c.objid, c.command_tag from pg_event_trigger_ddl_commands() c loop
    begin
      if v_command.command_tag in (
        -- Privileges carry no object; a type's change may concern any table.
        'GRANT', 'REVOKE', 'ALTER DEFAULT PRIVILEGES', 'ALTER TYPE', 'ALTER DOMAIN',
        -- Decides how a type is printed.
        'CREATE CAST'
      ) then
        v_everything := true;
      elsif v_command.command_tag = 'ALTER SCHEMA' then
        v_everything := true;
        perform anvilbase_realtime.attach(c.oid)
        from pg_class c where c.relnamespace = v_command.objid and c.relkind in ('r', 'p');
      elsif v_command.classid in ('pg_proc'::regclass, 'pg_operator'::regclass) then
        v_everything := v_everything or anvilbase_realtime.rereads(v_command.classid, v_command.objid);
      elsif v_command.command_tag = 'CREATE TRIGGER' then
        -- Ours, out of a dump. Others change nothing that anybody is told of.
        perform anvilbase_realtime.attach(g.tgrelid)
        from pg_trigger g
        where g.oid = v_command.objid
          and exists (select from anvilbase_realtime.surplus s where s.relation = g.tgrelid);
      elsif v_command.classid = 'pg_policy'::regclass then
        perform anvilbase_realtime.relation_changed(p.polrelid) from pg_policy p where p.oid = v_command.objid;
      elsif v_command.classid = 'pg_trigger'::regclass then
        perform anvilbase_realtime.relation_changed(g.tgrelid) from pg_trigger g where g.oid = v_command.objid;
      elsif v_command.classid = 'pg_class'::regclass then
        perform anvilbase_realtime.relation_changed(v_command.objid);
      end if;
    exception when others then
      v_everything := true;
    end;
  end loop;
  -- A policy names other schemas, or what it names has moved to one.
  if tg_tag in ('CREATE POLICY', 'ALTER POLICY') or (tg_tag like 'ALTER %' and tg_tag <> 'ALTER DEFAULT PRIVILEGES') then
    begin
      perform anvilbase_realtime.reach_policies();
    exception when others then
      v_everything := true;
    end;
  end if;
  if tg_tag in ('DROP OWNED') then
    v_everything := true;
  end if;
  if v_everything then
    perform anvilbase_realtime.notice(0, '', '', 'X');
  end if;
exception when others then
  perform anvilbase_realtime.everything_changed();
end
$ddl_end$;

-- Whether authz has to look again because of a function or an operator. One with the name of a built-in one: conditions
-- that name that one may need other words. One that calls itself immutable: plans may hold what it said to somebody.
create or replace function anvilbase_realtime.rereads(class oid, object oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $rereads$
  select case class
    when 'pg_proc'::regclass then exists (
      select from pg_proc p
      where p.oid = object and p.pronamespace <> pg_my_temp_schema()
        and (p.provolatile = 'i'
          or exists (select from pg_proc b where b.proname = p.proname and b.pronamespace = 'pg_catalog'::regnamespace)))
    else exists (
      select from pg_operator p join pg_operator b on b.oprname = p.oprname and b.oprnamespace = 'pg_catalog'::regnamespace
      where p.oid = object and p.oprnamespace <> b.oprnamespace and p.oprnamespace <> pg_my_temp_schema())
  end
$rereads$;

-- DROP of tables and of what belongs to them.
create or replace function anvilbase_realtime.dropped() returns event_trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $dropped$
declare
  v_object record;
  v_row anvilbase_realtime.tables;
  v_everything boolean := false;
begin
  for v_object in
    select distinct o.object_type, o.objid, o.address_names[1] as schema_name, o.address_names[2] as table_name
    from pg_event_trigger_dropped_objects() o
    where not o.is_temporary
      and (o.object_type in ('table', 'table column', 'table constraint', 'policy', 'trigger', 'cast')
        -- Not a table's own row type, which goes with it.
        or (o.object_type = 'type' and (o.original or o.normal)))
  loop
    begin
      if v_object.object_type = 'table' then
        -- Its row's own trigger says X.
        delete from anvilbase_realtime.tables t where t.relid = v_object.objid returning * into v_row;
        if v_row.root_oid is not null then
          perform anvilbase_realtime.lost(v_row.root_oid);
        end if;
      elsif v_object.object_type in ('type', 'cast') then
        v_everything := true;
      else
        perform anvilbase_realtime.relation_changed(c.oid)
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = v_object.schema_name and c.relname = v_object.table_name;
      end if;
    exception when others then
      v_everything := true;
    end;
  end loop;
  if v_everything then
    perform anvilbase_realtime.notice(0, '', '', 'X');
  end if;
exception when others then
  perform anvilbase_realtime.everything_changed();
end
$dropped$;

-- One relation's shape, name, place, policies or triggers may be another: attach it, and say so. A partition's change is its
-- root's; a partitioned table's may have made partitions, or tables of partitions.
create or replace function anvilbase_realtime.relation_changed(relation oid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $relation_changed$
declare
  v_kind "char";
begin
  select c.relkind into v_kind from pg_class c
  where c.oid = relation and c.relkind in ('r', 'p') and c.relpersistence <> 't';
  if not found then
    return;
  end if;
  perform anvilbase_realtime.attach(relation);
  if v_kind = 'p' then
    -- Only of this tree, as it is and as it was: to wait for the locks of others is not this statement's affair.
    perform anvilbase_realtime.attach(u.relation)
    from anvilbase_realtime.unattached u
    left join anvilbase_realtime.tables t on t.relid = u.relation
    where u.relation in (select p.relid from pg_partition_tree(relation_changed.relation) p)
      or t.root_oid in (relation_changed.relation, pg_partition_root(relation_changed.relation));
  end if;
  perform anvilbase_realtime.notice(c.oid, n.nspname::text, c.relname::text, 'X')
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where c.oid = coalesce(pg_partition_root(relation)::oid, relation);
end
$relation_changed$;

-- The last resort of the event triggers: whatever it was, facts may be stale and events may be missing.
create or replace function anvilbase_realtime.everything_changed() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $everything_changed$
begin
  perform anvilbase_realtime.notice(0, '', '', 'X');
  perform anvilbase_realtime.notice(0, '', '', 'L');
exception when others then
  raise warning 'anvilbase_realtime: a change of the schema could not be announced';
end
$everything_changed$;

-- Made anew each time: their tags are part of this file's version.
drop event trigger if exists anvilbase_realtime_ddl_end;
drop event trigger if exists anvilbase_realtime_dropped;

create event trigger anvilbase_realtime_ddl_end on ddl_command_end
  when tag in (
    'CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'CREATE SCHEMA',
    'ALTER TABLE', 'ALTER INDEX', 'ALTER SCHEMA', 'ALTER TYPE', 'ALTER DOMAIN', 'ALTER TRIGGER',
    'CREATE POLICY', 'ALTER POLICY', 'GRANT', 'REVOKE', 'ALTER DEFAULT PRIVILEGES', 'DROP OWNED',
    'CREATE TRIGGER', 'CREATE CAST', 'CREATE FUNCTION', 'ALTER FUNCTION', 'CREATE OPERATOR', 'ALTER OPERATOR'
  )
  execute function anvilbase_realtime.ddl_end();

create event trigger anvilbase_realtime_dropped on sql_drop execute function anvilbase_realtime.dropped();
