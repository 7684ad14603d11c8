-- Schema `anvilbase_realtime`: the feed's secrets, its settings per table, and their versions.
--
-- Idempotent; runs after roles.sql. All files but platform.sql run in one transaction, with
-- search_path = pg_catalog, pg_temp (so that nobody's temporary type or table answers to a plain name).
-- Must never replace the channel or the lock key of a database that has them: writers and the listener agree on both.

do $preflight$
begin
  if current_setting('server_encoding') = 'SQL_ASCII' then
    raise exception 'the database has the encoding SQL_ASCII, which cannot be carried to clients'
      using hint = 'Create the database with ENCODING UTF8 (or another real encoding) and provision that.';
  end if;
  if exists (
    select from pg_namespace n
    where n.nspname = 'anvilbase_realtime'
      and pg_get_userbyid(n.nspowner) <> 'anvilbase_realtime_owner'
  ) then
    raise exception 'schema anvilbase_realtime exists and is not owned by anvilbase_realtime_owner'
      using hint = 'Somebody else made it. Look at what it holds, drop or rename it, and provision again.';
  end if;
end
$preflight$;

create schema if not exists anvilbase_realtime authorization anvilbase_realtime_owner;
revoke all on schema anvilbase_realtime from public;

create table if not exists anvilbase_realtime.settings (
  -- Makes a second row impossible.
  only_row boolean primary key default true check (only_row),
  -- NOTIFY has no privileges: who knows this name can listen and forge.
  channel text not null,
  -- Advisory lock of the feed's session. Visible in pg_locks while held, hence replaceable.
  lock_key bigint not null,
  transport text not null default 'notify' check (transport in ('notify')),
  version integer not null,
  -- The last epoch given to a feed session: see open_feed().
  epoch bigint not null default 0,
  -- A restored dump carries this row into another database, with a channel that readers of the dump know.
  database_oid oid not null
);

create table if not exists anvilbase_realtime.tables (
  relid oid primary key,
  schema_name text not null,
  table_name text not null,
  database_oid oid not null,
  cdc_enabled boolean not null default true,
  realtime_public boolean not null default false,
  delete_events boolean not null default true,
  emit_events boolean not null default false,
  -- Its triggers fire in replicas' sessions as well: ENABLE ALWAYS.
  replica_events boolean not null default false,
  -- A partition's topmost table; null for every other table. Settings of partitions are never read: the root's count.
  root_oid oid,
  -- Its writes announced themselves when it was last looked at; so that what was silent meanwhile can be told of.
  emitting boolean not null default true
);

-- The roles that were given a guard: see judge.sql. What a role owns it may drop, and must not be judged without.
create table if not exists anvilbase_realtime.guarded (role_name name primary key);

-- The last 12 hex digits of a version 4 uuid are random; its fixed bits lie before them.
create or replace function anvilbase_realtime.random_hex(digits integer) returns text
language sql volatile strict
set search_path = pg_catalog, pg_temp
as $$
  select left(string_agg(right(gen_random_uuid()::text, 12), ''), digits)
  from generate_series(1, (digits + 11) / 12)
$$;

create or replace function anvilbase_realtime.random_key() returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select ('x' || anvilbase_realtime.random_hex(16))::bit(64)::bigint $$;


do $tables$
declare
  v_table record;
begin
  -- Each only where it is needed: these take a lock that every writer of the database would wait behind.
  if not exists (
    select from pg_attribute a where a.attrelid = 'anvilbase_realtime.tables'::regclass and a.attname = 'emitting'
  ) then
    alter table anvilbase_realtime.tables add column emitting boolean not null default true;
  end if;
  if not exists (
    select from pg_attribute a where a.attrelid = 'anvilbase_realtime.tables'::regclass and a.attname = 'replica_events'
  ) then
    alter table anvilbase_realtime.tables add column replica_events boolean not null default false;
  end if;
  for v_table in
    select c.oid, c.oid::regclass as name, pg_get_userbyid(c.relowner) as owner, c.relrowsecurity
    from pg_class c
    where c.oid in (
      'anvilbase_realtime.settings'::regclass, 'anvilbase_realtime.tables'::regclass, 'anvilbase_realtime.guarded'::regclass
    )
  loop
    if v_table.owner <> 'anvilbase_realtime_owner' then
      execute format('alter table %s owner to anvilbase_realtime_owner', v_table.name);
    end if;
    -- The owner is exempt. Binds those that hold no privilege here and still have it, by pg_read_all_data and pg_write_all_data.
    if not v_table.relrowsecurity then
      execute format('alter table %s enable row level security', v_table.name);
    end if;
  end loop;
  if not exists (select from pg_policy p where p.polrelid = 'anvilbase_realtime.settings'::regclass) then
    create policy listener on anvilbase_realtime.settings for select to anvilbase_realtime_listener using (true);
  end if;
  if not exists (select from pg_policy p where p.polrelid = 'anvilbase_realtime.guarded'::regclass) then
    -- Whichever login it is granted to.
    create policy prober on anvilbase_realtime.guarded for select using (true);
  end if;
end
$tables$;

do $settings$
declare
  -- Raised with every change of this folder that a provisioned database must receive.
  c_version constant integer := 7;
  v_database oid := (select d.oid from pg_database d where d.datname = current_database());
  v_row record;
begin
  select * into v_row from anvilbase_realtime.settings for update;
  if found and v_row.version > c_version then
    raise exception 'the database was provisioned by a newer release (version %, this one knows %)', v_row.version, c_version
      using hint = 'Provision with that release, or with a later one.';
  end if;
  if found and v_row.database_oid = v_database then
    update anvilbase_realtime.settings set version = c_version where version <> c_version;
    return;
  end if;
  delete from anvilbase_realtime.settings;
  insert into anvilbase_realtime.settings (channel, lock_key, version, database_oid)
  values (
    'anvilbase_rt_' || anvilbase_realtime.random_hex(32),
    anvilbase_realtime.random_key(),
    c_version,
    v_database
  );
end
$settings$;
