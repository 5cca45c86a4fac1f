//! Who did what and when, for admins.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::Api;
use super::reply::Params;
use super::write::change;
use crate::Error;
use crate::hub::{Hub, now};
use crate::store::users::{User, UserRole};

/// Rows of an answer, unless told otherwise, and at most.
const ROWS: (i64, i64) = (100, 1000);

/// Which part of it.
#[derive(Deserialize)]
pub(super) struct AuditQuery {
    limit: Option<i64>,
    /// Only what came before the row of this number.
    before: Option<i64>,
}

pub(super) async fn audit(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Params(query): Params<AuditQuery>,
) -> Response {
    change(&api, move |hub| {
        if user.role < UserRole::Admin {
            return Err(Error::Forbidden(format!("{} may not see who did what", user.name)));
        }
        let limit = query.limit.unwrap_or(ROWS.0).clamp(1, ROWS.1);
        let items = hub.store().audit(query.before.unwrap_or(i64::MAX), limit)?;
        let next = items.last().filter(|_| items.len() as i64 == limit).map(|row| row.id);
        Ok(json!({"items": items, "next": next}))
    })
    .await
}

impl Hub {
    /// Keeps what a user has done. It is done: that it cannot be kept is no reason to say that it was not.
    pub(super) fn note_done(&self, user: &str, operation: &Json) {
        if let Err(error) = self.store().note_done(user, now(), operation) {
            tracing::error!(%error, user, %operation, "what was done cannot be kept");
        }
    }
}
