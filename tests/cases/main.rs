//! What users of such feeds have suffered, one test each, named by the case's id: `tests/cases.toml`
//! says which test holds which case. A module per group.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod a_row_security;
mod b_tokens;
mod c_filters;
mod d_deletes;
mod d_old_rows;
mod e_payload;
mod f_notify;
mod g_tables;
mod i_wire;
mod n_edge;
mod n_operability;
