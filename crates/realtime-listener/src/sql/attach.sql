-- Which tables carry our triggers, and the settings of each. Runs as the provisioning login, which may alter them.
--
-- Must never put a name into a statement other than through format's %I, and never create a trigger on a partition for
-- rows: the root's is cloned to it.

do $views$
declare
  v_view record;
begin
  for v_view in select * from (values
    -- Every table that is to carry triggers: `relation` itself, the topmost table whose settings count, whether its
    -- triggers are to be enabled, and whether always: in replicas' sessions too.
    ('attachable', $view$
select
  c.oid as relation,
  n.nspname::text as schema_name,
  c.relname::text as table_name,
  case when c.relispartition then r.oid end as root_oid,
  coalesce(t.cdc_enabled and (rn.nspname = 'public' or t.emit_events), true) as enabled,
  coalesce(t.replica_events, false) as always
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
-- A partition lives under its root's rules, in whatever schema it lies.
join pg_class r on r.oid = case when c.relispartition then pg_partition_root(c.oid)::oid else c.oid end
join pg_namespace rn on rn.oid = r.relnamespace
left join anvilbase_realtime.tables t
  on t.relid = r.oid
  and t.database_oid = (select d.oid from pg_database d where d.datname = current_database())
where c.relkind in ('r', 'p')
  and c.relpersistence <> 't'
  and (rn.nspname = 'public' or t.emit_events)
  and rn.nspname <> 'anvilbase_realtime'
  and not exists (
    select from pg_depend d
    where d.classid = 'pg_class'::regclass and d.objid in (c.oid, r.oid) and d.deptype = 'e'
  )
$view$),
    -- Triggers of ours, by the function they call: a name is the owner's to change. Clones on partitions have a parent.
    ('triggers', $view$
select
  g.tgrelid as relation,
  g.tgname::text as name,
  g.tgparentid <> 0 as cloned,
  -- In ordinary sessions: R fires in a replica's alone.
  g.tgenabled in ('O', 'A') as enabled,
  case p.proname when 'emit' then 'rows' else 'truncate' end as kind,
  g.tgenabled = 'A' as always
from pg_trigger g
join pg_proc p on p.oid = g.tgfoid
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'anvilbase_realtime' and p.proname in ('emit', 'emit_truncate')
$view$),
    -- Triggers that announce a second time what another one does: a restored dump brings its own along.
    ('surplus', $view$
select s.relation, s.name
from (
  select g.relation, g.name, g.cloned,
    -- A clone stays, and then the one with this table's own name.
    row_number() over (
      partition by g.relation, g.kind
      order by g.cloned desc, right(g.name, length(g.relation::text) + 1) = '_' || g.relation desc, g.name
    ) as place
  from anvilbase_realtime.triggers g
) s
where s.place > 1 and not s.cloned
$view$),
    -- Tables whose triggers or names in `tables` are not as they ought to be.
    ('unattached', $view$
select a.relation, a.schema_name, a.table_name
from anvilbase_realtime.attachable a
left join anvilbase_realtime.tables t on t.relid = a.relation
where t.relid is null
  or (t.schema_name, t.table_name) <> (a.schema_name, a.table_name)
  or t.root_oid is distinct from a.root_oid
  or not exists (select from anvilbase_realtime.triggers g where g.relation = a.relation and g.kind = 'truncate')
  or exists (select from anvilbase_realtime.surplus s where s.relation = a.relation)
  or (a.root_oid is null) <> exists (
    select from anvilbase_realtime.triggers g where g.relation = a.relation and g.kind = 'rows' and not g.cloned
  )
  -- One way only: that an owner disables triggers for a bulk load is his own affair, an opt-out is not.
  or (not a.enabled and exists (select from anvilbase_realtime.triggers g where g.relation = a.relation and g.enabled))
  or (a.enabled and exists (
    select from anvilbase_realtime.triggers g
    where g.relation = a.relation and not g.cloned and g.enabled and a.always and not g.always
  ))
$view$),
    -- What authz may know: the settings in force, of tables that still are what they were when the settings were made.
    ('table_settings', $view$
select
  t.relid,
  t.schema_name,
  t.table_name,
  t.cdc_enabled,
  t.realtime_public,
  t.delete_events,
  t.emit_events,
  -- Whether a write announces itself now.
  exists (
    select from anvilbase_realtime.triggers g where g.relation = t.relid and g.kind = 'rows' and g.enabled
  ) as emitting,
  t.replica_events
from anvilbase_realtime.tables t
join pg_class c on c.oid = t.relid and c.relname = t.table_name
join pg_namespace n on n.oid = c.relnamespace and n.nspname = t.schema_name
where t.root_oid is null
  and t.database_oid = (select d.oid from pg_database d where d.datname = current_database())
$view$)
  ) as wanted(name, definition)
  loop
    -- To replace a view takes a lock that everybody's DDL, and authz, would wait behind: so only where it is another one.
    if obj_description(to_regclass('anvilbase_realtime.' || v_view.name), 'pg_class')
      is distinct from hashtextextended(v_view.definition, 0)::text
    then
      execute format('create or replace view anvilbase_realtime.%I as %s', v_view.name, v_view.definition);
      execute format('comment on view anvilbase_realtime.%I is %L', v_view.name, hashtextextended(v_view.definition, 0));
      execute format('alter view anvilbase_realtime.%I owner to anvilbase_realtime_owner', v_view.name);
    end if;
  end loop;
