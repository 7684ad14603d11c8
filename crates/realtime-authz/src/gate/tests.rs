use super::*;
use crate::tables::fixture::{event, notes, reference};

const OPERATIONS: [Operation; 3] = [Operation::Insert, Operation::Update, Operation::Delete];

fn drop(reason: DropReason) -> Step {
    Step::Settled(Verdict::Drop(reason))
}

fn grant(old_visible: bool, readable: Readable) -> Verdict {
    Verdict::Deliver(Grant {
        old_visible,
        whole_deletes: false,
        readable,
    })
}

fn only(columns: &[&str]) -> Readable {
    Readable::Only(columns.iter().map(|name| Box::from(*name)).collect())
}

/// Breaks a table in every way that comes later in the order, to show which comes first.
#[test]
fn the_order_of_reasons() {
    type Break = fn(&mut Table);
    let breaks: [(Break, DropReason); 3] = [
        (|table| table.access.rls_active = false, DropReason::RlsDisabled),
        (|table| table.access.select = false, DropReason::NoPrivilege),
        (|table| table.policy.condition = None, DropReason::NotVisible),
    ];
    for first in 0..breaks.len() {
        let mut table = notes();
        for (make, _) in &breaks[first..] {
            make(&mut table);
        }
        assert_eq!(
            first_step(&table, &event(Operation::Insert)),
            drop(breaks[first].1)
        );
    }
}

#[test]
fn row_security_that_is_off_needs_a_table_that_is_public_on_purpose() {
    for operation in OPERATIONS {
        let mut table = notes();
        table.access.rls_active = false;
        assert_eq!(
            first_step(&table, &event(operation)),
            drop(DropReason::RlsDisabled)
        );
        table.settings.realtime_public = true;
        let old = operation == Operation::Update;
        assert_eq!(
            first_step(&table, &event(operation)),
            Step::Settled(grant(old, Readable::All))
        );
        table.access.schema_usage = false;
        assert_eq!(
            first_step(&table, &event(operation)),
            drop(DropReason::NoPrivilege)
        );
    }
}

#[test]
fn a_public_flag_does_not_open_a_table_under_row_security() {
    let mut table = notes();
    table.settings.realtime_public = true;
    assert_eq!(first_step(&table, &event(Operation::Insert)), Step::Images);
}

#[test]
fn deletes_go_by_their_own_rules() {
    let mut table = notes();
    assert_eq!(
        first_step(&table, &event(Operation::Delete)),
        Step::Settled(grant(false, Readable::All))
    );
    // Nobody can be asked about a row that is gone, so no policy counts.
    table.policy.condition = None;
    assert_eq!(
        first_step(&table, &event(Operation::Delete)),
        Step::Settled(grant(false, Readable::All))
    );
    table.settings.delete_events = false;
    assert_eq!(
        first_step(&table, &event(Operation::Delete)),
        drop(DropReason::DeletesWithheld)
    );
    assert_eq!(
        first_step(&table, &event(Operation::Update)),
        drop(DropReason::NotVisible)
    );
}

#[test]
fn references_need_a_key_whatever_the_table() {
    for operation in OPERATIONS {
        for public in [false, true] {
            let mut table = notes();
            table.access.rls_active = !public;
            table.settings.realtime_public = public;
            let mut keyless = reference(operation);
            keyless.primary_key = Some(Box::default());
            assert_eq!(first_step(&table, &keyless), drop(DropReason::NoKey));
            // The key itself was too big.
            let mut empty = reference(operation);
            for image in [&mut empty.new, &mut empty.old] {
                *image = image.take().map(|_| Row::new("{}"));
            }
            assert_eq!(first_step(&table, &empty), drop(DropReason::NoKey));
        }
    }
    assert_eq!(first_step(&notes(), &reference(Operation::Insert)), Step::Key);
    assert_eq!(first_step(&notes(), &reference(Operation::Update)), Step::Key);
    assert_eq!(
        first_step(&notes(), &reference(Operation::Delete)),
        Step::Settled(grant(false, Readable::All))
    );
}

#[test]
fn a_policy_over_system_columns_asks_by_key() {
    let mut table = notes();
    table.policy.reads.system = true;
    assert_eq!(first_step(&table, &event(Operation::Insert)), Step::Key);
    table.key = Box::default();
    assert_eq!(
        first_step(&table, &event(Operation::Insert)),
        drop(DropReason::NoKey)
    );
}

#[test]
fn new_decides_and_old_follows() {
    let table = notes();
    let sight = |new, old| Sight { new, old };
    let hidden = Verdict::Drop(DropReason::NotVisible);
    for old in [false, true] {
        assert_eq!(
            settle(&table, &event(Operation::Update), sight(false, old)),
            hidden
        );
        assert_eq!(
            settle(&table, &event(Operation::Update), sight(true, old)),
            grant(old, Readable::All)
        );
        // Only an UPDATE has a row before.
        assert_eq!(
            settle(&table, &event(Operation::Insert), sight(true, old)),
            grant(false, Readable::All)
        );
    }
}

#[test]
fn an_empty_list_of_columns_is_not_all_of_them() {
    let mut table = notes();
    for column in &mut table.columns {
        column.facts.readable = false;
    }
    let sight = Sight {
        new: true,
        old: false,
    };
    assert_eq!(
        settle(&table, &event(Operation::Insert), sight),
        grant(false, only(&[]))
    );
    table.columns[0].facts.readable = true;
    assert_eq!(
        settle(&table, &event(Operation::Insert), sight),
        grant(false, only(&["id"]))
    );
}

#[test]
fn an_image_with_a_column_that_is_gone_is_never_all_readable() {
    let table = notes();
    let sight = Sight { new: true, old: true };
    for (new, old) in [
        (r#"{"id":1,"gone":2}"#, r#"{"id":1}"#),
        (r#"{"id":1}"#, r#"{"id":1,"gone":2}"#),
    ] {
        let update = ChangeEvent {
            new: Some(Row::new(new)),
            old: Some(Row::new(old)),
            ..event(Operation::Update)
        };
        assert_eq!(
            settle(&table, &update, sight),
            grant(true, only(&["id", "owner", "meta"]))
        );
    }
    let broken = ChangeEvent {
        new: Some(Row::new("{")),
        ..event(Operation::Insert)
    };
    assert_eq!(
        settle(&table, &broken, sight),
        Verdict::Drop(DropReason::ImageUnreadable)
    );
}
