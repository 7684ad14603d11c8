//! Random statements, transactions and blocks. `@@` stands for the schema that they write to.

use super::Dice;
use super::values::{COLUMNS, quoted};

/// What is run at once on a session.
#[derive(Debug, Clone)]
pub enum Batch {
    /// Statements in one message of the simple protocol.
    Sql(String),
    /// `COPY … FROM STDIN` and its data.
    Copy(String, String),
}

impl Batch {
    /// The same for one schema.
    pub fn on(&self, schema: &str) -> Self {
        match self {
            Self::Sql(sql) => Self::Sql(sql.replace("@@", schema)),
            Self::Copy(sql, data) => Self::Copy(sql.replace("@@", schema), data.clone()),
        }
    }
}

impl Dice {
    /// Anything that a session may do.
    pub fn batch(&mut self) -> Batch {
        if self.chance(12) {
            return self.copy();
        }
        let sql = match self.below(20) {
            0..=8 => self.statement(),
            9 | 10 => self.several(";\n"),
            11 | 12 => self.transaction(),
            13 | 14 => self.block(),
            15 => format!("select * from @@.write_docs({})", self.id()),
            16 => format!("call @@.steps({})", self.id()),
            17 => self.prepared(),
            18 => self.cursor(),
            _ => self.shape(),
        };
        Batch::Sql(sql)
    }

    fn id(&mut self) -> usize {
        self.below(12)
    }

    fn ids(&mut self) -> String {
        let (first, count) = (self.id(), 1 + self.below(4));
        format!("between {first} and {}", first + count)
    }

    fn several(&mut self, between: &str) -> String {
        let count = 2 + self.below(3);
        let all: Vec<_> = (0..count).map(|_| self.statement()).collect();
        all.join(between)
    }

    fn transaction(&mut self) -> String {
        let (a, b, c) = (self.several(";\n"), self.statement(), self.statement());
        let end = if self.chance(5) { "rollback" } else { "commit" };
        match self.below(4) {
            0 => format!("begin;\n{a};\nsavepoint s;\n{b};\nrollback to s;\n{c};\n{end}"),
            1 => format!("begin;\nsavepoint s;\n{a};\nrelease s;\nsavepoint t;\n{b};\n{end}"),
            2 => format!(
                "begin;\nset constraints all deferred;\n{b};\n{a};\nset constraints all immediate;\n{end}"
            ),
            _ => format!(
                "begin isolation level serializable;\n{a};\nset local timezone = 'Asia/Tokyo';\n{b};\n{end}"
            ),
        }
    }

    /// A block of PL/pgSQL whose inner blocks are undone, or not.
    fn block(&mut self) -> String {
        let (a, b, c) = (self.dml(), self.dml(), self.dml());
        match self.below(3) {
            0 => format!(
                "do $do$ begin\n{a};\nbegin\n{b};\nraise exception 'undone';\nexception when others then\n{c};\nend;\nend $do$"
            ),
            1 => format!(
                "do $do$ begin\nbegin\n{a};\n{b};\nexception when others then null;\nend;\n{c};\nend $do$"
            ),
            _ => format!(
                "do $do$ begin\nfor i in 1..{} loop\nbegin\ninsert into @@.docs (id, body) values (i, 'loop');\n\
                 exception when unique_violation then update @@.docs set n = n + 1 where id = i;\nend;\nend loop;\n{a};\nend $do$",
                1 + self.below(6)
            ),
        }
    }

    fn prepared(&mut self) -> String {
        let body = quoted(&self.odd_text());
        let (a, b) = (self.id(), self.id());
        format!(
            "prepare q (int, text) as insert into @@.docs (id, body) values ($1, $2) on conflict (id) do update set \
             body = excluded.body returning id, n;\nexecute q ({a}, {body});\nexecute q ({b}, {})",
            self.sized_text()
        )
    }