end
$views$;

-- Replaced by switch(oid, boolean, boolean) below.
drop function if exists anvilbase_realtime.switch(oid, boolean);

-- Enables or disables every trigger of ours on a table and its partitions; `always` is of those that are enabled.
create or replace function anvilbase_realtime.switch(relation oid, enabled boolean, always boolean) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $switch$
declare
  v_trigger record;
begin
  -- One at a time: what is altered is a change of the table, and the event trigger comes by attach() back here.
  loop
    select n.nspname, c.relname, g.name into v_trigger
    from anvilbase_realtime.triggers g
    join pg_class c on c.oid = g.relation
    join pg_namespace n on n.oid = c.relnamespace
    where (g.relation = switch.relation or g.relation in (select p.relid from pg_partition_tree(switch.relation) p))
      and not g.cloned
      and (g.enabled <> switch.enabled or (g.enabled and g.always <> switch.always))
    limit 1;
    exit when not found;
    execute format('alter table %I.%I %s trigger %I', v_trigger.nspname, v_trigger.relname,
      case when not enabled then 'disable' when always then 'enable always' else 'enable' end, v_trigger.name);
  end loop;
end
$switch$;

-- Takes our triggers off a table that was ours and no longer is: it moved to another schema, or under another root. Its
-- settings go with it, under its new name.
create or replace function anvilbase_realtime.detach(relation oid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $detach$
declare
  v_trigger record;
begin
  -- One at a time: a dropped trigger is a change of the table, and the event trigger comes back here.
  loop
    select n.nspname, c.relname, g.name into v_trigger
    from anvilbase_realtime.triggers g
    join pg_class c on c.oid = g.relation
    join pg_namespace n on n.oid = c.relnamespace
    where g.relation = detach.relation and not g.cloned
    limit 1;
    exit when not found;
    execute format('drop trigger %I on %I.%I', v_trigger.name, v_trigger.nspname, v_trigger.relname);
  end loop;
  update anvilbase_realtime.tables t
  set schema_name = n.nspname, table_name = c.relname,
    root_oid = case when c.relispartition then pg_partition_root(c.oid)::oid end
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where t.relid = detach.relation and c.oid = t.relid;
end
$detach$;

-- Brings one table's triggers and its row of `tables` to what they ought to be; a table that is none of ours is left
-- alone. Announces what that changes: X under each name, L where rows came or went without an event.
create or replace function anvilbase_realtime.attach(relation oid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $attach$
declare
  v_table record;
  v_before anvilbase_realtime.tables;
  v_trigger record;
  v_emitting boolean;
begin
  select * into v_table from anvilbase_realtime.attachable a where a.relation = attach.relation;
  if not found then
    perform anvilbase_realtime.detach(relation);
    return;
  end if;
  delete from anvilbase_realtime.tables t
  where t.relid = attach.relation
    and t.database_oid <> (select d.oid from pg_database d where d.datname = current_database());
  select * into v_before from anvilbase_realtime.tables t where t.relid = attach.relation;
  if not found then
    insert into anvilbase_realtime.tables (relid, schema_name, table_name, database_oid, root_oid)
    select v_table.relation, v_table.schema_name, v_table.table_name, d.oid, v_table.root_oid
    from pg_database d where d.datname = current_database();
  elsif (v_before.schema_name, v_before.table_name) <> (v_table.schema_name, v_table.table_name)
    or v_before.root_oid is distinct from v_table.root_oid
  then
    update anvilbase_realtime.tables t
    set schema_name = v_table.schema_name, table_name = v_table.table_name, root_oid = v_table.root_oid
    where t.relid = attach.relation;
    if v_before.root_oid is distinct from v_table.root_oid then
      perform anvilbase_realtime.lost(changed.oid) from unnest(array[v_before.root_oid, v_table.root_oid]) changed(oid)
      where changed.oid is not null;
    end if;
  end if;

  for v_trigger in
    select g.name from anvilbase_realtime.triggers g
    where g.relation = attach.relation and g.kind = 'rows' and not g.cloned and v_table.root_oid is not null
  loop
    execute format('drop trigger %I on %I.%I', v_trigger.name, v_table.schema_name, v_table.table_name);
  end loop;
  -- "!" sorts before letters, digits and the server's own RI_ triggers. The oid keeps the name of a table that becomes
  -- a partition apart from the name of its root's clone: equal names would make ATTACH PARTITION fail.
  if v_table.root_oid is null and not exists (
    select from anvilbase_realtime.triggers g where g.relation = attach.relation and g.kind = 'rows'
  ) then
    execute format(
      'create trigger %I after insert or update or delete on %I.%I for each row execute function anvilbase_realtime.emit()',
      '!anvilbase_realtime_' || relation, v_table.schema_name, v_table.table_name);
  end if;
  if not exists (
    select from anvilbase_realtime.triggers g where g.relation = attach.relation and g.kind = 'truncate'
  ) then
    execute format(
      'create trigger %I after truncate on %I.%I for each statement execute function anvilbase_realtime.emit_truncate()',
      '!anvilbase_realtime_truncate_' || relation, v_table.schema_name, v_table.table_name);
  end if;
  -- One at a time, as in detach().
  loop
    select s.name into v_trigger from anvilbase_realtime.surplus s where s.relation = attach.relation limit 1;
    exit when not found;
    execute format('drop trigger %I on %I.%I', v_trigger.name, v_table.schema_name, v_table.table_name);
  end loop;
  -- Not where their owner has them disabled, and never back from what he has set himself.
  if not v_table.enabled or (v_table.always and exists (
    select from anvilbase_realtime.triggers g
    where g.relation = attach.relation and not g.cloned and g.enabled and not g.always
  )) then
    perform anvilbase_realtime.switch(relation, v_table.enabled, v_table.always);
  end if;
  v_emitting := exists (
    select from anvilbase_realtime.triggers g where g.relation = attach.relation and g.kind = 'rows' and g.enabled);
  update anvilbase_realtime.tables t set emitting = v_emitting
  where t.relid = attach.relation and t.emitting <> v_emitting;
  if found and v_emitting then
    -- Its owner had its triggers disabled; what was written meanwhile announced nothing.
    perform anvilbase_realtime.lost(relation);
  end if;
end
$attach$;

-- Forgets tables that are gone. Needed where no event trigger does it, and after a restore.
create or replace function anvilbase_realtime.prune() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $prune$
  delete from anvilbase_realtime.tables t
  where t.database_oid <> (select d.oid from pg_database d where d.datname = current_database())
    or not exists (select from pg_class c where c.oid = t.relid)
$prune$;

-- Changes settings of one table, and its triggers with them, in the caller's transaction. Null leaves a setting alone.
-- Waits at most 5 s for the table's lock: a longer wait would queue the table's writers behind it.
--
-- The service login acts for whoever holds a service_role token, and service_role gets the feed's rows whole: so it sets
-- only tables that service_role may read whole. Others, such as those of a platform's own schemas, are the owner's.
drop function if exists anvilbase_realtime.set_table(text, text, boolean, boolean, boolean, boolean);

create or replace function anvilbase_realtime.set_table(
  schema_name text,
  table_name text,
  cdc_enabled boolean default null,
  realtime_public boolean default null,
  delete_events boolean default null,
  emit_events boolean default null,
  replica_events boolean default null
) returns anvilbase_realtime.table_settings
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $set_table$
declare
  v_relation oid;
  v_emitting boolean;
  v_wanted boolean;
  v_always boolean;
  v_row anvilbase_realtime.table_settings;
begin
  select c.oid into v_relation
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = set_table.schema_name
    and c.relname = set_table.table_name
    and c.relkind in ('r', 'p')
    and c.relpersistence <> 't'
    and not c.relispartition
    and n.nspname not in ('anvilbase_realtime', 'pg_catalog', 'information_schema')
    and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e');
  if not found then
    raise exception 'table: no such base table'
      using errcode = 'undefined_table',
            hint = 'It must be a table or a partitioned table; not a view, a foreign table, a partition, a temporary table or an extension''s own.';
  end if;
  if not pg_has_role(session_user, 'anvilbase_realtime_owner', 'member') and not exists (
    select from pg_roles r, pg_class c
    where r.rolname = 'service_role' and c.oid = v_relation
      and has_schema_privilege(r.oid, c.relnamespace, 'usage') and has_table_privilege(r.oid, c.oid, 'select')
  ) then
    raise exception 'table: service_role may not read it'
      using errcode = 'insufficient_privilege',
            hint = 'Grant service_role USAGE on the schema and SELECT on the table, or set it as the login that provisioned the database.';
  end if;
  v_emitting := exists (
    select from anvilbase_realtime.triggers g where g.relation = v_relation and g.kind = 'rows' and g.enabled);
  delete from anvilbase_realtime.tables t
  where t.relid = v_relation
    and (t.database_oid <> (select d.oid from pg_database d where d.datname = current_database())
      or (t.schema_name, t.table_name) <> (set_table.schema_name, set_table.table_name));
  insert into anvilbase_realtime.tables as t
    (relid, schema_name, table_name, database_oid, cdc_enabled, realtime_public, delete_events, emit_events, replica_events)
  select v_relation, set_table.schema_name, set_table.table_name, d.oid,
    coalesce(set_table.cdc_enabled, true), coalesce(set_table.realtime_public, false),
    coalesce(set_table.delete_events, true), coalesce(set_table.emit_events, false),
    coalesce(set_table.replica_events, false)
  from pg_database d where d.datname = current_database()
  on conflict (relid) do update set
    cdc_enabled = coalesce(set_table.cdc_enabled, t.cdc_enabled),
    realtime_public = coalesce(set_table.realtime_public, t.realtime_public),
    delete_events = coalesce(set_table.delete_events, t.delete_events),
    emit_events = coalesce(set_table.emit_events, t.emit_events),
    replica_events = coalesce(set_table.replica_events, t.replica_events);

  perform anvilbase_realtime.attach(p.relid) from pg_partition_tree(v_relation) p;
  perform anvilbase_realtime.attach(v_relation);
  select t.cdc_enabled and (t.schema_name = 'public' or t.emit_events), t.replica_events into v_wanted, v_always
  from anvilbase_realtime.tables t where t.relid = v_relation;
  perform anvilbase_realtime.switch(v_relation, v_wanted, v_always);
  if v_wanted and not v_emitting then
    -- What was written meanwhile announced nothing.
    perform anvilbase_realtime.lost(v_relation);
  end if;
  select * into v_row from anvilbase_realtime.table_settings s where s.relid = v_relation;
  return v_row;
end
$set_table$;

-- A change of settings is a change of the table's facts, however it was made.
create or replace function anvilbase_realtime.settings_changed() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $settings_changed$
begin
  if tg_op <> 'INSERT' then
    perform anvilbase_realtime.notice(coalesce(old.root_oid, old.relid), old.schema_name, old.table_name, 'X');
  end if;
  if tg_op = 'INSERT' or (tg_op = 'UPDATE' and (new.schema_name, new.table_name) <> (old.schema_name, old.table_name)) then
    perform anvilbase_realtime.notice(coalesce(new.root_oid, new.relid), new.schema_name, new.table_name, 'X');
  end if;
  return null;
end
$settings_changed$;

do $trigger$
begin
  if not exists (select from pg_trigger g where g.tgrelid = 'anvilbase_realtime.tables'::regclass and g.tgname = 'changed') then
    create trigger changed after insert or update or delete on anvilbase_realtime.tables
      for each row execute function anvilbase_realtime.settings_changed();
  end if;
end
$trigger$;
