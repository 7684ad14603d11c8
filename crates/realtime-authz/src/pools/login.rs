//! What a login is that authz works with: the one that judges must be able to become the project's
//! roles, the one that sets tables may call what does it, and neither more than that.
//!
//! Must never let a login serve that row security does not bind, of itself or by a membership, where
//! its sessions run what policies' authors wrote.

use tokio_postgres::{Client, Error};

/// What a login must not be, and the cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginFault {
    /// Nothing binds it.
    #[error("is a superuser; use a login that is not (ALTER ROLE … NOSUPERUSER)")]
    Superuser,
    /// Row security does not bind it.
    #[error("has BYPASSRLS; use a login that has not (ALTER ROLE … NOBYPASSRLS)")]
    BypassesRowSecurity,
    /// It could become a role that row security does not bind.
    #[error(
        "is a member of service_role or of another role with SUPERUSER or BYPASSRLS; revoke that membership"
    )]
    MemberOfExempt,
    /// An owner may do anything with what it owns, and its own tables' row security does not bind it.
    #[error("owns objects; give them to another role (REASSIGN OWNED BY …)")]
    Owner,
    /// The server knows nothing of it.
    #[error("is not among the server's roles")]
    Unknown,
}

impl LoginFault {
    /// What the login that judges must not be: any of it.
    pub const OF_PROBER: &[Self] = &[
        Self::Superuser,
        Self::BypassesRowSecurity,
        Self::MemberOfExempt,
        Self::Owner,
    ];
    /// What the login that works for service_role, and so is its member, must not be.
    pub const OF_SERVICE: &[Self] = &[Self::Superuser, Self::Owner];
}

/// A column for each fault but the last, in the order of [`LoginFault`].
const INSPECT: &str = "select r.rolsuper, r.rolbypassrls, \
       exists ( \
         select from pg_catalog.pg_roles o \
         where o.oid OPERATOR(pg_catalog.<>) r.oid \
           and (o.rolsuper or o.rolbypassrls or o.rolname OPERATOR(pg_catalog.=) 'service_role'::pg_catalog.name) \
           and pg_catalog.pg_has_role(r.oid, o.oid, 'MEMBER') \
       ), \
       exists ( \
         select from pg_catalog.pg_shdepend d \
         where d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_authid'::pg_catalog.regclass::pg_catalog.oid \
           and d.refobjid OPERATOR(pg_catalog.=) r.oid \
           and d.deptype OPERATOR(pg_catalog.=) 'o'::\"char\" \
       ) \
     from pg_catalog.pg_roles r \
     where r.rolname OPERATOR(pg_catalog.=) session_user::pg_catalog.name";

/// The first of these faults that the login of a session has.
pub async fn inspect(client: &Client, faults: &[LoginFault]) -> Result<Option<LoginFault>, Error> {
    let rows = client.query_typed(INSPECT, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(Some(LoginFault::Unknown));
    };
    let has = |fault: &LoginFault| match fault {
        LoginFault::Superuser => row.get(0),
        LoginFault::BypassesRowSecurity => row.get(1),
        LoginFault::MemberOfExempt => row.get(2),
        LoginFault::Owner => row.get(3),
        LoginFault::Unknown => false,
    };
    Ok(faults.iter().copied().find(has))
}
