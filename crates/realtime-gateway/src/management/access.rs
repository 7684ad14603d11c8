//! Who may call the management API, and how often.
//!
//! Must never answer differently to a stranger for a project that exists and for one that does not.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use parking_lot::Mutex;
use realtime_core::code::{ApiCode, Code};
use realtime_core::id::ProjectId;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Refusal;
use crate::Gateway;
use crate::auth::Identity;
use crate::limits::Limits;

/// When a stranger is answered, counted from the call: what it took to find a project out, or to verify by
/// one kind of key or another, does not show.
const STRANGER_ANSWER_AFTER: Duration = Duration::from_millis(25);

/// Calls of one project that are worked on at once.
const PROJECT_CALLS_MAX: usize = 2;

/// Calls of the operator that are worked on at once.
const OPERATOR_CALLS_MAX: usize = 4;

/// Who calls. Proves that the caller may act for the project, and that it was its turn; a call holds it until
/// it is done.
#[derive(Debug)]
pub struct Caller {
    /// The project that the call is for.
    pub project: ProjectId,
    /// What the caller showed, for logs.
    pub kind: CallerKind,
    _places: Places,
}

/// Somebody who was found out, and whose turn it need not be yet: what a call still has to hear is heard first, so that
/// whoever is slow to say it keeps nobody's place.
#[derive(Debug)]
pub struct Known {
    project: ProjectId,
    kind: CallerKind,
}

/// What a caller showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// The operator token.
    Operator,
    /// A token of the project's.
    ServiceRole,
}

impl CallerKind {
    /// Its name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::ServiceRole => "service_role",
        }
    }
}

/// How many calls there are of whom.
pub struct Turns {
    /// Of all projects together; the operator's are not among them.
    all: Arc<Semaphore>,
    per_second: f64,
    callers: Mutex<Callers>,
}

struct Callers {
    /// Only of projects that somebody proved to be of: as many as there are projects.
    projects: FxHashMap<ProjectId, Turn>,
    /// Whoever answers for all projects must be heard while one of them calls as often as it may.
    operator: Turn,
}

struct Turn {
    at_once: Arc<Semaphore>,
    /// Calls that may come at once, refilled over time.
    credit: f64,
    since: Instant,
}

/// A caller's own place, and for a project's one among all of them.
type Places = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Turns {
    /// Nobody has called.
    pub fn new(limits: &Limits) -> Self {
        let per_second = f64::from(limits.management_calls_per_second_max);
        Self {
            all: Arc::new(Semaphore::new(limits.management_calls_max as usize)),
            per_second,
            callers: Mutex::new(Callers {
                projects: FxHashMap::default(),
                operator: Turn::new(OPERATOR_CALLS_MAX, per_second),
            }),
        }
    }

    fn take(&self, project: &ProjectId, kind: CallerKind) -> Option<Places> {
        let mut callers = self.callers.lock();
        let turn = match kind {
            CallerKind::Operator => &mut callers.operator,
            CallerKind::ServiceRole => callers
                .projects
                .entry(project.clone())
                .or_insert_with(|| Turn::new(PROJECT_CALLS_MAX, self.per_second)),
        };
        let own = turn.take(self.per_second)?;
        let among_all = match kind {
            CallerKind::Operator => None,
            CallerKind::ServiceRole => Some(Arc::clone(&self.all).try_acquire_owned().ok()?),
        };
        Some((own, among_all))
    }
}

impl Turn {
    fn new(at_once: usize, credit: f64) -> Self {
        Self {
            at_once: Arc::new(Semaphore::new(at_once)),
            credit,
            since: Instant::now(),
        }
    }

    fn take(&mut self, per_second: f64) -> Option<OwnedSemaphorePermit> {
        let now = Instant::now();
        let refilled = now.duration_since(self.since).as_secs_f64() * per_second;
        self.credit = (self.credit + refilled).min(per_second);
        self.since = now;
        if self.credit < 1.0 {
            return None;
        }
        self.credit -= 1.0;
        Arc::clone(&self.at_once).try_acquire_owned().ok()
    }
}

/// Finds out who calls for the project that a path names; `None`: it names none.
///
/// # Errors
/// In this order: 401 for whoever has not shown a valid token of the project, or of the operator; 403 for a
/// token of another role; 404 to the operator where there is no such project.
pub async fn find_out(
    gateway: &Gateway,
    project: Option<&str>,
    headers: &HeaderMap,
) -> Result<Known, Refusal> {
    let answered = Instant::now() + STRANGER_ANSWER_AFTER;
    let known = match identify(gateway, project, headers, answered).await {
        Err(refusal) if refusal.code == ApiCode::Unauthorized => {
            sleep_until(answered).await;
            Err(refusal)
        }
        known => known,
    };
    let (project, kind) = known?;
    Ok(Known { project, kind })
}

impl Known {
    /// Takes the caller's turn.
    ///
    /// # Errors
    /// 429: it is not.
    pub fn enter(self, gateway: &Gateway) -> Result<Caller, Refusal> {
        let Self { project, kind } = self;
        let places = gateway.turns().take(&project, kind);
        Ok(Caller {
            _places: places.ok_or(ApiCode::TooManyRequests)?,
            project,
            kind,
        })
    }
}

