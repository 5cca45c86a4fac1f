//! What requests and answers have in common: parameters, errors as JSON, and answers that have not changed.

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Api;
use crate::Error;
use crate::store::Store;

/// How long a body of JSON may take: who only holds a connection open takes a place that others wait for.
const PATIENCE: Duration = Duration::from_secs(60);

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::error!(error = %self, "a request failed");
        }
        let mut response = (status, Json(json!({"error": self.to_string()}))).into_response();
        if let Self::TooManyLogins { seconds } = self {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Parameters of a request, with an error that people can read.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let wrong = |error| Error::Invalid(format!("the parameters make no sense: {error}"));
        Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query)).map_err(wrong)
    }
}

/// A body of JSON, with an error that people can read.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if !is_json {
            // A page of another site can send forms, and no JSON.
            let reason = "send JSON, with `Content-Type: application/json`".to_string();
            return Err(Error::Invalid(reason).into_response());
        }
        let bytes = tokio::time::timeout(PATIENCE, Bytes::from_request(request, state)).await;
        let Ok(bytes) = bytes else {
            let reason = "the body takes too long to come".to_string();
            return Err(Error::Invalid(reason).into_response());
        };
        let bytes = bytes.map_err(|error: BytesRejection| error.into_response())?;
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        let wrong = |error| Error::Invalid(format!("the body makes no sense: {error}"));
        serde_json::from_slice(&bytes).map(Self).map_err(|error| wrong(error).into_response())
    }
}

/// Asks the store on a thread where waiting is allowed.
pub(super) async fn ask<T: Send + 'static>(
    api: &Api,
    look: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let store = api.hub.store().clone();
    tokio::task::spawn_blocking(move || look(&store)).await.unwrap_or(Err(Error::Closed))
}

/// Answers from the store in JSON, or that nothing has changed since the last answer.
pub(super) async fn answer<T: Serialize + Send + 'static>(
    api: &Api,
    headers: &HeaderMap,
    look: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Response {
    answer_as(api, headers, move || look().map(|found| Json(found).into_response())).await
}

/// The same in another form.
pub(super) async fn answer_as(
    api: &Api,
    headers: &HeaderMap,
    look: impl FnOnce() -> Result<Response, Error> + Send + 'static,
) -> Response {
    // Before the look: what changes meanwhile is seen by the next.
    let tag = format!("\"{:016x}-{}\"", api.life, api.hub.store().change());
    if headers.get(header::IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == tag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    match tokio::task::spawn_blocking(look).await.unwrap_or(Err(Error::Closed)) {
        Ok(mut response) => {
            if let Ok(tag) = HeaderValue::from_str(&tag) {
                response.headers_mut().insert(header::ETAG, tag);
            }
            let check = HeaderValue::from_static("no-cache");
            response.headers_mut().insert(header::CACHE_CONTROL, check);
            response
        }
        Err(error) => error.into_response(),
    }
}

pub(super) async fn no_such_route(request: Request) -> Error {
    Error::NotFound(format!("there is no {}", request.uri().path()))
}
