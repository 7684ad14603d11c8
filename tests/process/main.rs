//! The built binaries under faults and continuous writes: whatever happens, no row reaches the
//! wrong user, nothing comes twice or out of order, **every missing change is covered by a
//! notice**, and changes flow again within 15 s.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod placement;

use std::time::Duration;

use realtime_tests::cluster::Options;
use realtime_tests::cluster::faults::Fault;
use realtime_tests::cluster::run::Run;

const PACE: Duration = Duration::from_millis(8);

async fn suffers(faults: &[Fault]) {
    let mut run = Run::start(Options::default(), 2, PACE).await;
    for fault in faults {
        run.suffer(*fault).await;
    }
    run.finish().await.assert_accounted();
}

#[tokio::test]
async fn killed_services_lose_nothing_unsaid() {
    use Fault::{KillAuthz, KillGateway, KillListener};
    suffers(&[
        KillListener,
        KillAuthz,
        KillGateway,
        KillListener,
        KillGateway,
        KillAuthz,
    ])
    .await;
}

#[tokio::test]
async fn services_that_stand_still_lose_nothing_unsaid() {
    use Fault::{StallAuthz, StallGateway, StallListener};
    suffers(&[
        StallListener(4),
        StallAuthz(4),
        StallGateway(4),
        StallListener(17),
    ])
    .await;
}

#[tokio::test]
async fn a_rollout_loses_nothing_unsaid() {
    suffers(&[Fault::Roll]).await;
}

#[tokio::test]
async fn a_bus_that_comes_and_goes_loses_nothing_unsaid() {
    suffers(&[
        Fault::RestartNats(20),
        Fault::StallNats(12),
        Fault::RestartNats(1),
    ])
    .await;
}

#[tokio::test]
async fn a_database_that_comes_and_goes_loses_nothing_unsaid() {
    use Fault::{EndSession, RestartPostgres};
    suffers(&[RestartPostgres, EndSession, EndSession, RestartPostgres]).await;
}

#[tokio::test]
async fn policies_that_hang_lose_nothing_unsaid() {
    suffers(&[Fault::HangPolicies(4), Fault::HangPolicies(1)]).await;
}
