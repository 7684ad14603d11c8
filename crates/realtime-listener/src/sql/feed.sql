-- The listener's side: take the feed, listen, and beat.
--
-- The channel's name is in no statement's text, so neither pg_stat_activity nor a statement log can hold it.
-- Must never let two sessions believe that they hold the feed.

-- Takes the feed for this session: the lock, the channel, and a new epoch. Call it outside a transaction block; the
-- session listens once the call has committed.
--   outcome 'taken'    the session holds the feed until it ends; epoch is greater than every one given before.
--   outcome 'held'     another listener's session (holder) has it.
--   key_rotated        a stranger held the lock; it is now another lock, and an operator should look who that was.
create or replace function anvilbase_realtime.open_feed(
  out outcome text, out epoch bigint, out holder integer, out key_rotated boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $open_feed$
declare
  v_settings anvilbase_realtime.settings;
  v_stranger boolean;
begin
  key_rotated := false;
  -- One session at a time from here on: a rotation cannot cross another's taking.
  select * into v_settings from anvilbase_realtime.settings for update;
  if not found then
    raise exception 'anvilbase_realtime.settings is empty' using hint = 'Provision the database again.';
  end if;
  if not pg_try_advisory_lock(v_settings.lock_key) then
    select l.pid, a.usename is null or a.usename not in (session_user, 'anvilbase_realtime_listener')
    into holder, v_stranger
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory'
      and l.database = v_settings.database_oid
      and l.classid = ((v_settings.lock_key >> 32) & 4294967295)::oid
      and l.objid = (v_settings.lock_key & 4294967295)::oid
      and l.objsubid = 1
      and l.granted
    -- Of several holders (a shared lock), one stranger is enough.
    order by 2 desc
    limit 1;
    if v_stranger is not true then
      outcome := 'held';
      return;
    end if;
    -- pg_locks shows a held key to everybody. A new one is unknown until we hold it.
    v_settings.lock_key := anvilbase_realtime.random_key();
    update anvilbase_realtime.settings s set lock_key = v_settings.lock_key;
    key_rotated := true;
    if not pg_try_advisory_lock(v_settings.lock_key) then
      raise exception 'a lock that nobody can know is held';
    end if;
  end if;
  -- The clock only keeps epochs rising over a restored backup; the stored value keeps them rising over the clock.
  update anvilbase_realtime.settings s
  set epoch = greatest(s.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
  returning s.epoch into open_feed.epoch;
  execute format('listen %I', v_settings.channel);
  outcome := 'taken';
end
$open_feed$;

-- Sends a heartbeat through the channel: it must come back on the session that listens.
create or replace function anvilbase_realtime.beat(nonce text) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $beat$
  select pg_notify(s.channel, format('{"v":1,"n":%s,"o":"H"}', to_json(nonce))) from anvilbase_realtime.settings s
$beat$;
