-- Types that the tables share, a writer's hostile namesakes, and the witness: an independent record of what a trigger
-- may announce, printed under the settings that the feed pins.

create schema kinds;
grant usage on schema kinds to public;
create type kinds.mood as enum ('sad', 'ok', 'it''s "é"', E'back\\slash');
create domain kinds.price as numeric(12, 2) check (value >= 0);
create type kinds.pair as (x int8, y text, "m é" kinds.mood);
create domain kinds.pairs as kinds.pair[];
create type kinds.nest as (p kinds.pair, ps kinds.pair[], t timestamptz);
create type kinds.frange as range (subtype = float8);
create domain kinds.key as int4 not null;

-- JSON output calls this, with whatever it does, inside the user's write.
create type kinds.loud as enum ('fine', 'raise', 'unique', 'divide', 'assert', 'null', 'guc', 'path', 'commit', 'notice', 'long');
create function kinds.loud_json(kinds.loud) returns json language plpgsql as $$
begin
  case $1::text
    when 'raise' then raise exception 'loud' using errcode = 'P0001';
    when 'unique' then raise unique_violation;
    when 'divide' then perform 1 / 0;
    when 'assert' then assert false;
    when 'null' then return null;
    when 'guc' then perform pg_catalog.set_config('timezone', 'Asia/Tokyo', false);
    when 'path' then perform pg_catalog.set_config('search_path', 'hostile', false);
    when 'commit' then commit;
    when 'notice' then raise notice 'loud';
    when 'long' then return to_json(repeat('l', 9000));
    else null;
  end case;
  return to_json('loud ' || $1::text);
end $$;
create cast (kinds.loud as json) with function kinds.loud_json(kinds.loud);

create schema hostile;
grant usage on schema hostile to public;
create function hostile.refuse() returns text language plpgsql as $$ begin raise exception 'hostile'; end $$;
create function hostile.octet_length(text) returns int language sql as 'select hostile.refuse()::int';
create function hostile.row_to_json(record) returns json language plpgsql as $$ begin raise exception 'hostile'; end $$;
create function hostile.to_json(text) returns json language sql as 'select hostile.refuse()::json';
create function hostile.to_json(anyelement) returns json language sql as 'select hostile.refuse()::json';
create function hostile.left(text, int) returns text language sql as 'select hostile.refuse()';
create function hostile.to_char(timestamptz, text) returns text language sql as 'select hostile.refuse()';
create function hostile.clock_timestamp() returns timestamptz language sql as 'select hostile.refuse()::timestamptz';
create function hostile.gen_random_uuid() returns uuid language sql as 'select hostile.refuse()::uuid';
create function hostile.pg_notify(text, text) returns void language sql as 'select hostile.refuse()';
create function hostile.pg_partition_root(regclass) returns regclass language sql as 'select hostile.refuse()::regclass';
create function hostile.getdatabaseencoding() returns name language sql as 'select hostile.refuse()::name';
create function hostile.convert_to(text, name) returns bytea language sql as 'select hostile.refuse()::bytea';
create function hostile.concat(text, text) returns text language sql as 'select hostile.refuse()';
create function hostile.same(text, text) returns bool language sql as 'select hostile.refuse()::bool';
create function hostile.same(oid, oid) returns bool language sql as 'select hostile.refuse()::bool';
create function hostile.same(name, name) returns bool language sql as 'select hostile.refuse()::bool';
create function hostile.sum(int, int) returns int language sql as 'select hostile.refuse()::int';
create operator hostile.|| (function = hostile.concat, leftarg = text, rightarg = text);
create operator hostile.= (function = hostile.same, leftarg = text, rightarg = text);
create operator hostile.<> (function = hostile.same, leftarg = text, rightarg = text);
create operator hostile.= (function = hostile.same, leftarg = oid, rightarg = oid);
create operator hostile.<> (function = hostile.same, leftarg = oid, rightarg = oid);
create operator hostile.<> (function = hostile.same, leftarg = name, rightarg = name);
create operator hostile.+ (function = hostile.sum, leftarg = int, rightarg = int);
create domain hostile.text as pg_catalog.int4;
create domain hostile.oid as pg_catalog.text;
create table hostile.pg_class (oid text);
create table hostile.settings (channel int);

create schema witness;
create table witness.log (seq bigserial primary key, s text, t text, o text, n text, d text, printed bool, bytes int);
create function witness.note() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' set bytea_output = 'hex'
set extra_float_digits = 1 set lc_monetary = 'C' set quote_all_identifiers = off set exit_on_error = off
as $$
declare
  v_new text := 'null';
  v_old text := 'null';
  v_printed bool := false;
  v_schema text;
  v_table text;
begin
  select n.nspname, c.relname into v_schema, v_table from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = coalesce(pg_partition_root(tg_relid)::oid, tg_relid);
  if tg_level = 'ROW' then
    begin
      if tg_op <> 'DELETE' then v_new := row_to_json(new)::text; end if;
      if tg_op <> 'INSERT' then v_old := row_to_json(old)::text; end if;
      perform convert_to(v_new || v_old, 'UTF8');
      v_printed := true;
      raise sqlstate 'WIT00';
    exception when others or assert_failure then null;
    end;
  end if;
  insert into witness.log (s, t, o, n, d, printed, bytes)
  values (v_schema, v_table, left(tg_op, 1), v_new, v_old, v_printed, octet_length(v_new) + octet_length(v_old));
  return null;
end $$;
