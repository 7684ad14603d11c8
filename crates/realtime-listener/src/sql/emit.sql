-- The write path: what runs inside the user's own statement, once a row.
--
-- Must never fail the user's write, and must never run anything that a user can define with a right of ours. Two
-- consequences that look like pedantry:
--   * Every name, operators included, is written with its schema. A cast to json may change search_path for good
--     (a plain SET outlives even a function's own SET clause), and plans are made anew when it has changed.
--   * No construct that looks an operator up by name behind our back: no IN, no CASE x WHEN, no IS DISTINCT FROM.
-- And one that does not: literals hold no backslash but as E'', for these bodies are read under the writer's own
-- standard_conforming_strings.

-- Prints one row. Owned by a role without rights, because JSON output calls CREATE CAST (... AS json) functions. What such
-- a function does must be undone at once, so call it in a sub-transaction that is aborted, as emit() does: as the owner of
-- this very function it could DROP OWNED it, and a search_path that it sets would be the writer's from then on.
create or replace function anvilbase_realtime.row_json(value record) returns pg_catalog.text
language plpgsql stable security definer
as $row_json$
begin
  return pg_catalog.row_to_json(value)::pg_catalog.text;
end
$row_json$;

-- Bytes of a text as the listener's session gets it. Raises where the database's encoding has a character that UTF-8 lacks:
-- delivered, it would end that session.
create or replace function anvilbase_realtime.utf8_length(value pg_catalog.text) returns pg_catalog.int4
language sql immutable
as $$ select pg_catalog.octet_length(pg_catalog.convert_to(value, 'UTF8')) $$;

-- The envelope of a notice about a table that carries no row. o: T truncated, X its facts changed, L an event of it
-- was lost. relation 0 with empty names means all tables. Raises where the names cannot be carried in UTF-8.
create or replace function anvilbase_realtime.notice(
  relation pg_catalog.oid, schema_name pg_catalog.text, table_name pg_catalog.text, operation pg_catalog.text
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $notice$
declare
  v_text pg_catalog.text;
begin
  v_text :=
    '{"v":1,"n":"' operator(pg_catalog.||) pg_catalog.gen_random_uuid()::pg_catalog.text
    operator(pg_catalog.||) '","r":' operator(pg_catalog.||) relation::pg_catalog.text
    operator(pg_catalog.||) ',"s":' operator(pg_catalog.||) pg_catalog.to_json(schema_name)::pg_catalog.text
    operator(pg_catalog.||) ',"t":' operator(pg_catalog.||) pg_catalog.to_json(table_name)::pg_catalog.text
    operator(pg_catalog.||) ',"o":"' operator(pg_catalog.||) operation
    operator(pg_catalog.||) pg_catalog.to_char(pg_catalog.clock_timestamp(), E'"\\",\\"c\\":\\""YYYY-MM-DD"T"HH24:MI:SS.MS"Z\\","')
    operator(pg_catalog.||) '"new":null,"old":null}';
  perform anvilbase_realtime.utf8_length(v_text);
  perform pg_catalog.pg_notify(s.channel, v_text) from anvilbase_realtime.settings s;
end
$notice$;

-- The last resort of the triggers: the table's name as far as it can be told, and never an error.
create or replace function anvilbase_realtime.lost(relation pg_catalog.oid) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $lost$
begin
  perform anvilbase_realtime.notice(c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, 'L')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
  where c.oid operator(pg_catalog.=) coalesce(pg_catalog.pg_partition_root(relation)::pg_catalog.oid, relation);
exception when others then
  -- Whatever it is about that table, somebody must be told.
  begin
    perform anvilbase_realtime.notice(0::pg_catalog.oid, '', '', 'L');
  exception when others then
    null;
  end;
end
$lost$;

-- Key columns of a table as JSON lists, in key order, and the names of their types; '[]' where there is no key.
create or replace function anvilbase_realtime.table_key(
  relation pg_catalog.oid, out names pg_catalog.text, out types pg_catalog.text
)
language plpgsql stable
as $table_key$
begin
  select
    coalesce('[' operator(pg_catalog.||) pg_catalog.string_agg(
      pg_catalog.to_json(a.attname::pg_catalog.text)::pg_catalog.text, ',' order by k.place
    ) operator(pg_catalog.||) ']', '[]'),
    coalesce('[' operator(pg_catalog.||) pg_catalog.string_agg(
      pg_catalog.to_json(t.typname::pg_catalog.text)::pg_catalog.text, ',' order by k.place
    ) operator(pg_catalog.||) ']', '[]')
  into names, types
  from pg_catalog.pg_index i
  cross join lateral pg_catalog.unnest(i.indkey::pg_catalog.int2[]) with ordinality as k(attnum, place)
  join pg_catalog.pg_attribute a
    on a.attrelid operator(pg_catalog.=) i.indrelid and a.attnum operator(pg_catalog.=) k.attnum
  join pg_catalog.pg_type t on t.oid operator(pg_catalog.=) a.atttypid
  where i.indrelid operator(pg_catalog.=) relation
    and i.indisprimary
    and k.place operator(pg_catalog.<=) i.indnkeyatts;
end
$table_key$;

-- A row's key columns, by a JSON list of their names, printed; '{}' where there is no key. Not cut from the printed row:
-- that may hold what the server prints and does not read again, such as \u0000 in a json.
create or replace function anvilbase_realtime.key_json(names pg_catalog.text, value record) returns pg_catalog.text
language plpgsql stable
as $key_json$
declare
  v_fields pg_catalog.text;
  v_text pg_catalog.text := '{}';
begin
  select pg_catalog.string_agg(pg_catalog.format('($1).%I', k.name), ',' order by k.place) into v_fields
  from pg_catalog.json_array_elements_text(names::pg_catalog.json) with ordinality as k(name, place);
  if v_fields is not null then
    -- With the star it is the row, and never a column that is called r as well.
    execute 'select anvilbase_realtime.row_json(r.*) from (select ' operator(pg_catalog.||) v_fields
      operator(pg_catalog.||) ') r' into v_text using value;
  end if;
  return v_text;
end
$key_json$;

-- Earlier releases'.
drop function if exists anvilbase_realtime.key_json(pg_catalog.text, pg_catalog.text);
drop function if exists anvilbase_realtime.reference(pg_catalog.oid, pg_catalog.text, pg_catalog.text, pg_catalog.int4);

-- AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW.
--
-- The block always ends by raising, so that nothing of what printing the row has run is left: no setting, no object, no
-- lock. The notification is sent after that, with nothing left that can fail.
create or replace function anvilbase_realtime.emit() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set extra_float_digits = 1
set lc_monetary = 'C'
set quote_all_identifiers = off
set exit_on_error = off
as $emit$
declare
  -- PostgreSQL refuses 8,000 bytes; 100 are left for a release that counts otherwise.
  c_bytes_max constant pg_catalog.int4 := 7900;
  -- Never from TG_ARGV or TG_NAME: the table's owner writes those.
  v_root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(tg_relid)::pg_catalog.oid, tg_relid);
  v_schema pg_catalog.text := tg_table_schema;
  v_table pg_catalog.text := tg_table_name;
  v_head pg_catalog.text;
  v_new pg_catalog.text := 'null';
  v_old pg_catalog.text := 'null';
  v_tail pg_catalog.text := '}';
  v_names pg_catalog.text;
  v_types pg_catalog.text;
  -- The listener's session gets everything in UTF-8.
  v_recoded pg_catalog.bool := pg_catalog.getdatabaseencoding() operator(pg_catalog.<>) 'UTF8'::pg_catalog.name;
  v_bytes pg_catalog.int4;
  v_channel pg_catalog.text;
  v_text pg_catalog.text;
begin
  -- Anybody can hang this function on a table of his own. As anything but our own kind of trigger, or for a table that only
  -- its session can see, there is nothing to announce, and the statement goes on as if there were no trigger.
  if tg_level operator(pg_catalog.<>) 'ROW' or tg_when operator(pg_catalog.<>) 'AFTER'
    or pg_catalog.starts_with(tg_table_schema::pg_catalog.text, 'pg_temp_')
  then
    if tg_op operator(pg_catalog.=) 'DELETE' then
      return old;
    end if;
    return new;
  end if;
  if v_root operator(pg_catalog.<>) tg_relid then
    select n.nspname, c.relname into v_schema, v_table
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
    where c.oid operator(pg_catalog.=) v_root;
  end if;
  v_head := '{"v":1,"n":"' operator(pg_catalog.||) pg_catalog.gen_random_uuid()::pg_catalog.text
    operator(pg_catalog.||) '","r":' operator(pg_catalog.||) v_root::pg_catalog.text
    operator(pg_catalog.||) ',"s":' operator(pg_catalog.||) pg_catalog.to_json(v_schema)::pg_catalog.text
    operator(pg_catalog.||) ',"t":' operator(pg_catalog.||) pg_catalog.to_json(v_table)::pg_catalog.text
    operator(pg_catalog.||) ',"o":"' operator(pg_catalog.||) pg_catalog.left(tg_op, 1)
    operator(pg_catalog.||) pg_catalog.to_char(pg_catalog.clock_timestamp(), E'"\\",\\"c\\":\\""YYYY-MM-DD"T"HH24:MI:SS.MS"Z\\","')
    operator(pg_catalog.||) '"new":';
  if tg_op operator(pg_catalog.<>) 'DELETE' then
    v_new := anvilbase_realtime.row_json(new);
  else
    select k.names, k.types into v_names, v_types from anvilbase_realtime.table_key(v_root) k;
    v_tail := ',"pk":' operator(pg_catalog.||) v_names operator(pg_catalog.||) ',"pt":' operator(pg_catalog.||) v_types
      operator(pg_catalog.||) '}';
  end if;
  if tg_op operator(pg_catalog.<>) 'INSERT' then
    v_old := anvilbase_realtime.row_json(old);
  end if;
  v_bytes := pg_catalog.octet_length(v_head) operator(pg_catalog.+) 7;
  if v_bytes operator(pg_catalog.+) pg_catalog.octet_length(v_new) operator(pg_catalog.+) pg_catalog.octet_length(v_old)
    operator(pg_catalog.+) pg_catalog.octet_length(v_tail) operator(pg_catalog.<=) c_bytes_max
  then
    v_text := v_head operator(pg_catalog.||) v_new operator(pg_catalog.||) ',"old":' operator(pg_catalog.||) v_old
      operator(pg_catalog.||) v_tail;
  end if;
  if v_text is null or (v_recoded and anvilbase_realtime.utf8_length(v_text) operator(pg_catalog.>) c_bytes_max) then
    -- What is left of it: its rows' keys, or nothing where even they do not fit.
    if v_names is null then
      select k.names, k.types into v_names, v_types from anvilbase_realtime.table_key(v_root) k;
    end if;
    v_tail := ',"pk":' operator(pg_catalog.||) v_names operator(pg_catalog.||) ',"pt":' operator(pg_catalog.||) v_types
      operator(pg_catalog.||) ',"e":["payload_too_large"]}';
    if v_new operator(pg_catalog.<>) 'null' then
      v_new := anvilbase_realtime.key_json(v_names, new);
    end if;
    if v_old operator(pg_catalog.<>) 'null' then
      v_old := anvilbase_realtime.key_json(v_names, old);
    end if;
    -- One byte of the server's becomes at most three.
    if pg_catalog.octet_length(v_new) operator(pg_catalog.+) pg_catalog.octet_length(v_old)
      operator(pg_catalog.+) pg_catalog.octet_length(v_tail)
      operator(pg_catalog.>) ((c_bytes_max operator(pg_catalog.-) v_bytes) operator(pg_catalog./) case when v_recoded then 3 else 1 end)
    then
      -- A null stays null: it tells an insert from an update.
      if v_new operator(pg_catalog.<>) 'null' then v_new := '{}'; end if;
      if v_old operator(pg_catalog.<>) 'null' then v_old := '{}'; end if;
    end if;
    v_text := v_head operator(pg_catalog.||) v_new operator(pg_catalog.||) ',"old":' operator(pg_catalog.||) v_old
      operator(pg_catalog.||) v_tail;
    if v_recoded then
      perform anvilbase_realtime.utf8_length(v_text);
    end if;
  end if;
  -- A null would be an empty notification, which is taken for the loss of anything.
  if v_text is null or pg_catalog.octet_length(v_text) operator(pg_catalog.>) c_bytes_max then
    raise sqlstate 'AVB01';
  end if;
  -- Last of all: who has a channel has everything.
  select s.channel into v_channel from anvilbase_realtime.settings s;
  raise sqlstate 'AVB00';
-- Not query_canceled: that is the user's own timeout or cancel, and must end the statement.
exception when others or assert_failure then
  if v_channel is not null then
    perform pg_catalog.pg_notify(v_channel, v_text);
    return null;
  end if;
  begin
    perform anvilbase_realtime.lost(tg_relid);
  exception when others then
    null;
  end;
  return null;
end
$emit$;

-- AFTER TRUNCATE, FOR EACH STATEMENT. On partitions too: statement triggers are not cloned to them.
create or replace function anvilbase_realtime.emit_truncate() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $emit_truncate$
begin
  perform anvilbase_realtime.notice(c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, 'T')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
  where c.oid operator(pg_catalog.=) coalesce(pg_catalog.pg_partition_root(tg_relid)::pg_catalog.oid, tg_relid);
  return null;
exception when others then
  begin
    perform anvilbase_realtime.lost(tg_relid);
  exception when others then
    null;
  end;
  return null;
end
$emit_truncate$;