async fn identify(
    gateway: &Gateway,
    project: Option<&str>,
    headers: &HeaderMap,
    answered: Instant,
) -> Result<(ProjectId, CallerKind), Refusal> {
    let token = bearer(headers).ok_or(ApiCode::Unauthorized)?;
    let project = project.and_then(|text| ProjectId::parse(text).ok());
    if gateway.operator_token().is(token) {
        let known = project.filter(|project| gateway.catalog().get(project).is_some());
        return Ok((known.ok_or(ApiCode::NotFound)?, CallerKind::Operator));
    }
    let project = project.ok_or(ApiCode::Unauthorized)?;
    let identity = verify(gateway, &project, token, answered).await?;
    // Of projects that share a secret, each has its own tokens.
    if !names_no_other(identity.claims.json(), &project) {
        return Err(ApiCode::Unauthorized.into());
    }
    if !identity.claims.role().is_service() {
        return Err(ApiCode::Forbidden.into());
    }
    Ok((project, CallerKind::ServiceRole))
}

/// Verifies by the project's keys. A key set that lacks the token's key is fetched, but not waited for longer
/// than strangers wait anyhow: the caller is let in by the next call then.
async fn verify(
    gateway: &Gateway,
    project: &ProjectId,
    token: &str,
    answered: Instant,
) -> Result<Identity, ApiCode> {
    let verified = || {
        let verifier = gateway.verifier(project).ok_or(Code::TenantNotFound)?;
        verifier
            .verify(token, gateway.now_ms())
            .map_err(|error| error.code)
    };
    let mut identity = verified();
    if matches!(identity, Err(Code::KeysUnavailable)) {
        // The fetch goes on without whoever asked for it.
        let fetched = timeout_at(answered, gateway.verifiers().refresh(project)).await;
        if fetched.is_ok() {
            identity = verified();
        }
    }
    identity.map_err(|code| match code {
        // Signed by the project, of a role that it lets no token name.
        Code::Unauthorized => ApiCode::Forbidden,
        _ => ApiCode::Unauthorized,
    })
}

/// The token of the one `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Whether a token's claims that say of which project it is, where it has them, say this one.
fn names_no_other(claims: &str, project: &ProjectId) -> bool {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, rename = "ref")]
        reference: Option<Value>,
        #[serde(default)]
        project: Option<Value>,
    }
    let Ok(named) = serde_json::from_str::<Named>(claims) else {
        return false;
    };
    let names = [named.reference, named.project];
    names
        .iter()
        .flatten()
        .all(|name| name.as_str() == Some(project.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_header_is_read() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(bearer(&headers(&["Bearer a.b.c"])), Some("a.b.c"));
        assert_eq!(bearer(&headers(&["bearer  a "])), Some("a"));
        for values in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Basic a"],
            &["a"],
            &["Bearer a", "Bearer a"],
        ] {
            assert_eq!(bearer(&headers(values)), None, "{values:?}");
        }
    }

    #[test]
    fn a_token_of_another_project_is_none_of_this_one() {
        let project = ProjectId::parse("prj-a").unwrap();
        for claims in ["{}", r#"{"ref":"prj-a"}"#, r#"{"ref":null,"project":"prj-a"}"#] {
            assert!(names_no_other(claims, &project), "{claims}");
        }
        for claims in [
            r#"{"ref":"prj-b"}"#,
            r#"{"project":"prj-b"}"#,
            r#"{"ref":"prj-a","project":"prj-b"}"#,
            r#"{"ref":["prj-a"]}"#,
            r#"{"ref":"prj-a","ref":"prj-b"}"#,
        ] {
            assert!(!names_no_other(claims, &project), "{claims}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_takes_neither_anothers_turn_nor_more_than_its_own() {
        let mut limits = Limits::defaults();
        limits.management_calls_max = 3;
        limits.management_calls_per_second_max = 4;
        let turns = Turns::new(&limits);
        let (a, b) = (ProjectId::parse("a").unwrap(), ProjectId::parse("b").unwrap());
        let take = |project| turns.take(project, CallerKind::ServiceRole);
        let held = [take(&a), take(&a)];
        assert!(held.iter().all(Option::is_some));
        assert!(take(&a).is_none(), "three at once");
        let other = take(&b);
        assert!(other.is_some());
        assert!(take(&b).is_none(), "four of all projects at once");
        // The operator's turn is nobody else's.
        let operator = [&a, &a, &b, &b].map(|project| turns.take(project, CallerKind::Operator));
        assert!(operator.iter().all(Option::is_some));
        assert!(turns.take(&a, CallerKind::Operator).is_none(), "five at once");
        drop((held, other, operator));
        assert!(take(&a).is_some());
        assert!(take(&a).is_none(), "the fifth in a second");
        tokio::time::advance(Duration::from_millis(250)).await;
        assert!(take(&a).is_some());
        assert!(take(&a).is_none());
    }
}
