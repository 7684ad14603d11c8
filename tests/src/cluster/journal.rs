//! What was committed, what a subscriber saw, and whether the one accounts for the other.
//!
//! Must never take a hole for granted: a change that is missing counts as announced only where a
//! notice came after the last change that was seen and before the next one.

use std::collections::HashMap;

/// What happened to a row of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A new row.
    Insert,
    /// A changed one.
    Update,
    /// A removed one.
    Delete,
}

/// One committed change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Who wrote it; a writer's changes are in commit order.
    pub writer: usize,
    /// What it was.
    pub kind: Kind,
    /// The row.
    pub id: i64,
    /// Of an insert or update: the row's `seq` after it, which rises with each of the writer's changes.
    pub seq: i64,
    /// Which user may see the row.
    pub owner: usize,
}

/// One thing that a subscriber saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A change; `seq` and `owner` are those of the row that was shown, 0 of a deletion.
    Change {
        /// What it was.
        kind: Kind,
        /// The row.
        id: i64,
        /// The row's `seq`.
        seq: i64,
    },
    /// It was told, or knows by itself, that changes may be missing here.
    Hole(String),
}

/// Who subscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Sees all rows.
    Service,
    /// Sees its own rows, and of every deleted row the key.
    User(usize),
}

/// What became of the changes that one subscriber was to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Changes that it was to see.
    pub expected: usize,
    /// Changes that it saw.
    pub delivered: usize,
    /// Changes that it did not see, with a notice at their place.
    pub announced: usize,
    /// Notices.
    pub holes: usize,
    /// What must not be: rows that it may not see, duplicates, wrong order, silent holes.
    pub wrong: Vec<String>,
}

impl Reader {
    fn expects(self, change: &Change) -> bool {
        match self {
            Self::Service => true,
            Self::User(user) => change.kind == Kind::Delete || change.owner == user,
        }
    }
}

/// Holds what a subscriber saw against what was committed. `changes` is each writer's, in its order.
pub fn account(changes: &[Vec<Change>], reader: Reader, seen: &[Seen]) -> Account {
    let expected: Vec<Vec<&Change>> = changes
        .iter()
        .map(|one| one.iter().filter(|change| reader.expects(change)).collect())
        .collect();
    let mut places = HashMap::new();
    for (writer, list) in expected.iter().enumerate() {
        for (at, change) in list.iter().enumerate() {
            let seq = if change.kind == Kind::Delete {
                0
            } else {
                change.seq
            };
            places.insert((change.kind, change.id, seq), (writer, at));
        }
    }
    let mut account = Account {
        expected: expected.iter().map(Vec::len).sum(),
        ..Account::default()
    };
    let mut next = vec![0; expected.len()];
    let mut told = vec![false; expected.len()];
    for item in seen {
        match item {
            Seen::Hole(_) => {
                account.holes += 1;
                told.fill(true);
            }
            Seen::Change { kind, id, seq } => {
                let Some(&(writer, at)) = places.get(&(*kind, *id, *seq)) else {
                    account.wrong.push(format!("not to be seen: {item:?}"));
                    continue;
                };
                if at < next[writer] {
                    account.wrong.push(format!("twice, or out of order: {item:?}"));
                    continue;
                }
                account.missing(
                    at - next[writer],
                    told[writer],
                    writer,
                    &format!("before {item:?}"),
                );
                account.delivered += 1;
                next[writer] = at + 1;
                told[writer] = false;
            }
        }
    }
    for (writer, list) in expected.iter().enumerate() {
        account.missing(list.len() - next[writer], told[writer], writer, "at the end");
    }
    account
}

impl Account {
    fn missing(&mut self, count: usize, told: bool, writer: usize, place: &str) {
        if count == 0 {
            return;
        }
        if told {
            self.announced += count;
        } else {
            self.wrong.push(format!(
                "{count} changes of writer {writer} are missing without notice {place}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: Kind, id: i64, seq: i64, owner: usize) -> Change {
        Change {
            writer: 0,
            kind,
            id,
            seq,
            owner,
        }
    }

    fn seen(kind: Kind, id: i64, seq: i64) -> Seen {
        Seen::Change { kind, id, seq }
    }

    #[test]
    fn what_is_missing_must_be_told_at_its_place() {
        let changes = [(1..=5).map(|n| change(Kind::Insert, n, n, 0)).collect()];
        let of = |list: &[Seen]| account(&changes, Reader::User(0), list);
        let insert = |n| seen(Kind::Insert, n, n);
        let hole = || Seen::Hole("gap".to_owned());

        let whole = of(&(1..=5).map(insert).collect::<Vec<_>>());
        assert_eq!((whole.delivered, whole.announced, whole.wrong.len()), (5, 0, 0));
        let told = of(&[insert(1), hole(), insert(4), insert(5)]);
        assert_eq!((told.delivered, told.announced, told.wrong.len()), (3, 2, 0));
        // Too early, too late, and not at all.
        for list in [
            vec![hole(), insert(1), insert(4), insert(5)],
            vec![insert(1), insert(4), hole(), insert(5)],
            vec![insert(1), insert(2)],
        ] {
            assert_eq!(of(&list).wrong.len(), 1, "{list:?}");
        }
        assert_eq!(of(&[insert(1), insert(2), hole()]).announced, 3);
    }

    #[test]
    fn what_must_not_be_seen_is_found() {
        let changes = [vec![
            change(Kind::Insert, 1, 1, 0),
            change(Kind::Insert, 2, 2, 1),
            change(Kind::Update, 1, 3, 0),
            change(Kind::Delete, 2, 4, 1),
        ]];
        let good = [
            seen(Kind::Insert, 1, 1),
            seen(Kind::Update, 1, 3),
            seen(Kind::Delete, 2, 0),
        ];
        assert!(account(&changes, Reader::User(0), &good).wrong.is_empty());
        for bad in [
            seen(Kind::Insert, 2, 2),
            seen(Kind::Insert, 1, 1),
            seen(Kind::Update, 1, 9),
        ] {
            let list: Vec<_> = good.iter().cloned().chain([bad.clone()]).collect();
            assert_eq!(
                account(&changes, Reader::User(0), &list).wrong.len(),
                1,
                "{bad:?}"
            );
        }
        assert_eq!(account(&changes, Reader::Service, &good).wrong.len(), 1);
    }
}