    fn cursor(&mut self) -> String {
        format!(
            "begin;\ndeclare c cursor for select * from @@.docs where id {} order by id for update;\nfetch c;\n\
             update @@.docs set n = n + 10 where current of c;\nfetch c;\ndelete from @@.docs where current of c;\ncommit",
            self.ids()
        )
    }

    /// Changes of a table's shape around its writes.
    fn shape(&mut self) -> String {
        let (a, b) = (self.on_docs(), self.on_docs());
        match self.below(4) {
            0 => format!(
                "begin;\nalter table @@.docs add column extra int default 7;\n{a};\n{b};\nalter table @@.docs drop column extra;\ncommit"
            ),
            1 => format!("begin;\nalter table @@.docs rename column note to remark;\n{a};\nrollback;\n{b}"),
            2 => "truncate @@.docs".to_owned(),
            _ => "begin;\ntruncate @@.parent cascade;\ninsert into @@.parent values (1, 'again');\ncommit"
                .to_owned(),
        }
    }

    fn copy(&mut self) -> Batch {
        let mut data = String::new();
        for _ in 0..1 + self.below(5) {
            let text = self.odd_text();
            let escaped = text
                .replace('\\', "\\\\")
                .replace('\n', "\\n")
                .replace('\t', "\\t")
                .replace('\r', "\\r");
            data.push_str(&format!("{}\t{escaped}\n", self.below(40)));
        }
        if self.chance(6) {
            data.push_str("not a number\tx\n");
        }
        let table = ["docs (id, body)", "keyless", "unlogged", "lively (id, v)"][self.below(4)];
        Batch::Copy(format!("copy @@.{table} from stdin"), data)
    }

    /// One statement.
    fn statement(&mut self) -> String {
        match self.below(30) {
            0 => format!(
                "merge into @@.docs d using (values ({}, 'a'), ({}, 'b')) s(id, body) on d.id = s.id \
                 when matched and d.n > 2 then delete when matched then update set n = d.n + 1 \
                 when not matched then insert (id, body) values (s.id, s.body)",
                self.id(),
                20 + self.id()
            ),
            1 => format!(
                "with gone as (delete from @@.docs where id {} returning id, body), \
                 made as (insert into @@.keyless select id, pg_catalog.left(body, 50) from gone returning a), \
                 more as (update @@.unlogged set v = 'cte' where id {} returning id) \
                 select (select pg_catalog.count(*) from made), (select pg_catalog.count(*) from more)",
                self.ids(),
                self.ids()
            ),
            2 => format!(
                "truncate @@.{}",
                ["keyless", "unlogged", "part", "part_1", "wide", "every"][self.below(6)]
            ),
            _ => self.dml(),
        }
    }

    /// One statement that PL/pgSQL takes as it is.
    fn dml(&mut self) -> String {
        match self.below(16) {
            0..=3 => self.on_every(),
            4..=6 => self.on_docs(),
            7 => self.on_part(),
            8 | 9 => self.on_family(),
            10 => self.on_lively(),
            11 => self.on_wide(),
            12 => self.on_keys(),
            13 => self.on_checked(),
            14 => self.on_loud(),
            _ => self.on_others(),
        }
    }

