//! No frame without a verdict, whatever is matched, judged, missing or changed meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;
use realtime_core::change::{Operation, Row};
use realtime_core::claims::Role;
use realtime_core::id::TableRef;
use realtime_core::verdict::{Grant, Readable};
use realtime_core::wire::phoenix::{BindingParams, Ref, Serializer};
use realtime_node::metrics::Metrics;

use super::*;
use crate::feed::prepare::{Share, prepare};
use crate::feed::tables::Tables;
use crate::feed::{Prepared, PreparedBinding, PreparedFilter, SubscriberId, Subscription};
use crate::ids::Interner;
use crate::limits::Limits;
use crate::session::SessionId;
use crate::session::channel::{ChannelKey, ChannelTag};
use crate::session::outbox::{Outbox, OutboxLimits};

fn project() -> ProjectId {
    ProjectId::parse("p").unwrap()
}

/// Lanes whose authz has no replica: every question fails.
fn lanes() -> Lanes {
    let metrics = GatewayMetrics::new(&Metrics::new());
    Lanes::new(project(), Authz::new([]), 8, Duration::from_secs(2), metrics)
}

fn claims(user: u8) -> Claims {
    let role = if user == 0 {
        "service_role"
    } else {
        "authenticated"
    };
    Claims::new(Role::new(role), format!(r#"{{"sub":"{user}"}}"#))
}

fn subscribe(lanes: &mut Lanes, interner: &Interner, channel: u64, user: u8, table: &str) -> Arc<Outbox> {
    let outbox = Arc::new(Outbox::new(OutboxLimits {
        frames_max: 10_000,
        bytes_max: 1 << 30,
    }));
    outbox.open(ChannelKey(channel), 0);
    let params = BindingParams::parse(&format!(r#"{{"schema":"public","table":"{table}"}}"#)).unwrap();
    let ids = interner
        .intern(&project(), std::slice::from_ref(&params))
        .unwrap();
    let bindings = vec![PreparedBinding {
        params,
        filter: PreparedFilter::None,
        selection: None,
        hint: None,
        hint_text: None,
    }];
    let serial = lanes.subscribers.insert(Subscription {
        session: SessionId(channel),
        tag: Arc::new(ChannelTag {
            key: ChannelKey(channel),
            topic: "realtime:room".into(),
            join_ref: Ref::NULL,
            serializer: Serializer::V2,
        }),
        outbox: Arc::clone(&outbox),
        mail: Arc::default(),
        claims: claims(user),
        generation: 0,
        prepared: Prepared {
            ids,
            bindings,
            facts: Position::default(),
            patterns: None,
            table_patterns: None,
        },
    });
    lanes.subscribers.get_mut(serial).unwrap().live = true;
    outbox
}

fn event(id: u64, table: &str) -> Arc<ChangeEvent> {
    Arc::new(ChangeEvent {
        id: id.to_string().into(),
        relid: 1,
        table: TableRef::new("public", table),
        operation: Operation::Insert,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: Some(Row::new(format!(r#"{{"id":{id},"hidden":"marker{id}"}}"#))),
        old: None,
        primary_key: None,
        marker: None,
        position: Position { epoch: 1, seq: id },
    })
}

fn grant(readable: Readable) -> Judgement {
    let verdict = Verdict::Deliver(Grant {
        old_visible: false,
        whole_deletes: false,
        readable,
    });
    Judgement {
        verdict,
        sqlstate: None,
    }
}

async fn frames(outbox: &Outbox) -> Vec<String> {
    if outbox.waiting().0 == 0 {
        return Vec::new();
    }
    let batch = outbox.next(usize::MAX, usize::MAX).await;
    batch.frames.iter().map(|frame| frame.to_string()).collect()
}

/// What authz said of one user about one event.
#[derive(Debug, Clone, Copy)]
enum Said {
    All,
    IdOnly,
    Hidden,
    Late,
    Nothing,
}

fn verdicts(said: &BTreeMap<u8, Said>) -> Verdicts {
    let judgement = |said: &Said| match said {
        Said::All => Some(grant(Readable::All)),
        Said::IdOnly => Some(grant(Readable::Only([Box::from("id")].into()))),
        Said::Hidden => Some(Judgement::drop(DropReason::NotVisible)),
        Said::Late => Some(Judgement::drop(DropReason::Deadline)),
        Said::Nothing => None,
    };
    Verdicts::of_all(
        said.iter()
            .filter_map(|(user, said)| Some((claims(*user).fingerprint(), judgement(said)?))),
    )
}

fn any_said() -> impl Strategy<Value = Said> {
    prop_oneof![
        Just(Said::All),
        Just(Said::IdOnly),
        Just(Said::Hidden),
        Just(Said::Late),
        Just(Said::Nothing)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_frame_without_a_verdict(
        users in proptest::collection::vec(1u8..5, 1..8),
        events in proptest::collection::vec(
            (proptest::collection::btree_map(1u8..5, any_said(), 0..4), 0usize..8, any::<bool>()),
            1..12,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut lanes = lanes();
            let interner = Interner::default();
            let mut current: Vec<u8> = users.clone();
            let outboxes: Vec<Arc<Outbox>> = users
                .iter()
                .enumerate()
                .map(|(channel, user)| subscribe(&mut lanes, &interner, channel as u64, *user, "notes"))
                .collect();
            let mut generation = 0;
            for (id, (said, turncoat, turns)) in events.iter().enumerate() {
                let event = event(id as u64, "notes");
                let matches = lanes.subscribers.matches(&event);
                let matched_as = current.clone();
                // Somebody's token changes between the match and the release.
                let turncoat = turncoat % users.len();
                if *turns {
                    generation += 1;
                    current[turncoat] = current[turncoat] % 4 + 1;
                    let subscriber = SubscriberId {
                        session: SessionId(turncoat as u64),
                        channel: ChannelKey(turncoat as u64),
                    };
                    lanes.subscribers.identify(subscriber, claims(current[turncoat]), generation);
                }
                lanes.release(Item::Event { event, matches, verdicts: verdicts(said), late: None });
                lanes.flush_gaps();
                let lossy = users.iter().enumerate().any(|(channel, _)| {
                    let turned = *turns && channel == turncoat;
                    !turned && matches!(said.get(&matched_as[channel]), None | Some(Said::Late | Said::Nothing))
                });
                for (channel, outbox) in outboxes.iter().enumerate() {
                    let got = frames(outbox).await;
                    let rows: Vec<&String> = got.iter().filter(|f| f.contains("postgres_changes\",{\"ids")).collect();
                    let gaps = got.iter().filter(|f| f.contains("\"code\":\"gap\"")).count();
                    let turned = *turns && channel == turncoat;
                    let said = said.get(&matched_as[channel]).copied().unwrap_or(Said::Nothing);
                    match said {
                        _ if turned => assert!(rows.is_empty() && gaps == 1),
                        Said::All => assert!(rows.len() == 1 && rows[0].contains(&format!("\"marker{id}\""))),
                        Said::IdOnly => assert!(rows.len() == 1 && !rows[0].contains("hidden")),
                        Said::Hidden | Said::Late | Said::Nothing => assert!(rows.is_empty()),
                    }
                    if !turned {
                        assert_eq!(gaps, usize::from(lossy));
                    }
                    assert!(gaps == got.len() - rows.len(), "nothing else is sent");
                }
            }
        });
    }
}

#[tokio::test]
async fn without_an_answer_nothing_is_encoded_and_other_tables_hear_nothing() {
    let mut lanes = lanes();
    let interner = Interner::default();
    let matched = subscribe(&mut lanes, &interner, 1, 1, "notes");
    let elsewhere = subscribe(&mut lanes, &interner, 2, 1, "other");
    let service = subscribe(&mut lanes, &interner, 3, 0, "notes");
    lanes.route(&event(1, "notes"), Position::default());
    assert!(frames(&service).await[0].contains("marker1"));
    let item = lanes.next().await;
    lanes.release(item);
    lanes.flush_gaps();
    let told = frames(&matched).await;
    assert!(told.len() == 1 && told[0].contains("authz_unavailable") && !told[0].contains("marker"));
    assert!(frames(&elsewhere).await.is_empty() && frames(&service).await.is_empty());
}

#[tokio::test]
async fn gaps_keep_their_place_among_events_that_wait() {
    let mut lanes = lanes();
    let interner = Interner::default();
    let outbox = subscribe(&mut lanes, &interner, 1, 1, "notes");
    // Two events in the gate with a hole between them; what was lost stands before the second.
    lanes.route(&event(1, "notes"), Position::default());
    lanes.lose(Scope::All, GapReason::FeedInterrupted);
    lanes.route(&event(4, "notes"), Position::default());
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(match lanes.next().await {
            Item::Event { event, .. } => event.id.to_string(),
            Item::Gap(scope, reason) => {
                lanes.release(Item::Gap(scope, reason));
                reason.as_str().to_owned()
            }
        });
    }
    assert_eq!(order, ["1", "feed_interrupted", "4"]);
    lanes.flush_gaps();
    assert!(frames(&outbox).await[0].contains("feed_interrupted"));
}

#[tokio::test]
async fn losses_without_a_delivery_between_them_are_one_notice() {
    let mut lanes = lanes();
    let outbox = subscribe(&mut lanes, &Interner::default(), 1, 1, "notes");
    for id in 1..=20 {
        lanes.route(&event(id, "notes"), Position::default());
        let item = lanes.next().await;
        lanes.release(item);
    }
    assert!(lanes.gap_due().is_some());
    lanes.flush_gaps();
    assert_eq!(frames(&outbox).await.len(), 1);
    assert!(lanes.gap_due().is_none());
}

#[tokio::test]
async fn a_look_up_without_authz_is_no_facts() {
    let tables = Tables::new(Authz::new([]));
    let params = BindingParams::parse(r#"{"schema":"public","table":"notes"}"#).unwrap();
    let prepared = prepare(
        &tables,
        &Share::new(&Limits::defaults()),
        &Limits::defaults(),
        &Interner::default(),
        &project(),
        &claims(1),
        &[params],
    )
    .await;
    assert!(prepared.unwrap_err().is_passing());
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_judged_is_one_hole_and_what_comes_then_is_judged_in_time() {
    let mut lanes = lanes();
    let outbox = subscribe(&mut lanes, &Interner::default(), 1, 1, "notes");
    // Whatever is being judged takes for ever.
    let in_flight = Arc::clone(&lanes.in_flight);
    let _judging = in_flight.acquire_many(IN_FLIGHT_MAX as u32).await.unwrap();
    let began = Instant::now();
    for id in 1..=5 {
        lanes.route(&event(id, "notes"), Position::default());
    }
    for id in 1..=5 {
        let item = lanes.next().await;
        assert!(matches!(item, Item::Event { late: Some(_), .. }));
        lanes.release(item);
        if id == 1 {
            // Comes while the others that gave up are still to leave the gate.
            lanes.route(&event(6, "notes"), Position::default());
        }
    }
    // All of them gave up with the first, and early enough for a verdict.
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    lanes.flush_gaps();
    let told = frames(&outbox).await;
    assert!(told.len() == 1 && told[0].contains("deadline"), "{told:?}");

    let item = lanes.next().await;
    assert!(
        matches!(item, Item::Event { late: None, .. }),
        "it is asked about"
    );
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}
