//! What goes wrong in a cluster, done to the real processes.

use std::time::Duration;

use super::Cluster;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The listener that holds the feed is killed, and comes back.
    KillListener,
    /// An authz replica is killed, and comes back.
    KillAuthz,
    /// A gateway is killed, and comes back.
    KillGateway,
    /// The listener that holds the feed stands still for so many seconds.
    StallListener(u64),
    /// All authz replicas stand still for so many seconds.
    StallAuthz(u64),
    /// A gateway stands still for so many seconds.
    StallGateway(u64),
    /// Every process is told to end and started again, one after the other.
    Roll,
    /// NATS is killed and started again, so many times.
    RestartNats(u32),
    /// NATS stands still for so many seconds.
    StallNats(u64),
    /// The database server is shut down and started again.
    RestartPostgres,
    /// The feed's database session is ended.
    EndSession,
    /// No policy answers for so many seconds: every query connection is taken.
    HangPolicies(u64),
}

impl Fault {
    /// One at random, of those that a long run injects.
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..12) {
            0 => Self::KillListener,
            1 => Self::KillAuthz,
            2 => Self::KillGateway,
            3 => Self::StallListener(rng.u64(1..40)),
            4 => Self::StallAuthz(rng.u64(1..20)),
            5 => Self::StallGateway(rng.u64(1..20)),
            6 => Self::Roll,
            7 => Self::RestartNats(rng.u32(1..5)),
            8 => Self::StallNats(rng.u64(1..90)),
            9 => Self::RestartPostgres,
            10 => Self::EndSession,
            _ => Self::HangPolicies(rng.u64(1..10)),
        }
    }
}

/// Does it, and returns when its cause is gone; what follows from it may last.
pub async fn inject(cluster: &mut Cluster, fault: Fault) {
    match fault {
        Fault::KillListener => {
            let n = cluster.holder("dev").await.unwrap_or_default();
            kill(&mut cluster.listeners[n]).await;
        }
        Fault::KillAuthz => kill(&mut cluster.authz[0]).await,
        Fault::KillGateway => kill(&mut cluster.gateways[0]).await,
        Fault::StallListener(seconds) => {
            let n = cluster.holder("dev").await.unwrap_or_default();
            stall(&[&cluster.listeners[n]], seconds).await;
        }
        Fault::StallAuthz(seconds) => stall(&cluster.authz.iter().collect::<Vec<_>>(), seconds).await,
        Fault::StallGateway(seconds) => stall(&[&cluster.gateways[0]], seconds).await,
        Fault::Roll => {
            for service in cluster.services() {
                service.terminate().await;
                service.spawn();
                service.wait_ready().await;
            }
        }
        Fault::RestartNats(times) => {
            for _ in 0..times {
                cluster.nats.kill();
                cluster.nats.resume().await;
                wait(fastrand::u64(100..700)).await;
            }
        }
        Fault::StallNats(seconds) => {
            cluster.nats.signal("STOP");
            wait(seconds * 1_000).await;
            cluster.nats.signal("CONT");
        }
        Fault::RestartPostgres => cluster.postgres.server.restart(false).await.unwrap(),
        Fault::EndSession => {
            let sql = cluster.postgres.connect("postgres").await;
            sql.batch_execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'anvilbase_realtime_listener'",
            )
            .await
            .unwrap();
        }
        Fault::HangPolicies(seconds) => {
            let sql = cluster.postgres.connect("postgres").await;
            sql.batch_execute("update private.switch set hang = true")
                .await
                .unwrap();
            wait(seconds * 1_000).await;
            sql.batch_execute("update private.switch set hang = false")
                .await
                .unwrap();
        }
    }
}

async fn kill(service: &mut super::Service) {
    service.kill();
    // How long a machine takes to notice and start it again.
    wait(fastrand::u64(200..1_500)).await;
    service.spawn();
    service.wait_ready().await;
}

async fn stall(services: &[&super::Service], seconds: u64) {
    for service in services {
        service.process().signal("STOP");
    }
    wait(seconds * 1_000).await;
    for service in services {
        service.process().signal("CONT");
    }
}

/// How long a fault lasts is its nature, not a wait for something.
async fn wait(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