    fn on_every(&mut self) -> String {
        let mut columns = vec![("id", "id")];
        for _ in 0..self.below(12) {
            let column = COLUMNS[self.below(COLUMNS.len())];
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        match self.below(5) {
            0 => format!("delete from @@.every where id {}", self.ids()),
            1 if columns.len() > 1 => {
                let sets: Vec<_> = columns[1..]
                    .iter()
                    .map(|(name, kind)| format!("{name} = {}", self.constant(kind)))
                    .collect();
                format!("update @@.every set {} where id {}", sets.join(", "), self.ids())
            }
            2 => format!("update @@.every set id = id where id {}", self.ids()),
            _ => {
                let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
                let rows: Vec<_> = (0..1 + self.below(3)).map(|_| self.row(&columns)).collect();
                let conflict = [
                    "",
                    " on conflict do nothing",
                    " on conflict (id) do update set id = excluded.id",
                ];
                format!(
                    "insert into @@.every ({}) values {}{}",
                    names.join(", "),
                    rows.join(", "),
                    conflict[self.below(3)]
                )
            }
        }
    }

    fn row(&mut self, columns: &[(&str, &str)]) -> String {
        let id = if self.chance(20) {
            "9223372036854775807".to_owned()
        } else {
            self.id().to_string()
        };
        let values: Vec<_> = columns[1..].iter().map(|(_, kind)| self.constant(kind)).collect();
        format!("({})", [vec![id], values].concat().join(", "))
    }

    fn on_docs(&mut self) -> String {
        let (id, ids, text) = (self.id(), self.ids(), self.sized_text());
        match self.below(8) {
            0 | 1 => format!(
                "insert into @@.docs (id, body) values ({id}, {text}) on conflict (id) do update set body = excluded.body"
            ),
            2 => format!("insert into @@.docs (body) values ({text}), (null)"),
            3 => format!("insert into @@.docs (id, n) values ({id}, 7), ({}, 7)", id + 1),
            4 => format!("update @@.docs set body = {text} where id {ids}"),
            5 => format!(
                "update @@.docs set n = n + 1, note = {} where id {ids}",
                quoted(&self.odd_text())
            ),
            6 => format!("delete from @@.docs where id {ids}"),
            _ => format!("insert into @@.seen values ({}, 'view', {})", 30 + id, 995 + id),
        }
    }

    fn on_part(&mut self) -> String {
        let (id, k) = (self.id(), self.below(25));
        match self.below(5) {
            0 | 1 => format!(
                "insert into @@.part values ({id}, {k}, 'v'), ({}, {}, {})",
                id + 1,
                self.below(20),
                self.sized_text()
            ),
            // To another partition: a DELETE and an INSERT.
            2 => format!("update @@.part set k = {k} where id {}", self.ids()),
            3 => format!(
                "insert into @@.part_0 values ({id}, {k}, 'leaf') on conflict (id, k) do update set v = excluded.v || '+'"
            ),
            _ => format!("delete from @@.part where id {}", self.ids()),
        }
    }

    fn on_family(&mut self) -> String {
        let (id, other) = (self.id(), self.id());
        match self.below(9) {
            0 | 1 => format!("insert into @@.parent values ({id}, 'n{other}') on conflict do nothing"),
            2 => format!("insert into @@.child values ({id}, {other}, 'c')"),
            3 => format!("insert into @@.orphan values ({id}, {other})"),
            4 => format!("insert into @@.strict values ({id}, {other})"),
            5 => format!("update @@.parent set id = {} where id = {id}", 20 + other),
            6 => format!("delete from @@.parent where id {}", self.ids()),
            7 => format!("delete from @@.strict where id {}", self.ids()),
            _ => format!("update @@.child set parent_id = {other} where id = {id}"),
        }
    }

    fn on_lively(&mut self) -> String {
        let (id, v) = (
            self.id(),
            ["a", "skip", "b", "é", "boom"][self.below(if self.ascii_only { 3 } else { 5 })],
        );
        match self.below(4) {
            0 | 1 => format!(
                "insert into @@.lively values ({id}, '{v}', {}), ({}, 'w', 1)",
                self.below(4),
                id + 1
            ),
            2 => format!(
                "update @@.lively set v = '{v}', n = {} where id {}",
                self.below(4),
                self.ids()
            ),
            _ => format!("delete from @@.lively where id {}", self.ids()),
        }
    }

    fn on_wide(&mut self) -> String {
        let id = self.id();
        if self.ascii_only {
            return format!("insert into @@.wide values ({id})");
        }
        let text = quoted(&self.odd_text());
        match self.below(4) {
            0 | 1 => format!(
                "insert into @@.wide (id, \"c 1 é\", \"c 5 é\", \"c 2 é\") values ({id}, {text}, {id}, '2026-01-01') on conflict do nothing"
            ),
            2 => format!(
                "update @@.wide set \"c 1 é\" = {}, \"c 6 é\" = {text} where id {}",
                self.sized_text(),
                self.ids()
            ),
            _ => format!("delete from @@.wide where id {}", self.ids()),
        }
    }

    /// Keys that hardly fit, or do not.
    fn on_keys(&mut self) -> String {
        let key = match self.below(4) {
            0 => "pg_catalog.repeat('k', 2500)".to_owned(),
            // Fits the index, for it compresses, and no event.
            1 => "pg_catalog.repeat('k', 9000)".to_owned(),
            2 => "pg_catalog.repeat(pg_catalog.chr(1), 1300)".to_owned(),
            _ => quoted(&self.odd_text()),
        };
        let (id, text) = (self.id(), self.sized_text());
        match self.below(4) {
            0 | 1 => format!("insert into @@.bigkey values ({key}, {id}, {text}) on conflict do nothing"),
            2 => format!("update @@.bigkey set v = {text} where k2 {}", self.ids()),
            _ => format!("delete from @@.bigkey where k2 {}", self.ids()),
        }
    }

    fn on_checked(&mut self) -> String {
        let (id, v) = (self.id(), self.below(5));
        match self.below(4) {
            0 => format!(
                "insert into @@.checked values ({id}, {v}, {id}, '[{id},{})')",
                id + 2
            ),
            1 => format!(
                "insert into @@.checked values ({id}, 1, {v}, null), ({}, 1, {v}, null)",
                id + 1
            ),
            2 => "update @@.checked set w = w + 1".to_owned(),
            _ => format!("delete from @@.checked where id {}", self.ids()),
        }
    }

    fn on_loud(&mut self) -> String {
        const LOUD: &[&str] = &[
            "fine", "raise", "unique", "divide", "assert", "null", "guc", "path", "commit", "notice", "long",
        ];
        let (id, loud) = (self.id(), LOUD[self.below(LOUD.len())]);
        match self.below(4) {
            0 | 1 => format!(
                "insert into @@.loud values ({id}, '{loud}', 'v'), ({}, 'fine', {})",
                id + 1,
                self.sized_text()
            ),
            2 => format!("update @@.loud set l = '{loud}' where id {}", self.ids()),
            _ => format!("delete from @@.loud where id {}", self.ids()),
        }
    }

    fn on_others(&mut self) -> String {
        let (id, ids, text) = (self.id(), self.ids(), quoted(&self.odd_text()));
        let odd = if self.ascii_only {
            "unlogged"
        } else {
            "\"Odd \"\"é' name\""
        };
        match self.below(13) {
            0 => format!("insert into @@.{odd} values ({id}, {text})"),
            1 => format!("delete from @@.{odd}"),
            2 => format!("insert into @@.keyless values ({id}, {text}), ({id}, {text})"),
            3 => format!("update @@.keyless set b = {} where a = {id}", self.sized_text()),
            4 => format!("delete from @@.keyless where a {ids}"),
            5 => format!("insert into @@.unlogged values ({id}, {text})"),
            6 => format!("insert into @@.kid values ({id}, {text}, 1)"),
            7 => format!("update @@.base set v = {text} where id {ids}"),
            8 => format!(
                "insert into @@.typed values ({id}, {text}, 'ok') on conflict (x) do update set y = excluded.y || '.'"
            ),
            9 => format!("insert into @@.ruled values ({id}, {text})"),
            10 => format!(
                "insert into @@.owned (id, v) values ({id}, {})",
                ["'a'", "'forbidden'"][self.below(2)]
            ),
            11 => format!("update @@.owned set v = {text} where id {ids}"),
            _ => "insert into @@.docs default values".to_owned(),
        }
    }
}
