//! Runs of other machines, as they are told of.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Api;
use super::reply::{Body, Params};
use super::write::change;
use crate::Error;
use crate::remote::{RemoteLife, RemotePart, RemoteRun};

pub(super) async fn begin(State(api): State<Api>, Body(run): Body<RemoteRun>) -> Response {
    change(&api, move |hub| hub.begin_remote(&run)).await
}

pub(super) async fn write(
    State(api): State<Api>,
    Path(uid): Path<String>,
    Params(part): Params<RemotePart>,
    bytes: Bytes,
) -> Response {
    let hub = api.hub.clone();
    let written = tokio::task::spawn_blocking(move || hub.write_remote(&uid, &part, &bytes)).await;
    match written.unwrap_or(Err(Error::Closed)) {
        Ok(length) => Json(json!({"length": length})).into_response(),
        Err(error) => error.into_response(),
    }
}

pub(super) async fn hear(
    State(api): State<Api>,
    Path(uid): Path<String>,
    Body(life): Body<RemoteLife>,
) -> Response {
    change(&api, move |hub| {
        hub.hear_remote(&uid, &life)?;
        Ok(json!({}))
    })
    .await
}
