//! Routes that only look: a function of the hub, of what the path names and of the parameters, as a handler that knows
//! whether anything has changed.

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::routing::{MethodRouter, get};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Api;
use super::reply::{Params, answer};
use crate::Error;
use crate::hub::Hub;
use crate::ids::{ExperimentId, RunId};

/// No parameters; others are passed over.
#[derive(serde::Deserialize)]
pub(super) struct NoParams {}

/// What a path names.
pub(super) trait PathName: Sized + Send + 'static {
    /// From the parts of a path that vary.
    fn named(parts: &[&str]) -> Result<Self, Error>;
}

impl PathName for () {
    fn named(_: &[&str]) -> Result<Self, Error> {
        Ok(())
    }
}

impl PathName for String {
    fn named(parts: &[&str]) -> Result<Self, Error> {
        Ok(parts.first().copied().unwrap_or_default().to_string())
    }
}

impl PathName for ExperimentId {
    fn named(parts: &[&str]) -> Result<Self, Error> {
        parts.first().copied().unwrap_or_default().parse()
    }
}

impl PathName for RunId {
    fn named(parts: &[&str]) -> Result<Self, Error> {
        parts.first().copied().unwrap_or_default().parse()
    }
}

impl PathName for (RunId, String) {
    fn named(parts: &[&str]) -> Result<Self, Error> {
        Ok((RunId::named(parts)?, String::named(parts.get(1..).unwrap_or_default())?))
    }
}

/// What the path of a request names.
struct Named<P>(P);

impl<P: PathName, S: Send + Sync> FromRequestParts<S> for Named<P> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let wrong = |error| Error::Invalid(format!("the path makes no sense: {error}"));
        let found = RawPathParams::from_request_parts(parts, state).await;
        let found = found.map_err(|error| wrong(error.to_string()))?;
        let values: Vec<&str> = found.iter().map(|(_, value)| value).collect();
        P::named(&values).map(Self)
    }
}

/// A route that answers what `look` finds.
pub(super) fn look<P, Q, T>(look: fn(&Hub, P, Q) -> Result<T, Error>) -> MethodRouter<Api>
where
    P: PathName,
    Q: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
{
    let handler = move |State(api): State<Api>,
                        headers: HeaderMap,
                        Named(name): Named<P>,
                        Params(query): Params<Q>| async move {
        let hub = api.hub.clone();
        answer(&api, &headers, move || look(&hub, name, query)).await
    };
    get(handler)
}
