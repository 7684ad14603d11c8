//! The gRPC face: requests in, verdicts and facts out.
//!
//! Must never answer a subject's fault with an error of the whole call, and never name a value
//! in an error: field and rule only.

use std::sync::Arc;
use std::time::Duration;

use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::{Claims, Role};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::table::TableFacts;
use realtime_core::verdict::{DropReason, Verdict};
use realtime_proto::convert::{deliver_verdict, drop_verdict};
use realtime_proto::v1;
use realtime_proto::v1::authz_service_server::AuthzService;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::check::{Check, Judgement};
use crate::metrics::AuthzMetrics;
use crate::projects::{NoProject, Project, Projects};
use crate::tables::no_such_table;

/// Most subjects of one `Check`.
pub const SUBJECTS_MAX: usize = 256;

/// What the service holds to.
#[derive(Debug, Clone, Copy)]
pub struct ServiceLimits {
    /// Longest time of one call.
    pub deadline: Duration,
    /// Calls that are worked on at once.
    pub calls_max: usize,
}

/// The service's state. Cloning shares it.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    projects: Projects,
    limits: ServiceLimits,
    calls: Semaphore,
    metrics: AuthzMetrics,
}

impl Service {
    /// The service over a catalog's projects.
    pub fn new(projects: Projects, limits: ServiceLimits, metrics: AuthzMetrics) -> Self {
        Self(Arc::new(Inner {
            projects,
            limits,
            calls: Semaphore::new(limits.calls_max),
            metrics,
        }))
    }

    fn project(&self, id: &str) -> Result<Arc<Project>, Status> {
        let id = ProjectId::parse(id).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.0.projects.get(&id).map_err(|error| match error {
            NoProject::Unknown => Status::not_found(error.to_string()),
            NoProject::NoProber => Status::failed_precondition(error.to_string()),
        })
    }

    /// Judges one event; the call is already known to be well-formed.
    async fn judge(
        &self,
        project: &Project,
        event: &ChangeEvent,
        subjects: &[Claims],
        seen: Position,
    ) -> Vec<Judgement> {
        let started = Instant::now();
        let deadline = started + self.0.limits.deadline;
        let Inner { calls, metrics, .. } = &*self.0;
        metrics.checks.inc();
        let judged = match tokio::time::timeout_at(deadline, calls.acquire()).await {
            Ok(Ok(_place)) => {
                Check {
                    project,
                    event,
                    subjects,
                    seen,
                    deadline,
                    metrics,
                }
                .run()
                .await
            }
            _ => vec![(Verdict::Drop(DropReason::PoolSaturated), None); subjects.len()],
        };
        for (verdict, _) in &judged {
            metrics.verdict(match verdict {
                Verdict::Deliver(_) => "deliver",
                Verdict::Drop(reason) => reason.as_str(),
            });
        }
        metrics.check_seconds.0.observe(started.elapsed().as_secs_f64());
        judged
    }

    async fn describe(
        &self,
        project: &Project,
        name: TableRef,
        role: Role,
        seen: Position,
    ) -> Result<TableFacts, Status> {
        if !project.config.allows_role(&role) {
            return Err(Status::invalid_argument(
                "role: is not one that the project lets tokens name",
            ));
        }
        let read = project
            .facts
            .named(&project.pool, &name, &role, seen, &self.0.metrics);
        match tokio::time::timeout(self.0.limits.deadline, read).await {
            Ok(Ok(Some(table))) if role.is_service() => Ok((*table).clone().for_service()),
            Ok(Ok(Some(table))) => Ok(table.describe()),
            Ok(Ok(None)) => Ok(no_such_table(name)),
            Ok(Err(error)) => match project.unavailable(&error, &self.0.metrics) {
                DropReason::PoolSaturated => Err(Status::resource_exhausted(error.to_string())),
                DropReason::NoPrivilege => Err(Status::failed_precondition(error.to_string())),
                _ => Err(Status::unavailable("database: cannot be asked just now")),
            },
            Err(_) => Err(Status::deadline_exceeded("database: no answer in time")),
        }
    }
}

#[tonic::async_trait]
impl AuthzService for Service {
    async fn check(&self, request: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        let v1::CheckRequest {
            project,
            event,
            subjects,
            facts,
        } = request.into_inner();
        let project = self.project(&project)?;
        let event = event.ok_or_else(|| Status::invalid_argument("event: is missing"))?;
        let event = ChangeEvent::try_from(event)
            .map_err(|error| Status::invalid_argument(format!("event: {error}")))?;
        if subjects.len() > SUBJECTS_MAX {
            return Err(Status::invalid_argument(format!(
                "subjects: at most {SUBJECTS_MAX} in one call"
            )));
        }
        let subjects: Vec<Claims> = subjects.into_iter().map(Claims::from).collect();
        let seen = facts.map_or_else(Position::default, Position::from);
        let judged = self.judge(&project, &event, &subjects, seen).await;
        let verdicts = judged.iter().map(|(verdict, sqlstate)| match verdict {
            Verdict::Deliver(grant) => deliver_verdict(grant),
            Verdict::Drop(reason) => drop_verdict(*reason, sqlstate.as_deref()),
        });
        Ok(Response::new(v1::CheckResponse {
            verdicts: verdicts.collect(),
        }))
    }

    async fn describe_table(
        &self,
        request: Request<v1::DescribeTableRequest>,
    ) -> Result<Response<v1::DescribeTableResponse>, Status> {
        let v1::DescribeTableRequest {
            project,
            schema,
            table,
            role,
            facts,
        } = request.into_inner();
        let project = self.project(&project)?;
        let seen = facts.map_or_else(Position::default, Position::from);
        let described = self
            .describe(&project, TableRef::new(schema, table), Role::new(role), seen)
            .await?;
        Ok(Response::new((&described).into()))
    }
}
