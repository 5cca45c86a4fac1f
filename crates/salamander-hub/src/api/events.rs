//! What is followed: changes of the store, and lines of logs, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Api;
use super::access::Admission;
use super::reply::{Params, ask};
use crate::Error;
use crate::ids::RunId;
use crate::store::logs::LogQuery;
use crate::store::{Commit, Touched};

/// In which clients say what they have heard last, as browsers do by themselves.
const LAST_EVENT: &str = "last-event-id";
/// How often an idle stream says that it is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// Every change: an event `change` with its number and what to look at again; `reset` when some were missed. The stream
/// ends when whoever asked would not be let in any more.
pub(super) async fn follow(
    State(api): State<Api>,
    Extension(admission): Extension<Admission>,
) -> Response {
    let permit = match permit(&api) {
        Ok(permit) => permit,
        Err(error) => return refused(error),
    };
    let commits = api.hub.store().commits();
    let first = change(api.hub.store().change(), None);
    let state = (commits, admission, permit);
    let later = stream::unfold(state, |(mut commits, mut admission, permit)| async move {
        let event = match commits.recv().await {
            Ok(commit) => change(commit.change, Some(&commit)),
            Err(RecvError::Lagged(_)) => Event::default().event("reset").data("{}"),
            Err(RecvError::Closed) => return None,
        };
        admission.is_good().await.then_some((event, (commits, admission, permit)))
    });
    streamed(stream::once(async move { first }).chain(later))
}

/// Lines of a run's logs as they come; each event has an id, with which a broken stream is gone on with.
pub(super) async fn follow_logs(
    State(api): State<Api>,
    Extension(admission): Extension<Admission>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Params(mut query): Params<LogQuery>,
) -> Response {
    // Where a stream that broke had come to is behind where it began.
    let last = headers.get(LAST_EVENT).and_then(|last| last.to_str().ok());
    query.after = last.filter(|last| !last.is_empty()).map(String::from).or(query.after);
    let known = match id.parse::<RunId>() {
        Ok(run) => ask(&api, move |store| store.run_folder(run).map(|_| run)).await,
        Err(error) => Err(error),
    };
    let follower = match (permit(&api), known) {
        (Ok(permit), Ok(run)) => LogFollower {
            admission,
            commits: api.hub.store().commits(),
            run,
            query,
            api,
            waiting: Vec::new(),
            _permit: permit,
        },
        (Err(error), _) | (_, Err(error)) => return refused(error),
    };
    streamed(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((event, follower))
    }))
}

struct LogFollower {
    admission: Admission,
    commits: Receiver<Commit>,
    run: RunId,
    query: LogQuery,
    api: Api,
    /// Lines that were read, the next one last.
    waiting: Vec<Event>,
    _permit: OwnedSemaphorePermit,
}

impl LogFollower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop() {
                return Some(event);
            }
            let (run, query) = (self.run, self.query.clone());
            let page = ask(&self.api, move |store| store.run_logs(run, &query)).await.ok()?;
            if !self.admission.is_good().await {
                return None;
            }
            self.query.after = Some(page.after.clone());
            if page.lines.is_empty() {
                self.wait().await?;
                continue;
            }
            // The place behind the last line, so that going on repeats a few rather than losing one.
            let event = Event::default().event("lines").id(page.after);
            self.waiting.push(event.json_data(&page.lines).ok()?);
        }
    }

    /// Until there may be new lines.
    async fn wait(&mut self) -> Option<()> {
        loop {
            match self.commits.recv().await {
                Ok(commit) if commit.touched.contains(&Touched::Logs(self.run.number())) => {
                    return Some(());
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn change(number: i64, commit: Option<&Commit>) -> Event {
    let (mut experiments, mut runs, mut logs) = (Vec::new(), Vec::new(), Vec::new());
    let mut models = false;
    for touched in commit.iter().flat_map(|commit| commit.touched.iter()) {
        match touched {
            Touched::Experiment(id) => experiments.push(*id),
            Touched::Run(id) => runs.push(RunId::from_number(*id)),
            Touched::Logs(id) => logs.push(RunId::from_number(*id)),
            Touched::Models => models = true,
        }
    }
    let data = json!({
        "change": number, "experiments": experiments, "runs": runs, "logs": logs, "models": models,
    });
    Event::default().event("change").id(number.to_string()).data(data.to_string())
}

fn permit(api: &Api) -> Result<OwnedSemaphorePermit, Error> {
    let busy = |_| Error::Unwritable("too many streams of events are open".to_string());
    Arc::clone(&api.streams).try_acquire_owned().map_err(busy)
}

/// The connection goes with the refusal: one that stays would take a place that others wait for.
fn refused(error: Error) -> Response {
    ([(header::CONNECTION, "close")], error).into_response()
}

fn streamed(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let events = events.map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}
