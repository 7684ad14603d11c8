//! Servers that cannot carry the feed are refused with a sentence that says what to do.

use realtime_listener::ListenerConfig;
use realtime_listener::provision::{ProvisionOptions, provision};
use realtime_listener::session::{Opened, SessionError, open};
use realtime_node::postgres::Dsn;
use realtime_node::tasks::Tasks;
use realtime_testkit::pgbouncer::PgBouncer;

use crate::support::{DATABASE, Fixture, PASSWORD};

const LISTENER: &str = "anvilbase_realtime_listener";

/// As a listener opens a project's session while it may hold a second connection for a moment.
async fn opened(dsn: &Dsn) -> Result<Opened, SessionError> {
    open(dsn, "prj-a", &ListenerConfig::default(), true, &Tasks::new()).await
}

#[tokio::test]
async fn a_transaction_pooler_is_refused_with_a_sentence() {
    let fixture = Fixture::start().await;
    let pooler = PgBouncer::start(&fixture.pg, "transaction", LISTENER, PASSWORD).await;
    let dsn = Dsn::parse(&format!(
        "host=127.0.0.1 port={} dbname={DATABASE}",
        pooler.port()
    ))
    .unwrap()
    .with_login(LISTENER, PASSWORD);
    let error = opened(&dsn).await.unwrap_err();
    assert!(matches!(error, SessionError::TransactionPooler), "{error}");
    let said = error.to_string();
    assert!(
        said.starts_with("listener_dsn: ")
            && said.contains("transaction pooler")
            && said.contains("session mode")
            && !said.contains(PASSWORD),
        "{said}"
    );
    // Nothing of the attempt holds the feed.
    assert!(matches!(
        opened(&fixture.listener_dsn()).await,
        Ok(Opened::Taken(_))
    ));
}

#[tokio::test]
async fn a_standby_is_refused_until_it_is_the_primary() {
    let mut fixture = Fixture::start().await;
    let standby = fixture.pg.standby().await;
    let dsn = Dsn::parse(&standby.server.url(LISTENER, PASSWORD, DATABASE)).unwrap();
    let error = opened(&dsn).await.unwrap_err();
    assert!(matches!(error, SessionError::Standby), "{error}");
    let said = error.to_string();
    assert!(
        said.starts_with("listener_dsn: ") && said.contains("the primary"),
        "{said}"
    );
    let mut client = standby.connect(DATABASE).await;
    let error = provision(&mut client, ProvisionOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server is a standby; provision its primary"
    );

    // The primary is as it was, and the standby is one once it is promoted.
    assert!(matches!(
        opened(&fixture.listener_dsn()).await,
        Ok(Opened::Taken(_))
    ));
    let promoted = "select pg_catalog.pg_promote()";
    assert!(client.query_one(promoted, &[]).await.unwrap().get::<_, bool>(0));
    assert!(matches!(opened(&dsn).await, Ok(Opened::Taken(_))));
}
