//! Random tables, policies and rows.

use std::fmt::Write as _;

use fastrand::Rng;
use realtime_core::change::ChangeEvent;

/// Types, functions and tables that the random ones refer to.
pub const WORLD: &str = r#"
create schema "My Types";
grant usage on schema "My Types" to public;
create type "My Types"."State" as enum ('New', 'Do''ne', 'gone');
create type pair as (a int, "B" text);
create domain level as int not null default 1 check (value >= 0);
create table members(u uuid, room int);
alter table members enable row level security;
create policy own on members for select to authenticated using (u = auth.uid());
insert into members
select ('00000000-0000-4000-8000-00000000000' || u)::uuid, r from generate_series(1, 3) u, generate_series(1, 4) r where (u + r) % 2 = 0;
create schema helpers;
create function helpers.in_room(r int) returns boolean language sql stable security definer set search_path = ''
as $$ select exists (select from public.members m where m.room = r and m.u = auth.uid()) $$;
grant usage on schema helpers to public;
create function plain_org() returns text language plpgsql stable as $$ begin return auth.jwt() -> 'app_metadata' ->> 'org'; end $$;
"#;

/// A column that a table may have: name, type, and literals of it.
struct Kind {
    name: &'static str,
    sql: &'static str,
    values: &'static [&'static str],
    /// Conditions over it; `$t` stands for the table's name.
    conditions: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "owner",
        sql: "uuid",
        values: &[
            "null",
            "'00000000-0000-4000-8000-000000000001'",
            "'00000000-0000-4000-8000-000000000002'",
            "'00000000-0000-4000-8000-000000000003'",
        ],
        conditions: &[
            "owner = auth.uid()",
            "owner = (select auth.uid())",
            "owner is null",
            "owner is distinct from auth.uid()",
            "owner in (select m.u from members m where m.room = 2)",
        ],
    },
    Kind {
        name: "room",
        sql: "int",
        values: &["null", "1", "2", "3", "4", "-7"],
        conditions: &[
            "room > 2",
            "room in (select m.room from members m)",
            "exists (select from members m where m.room = $t.room and m.u = auth.uid())",
            "exists (select from members m where m.room = room and m.u = auth.uid())",
            "helpers.in_room(room)",
            "room is null",
            "room % 2 = 0",
        ],
    },
    Kind {
        name: "org",
        sql: "text",
        values: &["null", "'acme'", "'Ümläut'", "''", "E'a\"b\\\\c\\n'", "'null'"],
        conditions: &[
            "org = auth.jwt() -> 'app_metadata' ->> 'org'",
            "org = plain_org()",
            "org like 'a%'",
            "coalesce(org, '') = ''",
            "length(org) > 3",
            "org = auth.email()",
        ],
    },
    Kind {
        name: "State",
        sql: r#""My Types"."State""#,
        values: &["null", "'New'", "'Do''ne'", "'gone'"],
        conditions: &[
            r#""State" = 'Do''ne'"#,
            r#""State" > 'New'"#,
            r#""State"::text <> 'gone'"#,
        ],
    },
    Kind {
        name: "done",
        sql: "boolean",
        values: &["null", "true", "false"],
        conditions: &["done", "not done", "done is not true"],
    },
    Kind {
        name: "tags",
        sql: "text[]",
        values: &[
            "null",
            "'{}'",
            "'{a,b}'",
            "array['null', null, 'x y']",
            "'{{a,b},{c,d}}'",
        ],
        conditions: &[
            "'a' = any (tags)",
            "tags @> '{b}'",
            "cardinality(tags) = 0",
            "array_ndims(tags) = 2",
            "tags is null",
        ],
    },
    Kind {
        name: "meta",
        sql: "jsonb",
        values: &[
            "null",
            "'null'",
            "'{}'",
            r#"'{"public": true, "n": 12345678901234567890}'"#,
            "'[null]'",
            "'3'",
        ],
        conditions: &[
            "meta is null",
            "meta = 'null'",
            "(meta -> 'public')::boolean",
            "meta ->> 'n' = '12345678901234567890'",
            "jsonb_typeof(meta) = 'array'",
        ],
    },
    Kind {
        name: "raw",
        sql: "json",
        values: &["null", "'null'", r#"'{"a" :  1}'"#],
        conditions: &[
            "raw is not null",
            "raw ->> 'a' = '1'",
            r#"raw::text = '{"a" :  1}'"#,
        ],
    },
    Kind {
        name: "amount",
        sql: "numeric",
        values: &[
            "null",
            "1.50",
            "'NaN'",
            "1e-20",
            "123456789012345678901234567890.5",
        ],
        conditions: &[
            "amount > 1",
            "amount = 'NaN'",
            "amount::text = '1.50'",
            "scale(amount) = 20",
        ],
    },
    Kind {
        name: "at",
        sql: "timestamptz",
        values: &[
            "null",
            "'infinity'",
            "'2026-06-04 10:00:00.123456+02'",
            "'0044-03-15 00:00 BC'",
        ],
        conditions: &[
            "at > '2000-01-01'",
            "isfinite(at)",
            "extract(microseconds from at) > 0",
        ],
    },
    Kind {
        name: "span",
        sql: "interval",
        values: &["null", "'-1 day -02:03:04.5'", "'1 year 2 mons'"],
        conditions: &["span < '0'", "extract(hour from span) = -2"],
    },
    Kind {
        name: "price",
        sql: "money",
        values: &["null", "'-1234.56'", "'7'"],
        conditions: &["price < '0'", "price = '7'"],
    },
    Kind {
        name: "f",
        sql: "float8",
        values: &["null", "'NaN'", "'-Infinity'", "0.1::float8 + 0.2", "1e300"],
        conditions: &["f = 0.1::float8 + 0.2", "f > 1", "f = 'NaN'"],
    },
    Kind {
        name: "bytes",
        sql: "bytea",
        values: &["null", r"'\x00ff'", "''"],
        conditions: &["octet_length(bytes) = 2", r"bytes = '\x00ff'"],
    },
    Kind {
        name: "during",
        sql: "tstzrange",
        values: &["null", "'empty'", "'[2026-01-01, infinity)'"],
        conditions: &["isempty(during)", "during @> '2026-06-01'::timestamptz"],
    },
    Kind {
        name: "Pair",
        sql: "pair",
        values: &["null", "row(1, 'x\"y')", "row(null, null)", "row(2, null)"],
        conditions: &[
            r#"("Pair").a = 1"#,
            r#""Pair" is null"#,
            r#"("Pair")."B" is null"#,
            r#""Pair" is not distinct from row(null, null)::pair"#,
        ],
    },
    Kind {
        name: "pairs",
        sql: "pair[]",
        values: &["null", "array[row(1, 'x'), null]::pair[]", "'{}'"],
        conditions: &["(pairs[1]).a = 1", "pairs[2] is null"],
    },
    Kind {
        name: "level",
        sql: "level",
        values: &["0", "1", "99"],
        conditions: &["level > 0", "level = 99"],
    },
    Kind {
        name: "code",
        sql: "char(5)",
        values: &["null", "'ab'", "'ab c'"],
        conditions: &["code = 'ab'", "octet_length(code) = 5", "code::text = 'ab c'"],
    },
    Kind {
        name: "Twice",
        sql: "int generated always as (coalesce(id, 0) * 2) stored",
        values: &[],
        conditions: &[r#""Twice" > 6"#],
    },
];

/// Conditions over no column, or over the whole row.
const ANYWHERE: &[&str] = &[
    "true",
    "false",
    "auth.role() = 'anon'",
    "current_user = 'authenticated'",
    "id % 3 = 0",
    "current_setting('role') = 'anon'",
    "auth.jwt() ? 'app_metadata'",
    "$t.* is not null",
    "($t.*)::text like '(3%'",
    "(select count(*) from members) > 1",
    "current_setting('request.jwt.claims', true)::jsonb ->> 'sub' like '%1'",
];

/// Raises an error for some subjects. Stands alone: PostgreSQL does not say in which order it asks.
const RAISING: &[&str] = &[
    "(auth.jwt() -> 'app_metadata' ->> 'org')::int = id",
    "auth.uid() is null",
    "1 / (case when auth.role() = 'anon' then 0 else id + 1 end) = 0",
];

/// One random table.
pub struct Table {
    name: String,
    columns: Vec<&'static Kind>,
    policies: Vec<String>,
}

impl Table {
    pub fn random(rng: &mut Rng, number: usize) -> Self {
        let names = [
            format!("t{number}"),
            format!("T \"{number}"),
            format!("owner{number}"),
            format!("Ünï {number}"),
        ];
        let mut columns: Vec<&Kind> = KINDS.iter().collect();
        rng.shuffle(&mut columns);
        columns.truncate(rng.usize(3..9));
        let mut table = Self {
            name: names[number % names.len()].clone(),
            columns,
            policies: Vec::new(),
        };
        if number % 8 == 3 {
            let condition = *rng.choice(RAISING).unwrap();
            table.policies.push(table.policy(rng, 0, "permissive", condition));
            return table;
        }
        for at in 0..rng.usize(1..5) {
            // One permissive policy at least, or the others say nothing.
            let kind = if at > 0 && rng.u8(0..3) == 0 {
                "restrictive"
            } else {
                "permissive"
            };
            let condition = table.condition(rng, 2);
            table.policies.push(table.policy(rng, at, kind, &condition));
        }
        table
    }

    /// The table's name as SQL.
    pub fn sql_name(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    pub fn ddl(&self) -> String {
        let name = self.sql_name();
        let mut ddl = format!("create table {name}(id int primary key");
        for column in &self.columns {
            write!(ddl, ", \"{}\" {}", column.name, column.sql).unwrap();
        }
        write!(ddl, ");\nalter table {name} enable row level security;\n").unwrap();
        for policy in &self.policies {
            writeln!(ddl, "{policy};").unwrap();
        }
        ddl
    }

    pub fn insert(&self, rng: &mut Rng, id: usize) -> String {
        let mut names = String::from("id");
        let mut values = id.to_string();
        for column in self.written() {
            write!(names, ", \"{}\"", column.name).unwrap();
            write!(values, ", {}", rng.choice(column.values).unwrap()).unwrap();
        }
        format!("insert into {}({names}) values ({values})", self.sql_name())
    }

    pub fn update(&self, rng: &mut Rng, id: usize) -> String {
        let mut sets = vec!["id = id".to_owned()];
        for column in self.written() {
            if rng.bool() {
                sets.push(format!(
                    "\"{}\" = {}",
                    column.name,
                    rng.choice(column.values).unwrap()
                ));
            }
        }
        format!(
            "update {} set {} where id = {id}",
            self.sql_name(),
            sets.join(", ")
        )
    }

    /// Whether a row is judged by more than one condition.
    pub fn has_parts(&self) -> bool {
        self.policies.len() > 1
            || self
                .policies
                .iter()
                .any(|policy| policy.contains(") and (") || policy.contains(") or ("))
    }

    /// Whether the old image leaves open what the old row was.
    pub fn may_withhold(&self, event: &ChangeEvent) -> bool {
        let old = event.old.as_ref().unwrap();
        self.columns.iter().any(|column| {
            ["jsonb", "json"].contains(&column.sql) && old.get(column.name).unwrap() == Some("null")
        })
    }

    fn written(&self) -> impl Iterator<Item = &&'static Kind> {
        self.columns.iter().filter(|column| !column.values.is_empty())
    }

    fn policy(&self, rng: &mut Rng, at: usize, kind: &str, condition: &str) -> String {
        let command = rng.choice(["select", "select", "all", "update"]).unwrap();
        // Of an UPDATE policy SELECT takes no notice, but it must not be the only one of its kind.
        let command = if at == 0 { "select" } else { command };
        let role = rng
            .choice([
                "public",
                "authenticated",
                "authenticated",
                "anon",
                "anon, authenticated",
            ])
            .unwrap();
        let role = if at == 0 { "public" } else { role };
        format!(
            "create policy \"p {at}\" on {} as {kind} for {command} to {role} using ({condition})",
            self.sql_name()
        )
    }

    fn condition(&self, rng: &mut Rng, depth: usize) -> String {
        if depth > 0 {
            match rng.u8(0..6) {
                0 => {
                    return format!(
                        "({}) and ({})",
                        self.condition(rng, depth - 1),
                        self.condition(rng, depth - 1)
                    );
                }
                1 => {
                    return format!(
                        "({}) or ({})",
                        self.condition(rng, depth - 1),
                        self.condition(rng, depth - 1)
                    );
                }
                2 => return format!("not ({})", self.condition(rng, depth - 1)),
                _ => {}
            }
        }
        let condition = if rng.u8(0..5) == 0 {
            rng.choice(ANYWHERE).unwrap()
        } else {
            let column = *rng.choice(&self.columns).unwrap();
            rng.choice(column.conditions).unwrap()
        };
        condition.replace("$t", &self.sql_name())
    }
}
