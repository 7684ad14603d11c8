//! Who may call the management API, and how often.
//!
//! Must never answer differently to a stranger for a project that exists and for one that does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::http::{HeaderMap, header};
use clap::Args;
use parking_lot::Mutex;
use realtime_core::code::{ApiCode, Code};
use realtime_core::id::ProjectId;
use realtime_node::secret::Secret;
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

/// Shortest operator token: who guesses has all the time there is.
const OPERATOR_TOKEN_BYTES_MIN: usize = 32;

/// Calls of one project that are worked on at once.
const PROJECT_CALLS_MAX: usize = 2;

/// Arguments of the management API.
#[derive(Debug, Clone, Default, Args)]
pub struct ManagementArgs {
    /// File with the operator token, at least 32 characters: it may call the management API for every project. Without it only the projects' own service_role tokens may.
    #[arg(long, env = "ANVILBASE_REALTIME_OPERATOR_TOKEN_FILE")]
    pub operator_token_file: Option<PathBuf>,
}

impl ManagementArgs {
    /// The operator token.
    ///
    /// # Errors
    /// The file cannot be read, or what it holds is too short or has blanks inside.
    pub async fn operator_token(&self) -> anyhow::Result<Option<Secret>> {
        let Some(path) = &self.operator_token_file else {
            return Ok(None);
        };
        let shown = Path::display(path);
        let text = tokio::fs::read_to_string(path).await;
        let text = text.with_context(|| format!("operator token file {shown}: cannot be read"))?;
        let token = text.trim();
        if token.len() < OPERATOR_TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "operator token file {shown}: must hold one token of at least {OPERATOR_TOKEN_BYTES_MIN} visible ASCII characters"
            );
        }
        Ok(Some(Secret::new(token)))
    }
}

/// Who calls. Proves that the caller may act for the project, and that it was its turn; a call holds it until
/// it is done.
#[derive(Debug)]
pub struct Caller {
    /// The project that the call is for.
    pub project: ProjectId,
    /// What the caller showed, for logs.
    pub kind: CallerKind,
    _places: [OwnedSemaphorePermit; 2],
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
    all: Arc<Semaphore>,
    per_second: f64,
    /// Only of projects that somebody proved to be of: as many as there are projects.
    projects: Mutex<FxHashMap<ProjectId, Turn>>,
}

struct Turn {
    at_once: Arc<Semaphore>,
    /// Calls that may come at once, refilled over time.
    credit: f64,
    since: Instant,
}

impl Turns {
    /// Nobody has called.
    pub fn new(limits: &Limits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.management_calls_max as usize)),
            per_second: f64::from(limits.management_calls_per_second_max),
            projects: Mutex::default(),
        }
    }

    fn take(&self, project: &ProjectId) -> Option<[OwnedSemaphorePermit; 2]> {
        let now = Instant::now();
        let at_once = {
            let mut projects = self.projects.lock();
            let turn = projects.entry(project.clone()).or_insert_with(|| Turn {
                at_once: Arc::new(Semaphore::new(PROJECT_CALLS_MAX)),
                credit: self.per_second,
                since: now,
            });
            let refilled = now.duration_since(turn.since).as_secs_f64() * self.per_second;
            turn.credit = (turn.credit + refilled).min(self.per_second);
            turn.since = now;
            if turn.credit < 1.0 {
                return None;
            }
            turn.credit -= 1.0;
            Arc::clone(&turn.at_once)
        };
        let own = at_once.try_acquire_owned().ok()?;
        Some([own, Arc::clone(&self.all).try_acquire_owned().ok()?])
    }
}

/// Finds out who calls for the project that a path names; `None`: it names none.
///
/// # Errors
/// In this order: 401 for whoever has not shown a valid token of the project, or of the operator; 403 for a
/// token of another role; 404 to the operator where there is no such project; 429.
pub async fn authorize(
    gateway: &Gateway,
    project: Option<&str>,
    headers: &HeaderMap,
) -> Result<Caller, Refusal> {
    let answered = Instant::now() + STRANGER_ANSWER_AFTER;
    let known = match identify(gateway, project, headers, answered).await {
        Err(refusal) if refusal.code == ApiCode::Unauthorized => {
            sleep_until(answered).await;
            Err(refusal)
        }
        known => known,
    };
    let (project, kind) = known?;
    let places = gateway.turns().take(&project).ok_or(ApiCode::TooManyRequests)?;
    Ok(Caller {
        project,
        kind,
        _places: places,
    })
}

async fn identify(
    gateway: &Gateway,
    project: Option<&str>,
    headers: &HeaderMap,
    answered: Instant,
) -> Result<(ProjectId, CallerKind), Refusal> {
    let token = bearer(headers).ok_or(ApiCode::Unauthorized)?;
    let project = project.and_then(|text| ProjectId::parse(text).ok());
    if gateway
        .operator_token()
        .is_some_and(|operator| operator.is(token))
    {
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
        let held = [turns.take(&a), turns.take(&a)];
        assert!(held.iter().all(Option::is_some));
        assert!(turns.take(&a).is_none(), "three at once");
        let other = turns.take(&b);
        assert!(other.is_some());
        assert!(turns.take(&b).is_none(), "four of all projects at once");
        drop((held, other));
        assert!(turns.take(&a).is_some());
        assert!(turns.take(&a).is_none(), "the fifth in a second");
        tokio::time::advance(Duration::from_millis(250)).await;
        assert!(turns.take(&a).is_some());
        assert!(turns.take(&a).is_none());
    }
}
