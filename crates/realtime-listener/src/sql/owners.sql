-- Who owns the functions that run with rights of their own. Idempotent.
--
-- Must never set an owner that is set: since PostgreSQL 18, that waits for every transaction that has made a trigger of
-- ours, and everybody's CREATE TABLE waits behind it.

do $owners$
declare
  v_function record;
begin
  for v_function in
    select p.oid::regprocedure as name, wanted.owner
    from (values
      ('random_hex(integer)', 'anvilbase_realtime_owner'),
      ('random_key()', 'anvilbase_realtime_owner'),
      ('row_json(record)', 'anvilbase_realtime_printer'),
      ('utf8_length(text)', 'anvilbase_realtime_owner'),
      ('notice(oid, text, text, text)', 'anvilbase_realtime_owner'),
      ('lost(oid)', 'anvilbase_realtime_owner'),
      ('table_key(oid)', 'anvilbase_realtime_owner'),
      ('key_json(text, record)', 'anvilbase_realtime_owner'),
      ('emit()', 'anvilbase_realtime_owner'),
      ('emit_truncate()', 'anvilbase_realtime_owner'),
      ('settings_changed()', 'anvilbase_realtime_owner'),
      ('open_feed()', 'anvilbase_realtime_owner'),
      ('beat(text)', 'anvilbase_realtime_owner')
    ) as wanted(name, owner)
    -- A name that is mistyped here must not pass.
    left join pg_proc p on p.oid = ('anvilbase_realtime.' || wanted.name)::regprocedure
    where pg_get_userbyid(p.proowner) <> wanted.owner
  loop
    -- To own a function in a schema takes CREATE on it; only for so long.
    if v_function.owner = 'anvilbase_realtime_printer' then
      grant create on schema anvilbase_realtime to anvilbase_realtime_printer;
    end if;
    execute format('alter function %s owner to %I', v_function.name, v_function.owner);
    if v_function.owner = 'anvilbase_realtime_printer' then
      revoke create on schema anvilbase_realtime from anvilbase_realtime_printer;
    end if;
  end loop;
end
$owners$;
