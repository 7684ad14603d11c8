//! authz against real PostgreSQL, provisioned with the feed's own SQL, judging the events that
//! its triggers really emitted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod describe;
mod facts;
mod fixture;
mod forbidden;
mod guards;
mod hostile;
mod images;
mod intruders;
mod keys;
mod pools;
mod roles;
mod serving;
mod settings;
mod speed;
