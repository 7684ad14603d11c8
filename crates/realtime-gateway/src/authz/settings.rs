//! What is set for tables, asked of authz.
//!
//! Must never be asked before the caller was found to be one who may: authz takes a gateway at its word.

use std::time::Duration;

use realtime_core::code::ApiCode;
use realtime_core::id::ProjectId;
use realtime_proto::v1;
use realtime_proto::v1::table_service_client::TableServiceClient;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::Authz;

impl Authz {
    /// Base tables of a schema, by name.
    ///
    /// # Errors
    /// The project's database could not be asked within `deadline`.
    pub async fn list_tables(
        &self,
        request: v1::ListTablesRequest,
        project: &ProjectId,
        deadline: Duration,
    ) -> Result<v1::ListTablesResponse, ApiCode> {
        let call = async |mut client: TableServiceClient<Channel>, request| client.list_tables(request).await;
        self.ask_settings(project, deadline, request, call).await
    }

    /// Changes settings of a table, and gives what it is like then.
    ///
    /// # Errors
    /// There is no such table, it could not be altered, or the project's database could not be asked within
    /// `deadline`.
    pub async fn set_table(
        &self,
        request: v1::SetTableRequest,
        project: &ProjectId,
        deadline: Duration,
    ) -> Result<v1::TableState, ApiCode> {
        let call = async |mut client: TableServiceClient<Channel>, request| client.set_table(request).await;
        let answer = self.ask_settings(project, deadline, request, call).await?;
        answer.table.ok_or(ApiCode::Unavailable)
    }

    /// Asks the project's replica, and the next one where that cannot be reached: to set something twice is to
    /// set it once.
    async fn ask_settings<Q: Clone, A>(
        &self,
        project: &ProjectId,
        deadline: Duration,
        question: Q,
        call: impl AsyncFn(TableServiceClient<Channel>, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, ApiCode> {
        let until = Instant::now() + deadline;
        let asked = async {
            let mut code = ApiCode::Unavailable;
            for replica in self.ranked(project) {
                let mut request = Request::new(question.clone());
                request.set_timeout(until.duration_since(Instant::now()));
                match call(replica.settings.clone(), request).await {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => {
                        let (replica, said) = (&replica.name, status.code());
                        tracing::debug!(%replica, code = ?said, "authz did not do it");
                        code = api_code(said);
                        if said != Code::Unavailable {
                            break;
                        }
                    }
                }
            }
            Err(code)
        };
        timeout_at(until, asked)
            .await
            .unwrap_or(Err(ApiCode::DeadlineExceeded))
    }
}

fn api_code(code: Code) -> ApiCode {
    match code {
        Code::NotFound => ApiCode::TableNotFound,
        Code::Aborted => ApiCode::TableBusy,
        Code::PermissionDenied => ApiCode::TableNotOwned,
        // Also an authz that does not know the service yet.
        Code::FailedPrecondition | Code::Unimplemented => ApiCode::NotProvisioned,
        Code::ResourceExhausted => ApiCode::TooManyRequests,
        Code::DeadlineExceeded | Code::Cancelled => ApiCode::DeadlineExceeded,
        _ => ApiCode::Unavailable,
    }
}
