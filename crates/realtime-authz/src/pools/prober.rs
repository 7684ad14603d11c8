//! What the login is that judges: it must be able to become the project's roles, and nothing more.
//!
//! Must never let a login serve that row security does not bind, of itself or by a membership:
//! its sessions run what policies' authors wrote.

use tokio_postgres::Client;

/// What a prober must not be. Names the login's fault and its cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProberFault {
    /// Row security does not bind it.
    #[error("prober login: is a superuser; use a login that is not (ALTER ROLE … NOSUPERUSER)")]
    Superuser,
    /// Row security does not bind it.
    #[error("prober login: has BYPASSRLS; use a login that has not (ALTER ROLE … NOBYPASSRLS)")]
    BypassesRowSecurity,
    /// It could become a role that row security does not bind.
    #[error(
        "prober login: is a member of service_role or of another role with SUPERUSER or BYPASSRLS; revoke that membership"
    )]
    MemberOfExempt,
    /// An owner is not bound by its own tables' row security.
    #[error("prober login: owns objects; give them to another role (REASSIGN OWNED BY …)")]
    Owner,
}

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

/// Looks at the login of a session.
pub(super) async fn inspect(client: &Client) -> Result<(), super::PoolError> {
    let row = client.query_typed(INSPECT, &[]).await?;
    let faults = [
        ProberFault::Superuser,
        ProberFault::BypassesRowSecurity,
        ProberFault::MemberOfExempt,
        ProberFault::Owner,
    ];
    // No row: nothing is known of the login, which is no better.
    let Some(row) = row.first() else {
        return Err(ProberFault::MemberOfExempt.into());
    };
    for (at, fault) in faults.into_iter().enumerate() {
        if row.get(at) {
            return Err(fault.into());
        }
    }
    Ok(())
}
