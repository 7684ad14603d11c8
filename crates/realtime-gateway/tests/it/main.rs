//! A gateway on the in-process bus, with a scripted authz and listener: for what the real ones
//! cannot be made to do at will, such as to answer late, in another order, or not at all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed test is what these are for"
)]

mod connect;
mod delivery;
mod disconnect;
mod feed;
mod harness;
mod hostile;
mod keys;
mod loss;
mod management;
mod sessions;
