//! Files of checkpoints: those that the manifest names, and no others.

use std::path::PathBuf;

use axum::body::Body as HttpBody;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::stream;
use salamander_core::layout::{MANIFEST, RunLayout};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Api;
use crate::Error;
use crate::hub::{Hub, Speaker};
use crate::ids::RunId;
use crate::operation::Operation;
use crate::store::users::User;

/// Bytes of a piece of a file that is sent.
const PIECE: usize = 1 << 18;

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFile {
    /// Its path below the checkpoint.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

impl Hub {
    /// The folder of a checkpoint that the store knows.
    pub(crate) fn checkpoint_folder(&self, run: RunId, name: &str) -> Result<PathBuf, Error> {
        let checkpoint = self.store().checkpoint(run, name)?;
        if checkpoint.state != "completed" {
            return Err(Error::NotFound(format!("checkpoint {name} of run {run} is deleted")));
        }
        let layout = RunLayout::new(self.runs().join(self.store().run_folder(run)?));
        Ok(layout.checkpoints().join(checkpoint.name))
    }

    /// The files of a checkpoint, as its manifest names them.
    fn checkpoint_files(&self, run: RunId, name: &str) -> Result<Vec<CheckpointFile>, Error> {
        let folder = self.checkpoint_folder(run, name)?;
        let path = folder.join(MANIFEST);
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        let manifest: Value = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Conflict(format!("{}: {error}", path.display())))?;
        let named = |field: &str| manifest[field].as_object().cloned().unwrap_or_default();
        let mut names: Vec<String> = named("files").into_iter().map(|(name, _)| name).collect();
        names.extend(named("tables").into_iter().map(|(name, _)| name));
        names.push(MANIFEST.to_string());
        let is_safe = |name: &String| {
            let path = std::path::Path::new(name);
            path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let file = |path: String| {
            let bytes = std::fs::metadata(folder.join(&path)).map_or(0, |about| about.len());
            CheckpointFile { path, bytes }
        };
        Ok(names.into_iter().filter(is_safe).map(file).collect())
    }

    /// Deletes a checkpoint that nobody needs. It is decided while nobody else says anything, so that nobody registers
    /// it or starts from it meanwhile, and done afterwards: by the next hub, if this one is killed.
    fn delete_checkpoint(&self, by: &Speaker, run: RunId, name: &str) -> Result<(), Error> {
        self.say_after(by, |store| {
            self.checkpoint_folder(run, name)?;
            if store.is_registered(run, name)? {
                let reason = format!("checkpoint {name} of run {run} is a version of a model");
                return Err(Error::Conflict(reason));
            }
            let place = (run, name.to_string());
            if store.needed_sources()?.contains(&place)
                || self.sources_of_plain_runs()?.contains(&place)
            {
                let reason = format!(
                    "checkpoint {name} of run {run} is what an experiment starts from that is not completed"
                );
                return Err(Error::Conflict(reason));
            }
            let state = store.run(run)?.state;
            if matches!(state.as_str(), "running" | "queued") {
                let reason =
                    format!("run {run} is {state}, and may go on from any of its checkpoints");
                return Err(Error::Conflict(reason));
            }
            let checkpoint = Box::new(store.checkpoint(run, name)?);
            let experiment = run.experiment();
            Ok(vec![Operation::DeleteCheckpoint { experiment, checkpoint }])
        })?;
        self.sweep()
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Path((run, name)): Path<(String, String)>,
) -> Response {
    let hub = api.hub.clone();
    let found = tokio::task::spawn_blocking(move || hub.checkpoint_files(run.parse()?, &name));
    match found.await.unwrap_or(Err(Error::Closed)) {
        Ok(files) => Json(files).into_response(),
        Err(error) => error.into_response(),
    }
}

pub(super) async fn send(
    State(api): State<Api>,
    Path((run, name, path)): Path<(String, String, String)>,
) -> Response {
    let hub = api.hub.clone();
    let found = tokio::task::spawn_blocking(move || {
        let run: RunId = run.parse()?;
        let known = hub.checkpoint_files(run, &name)?.into_iter().find(|file| file.path == path);
        let absent = || Error::NotFound(format!("checkpoint {name} has no file {path:?}"));
        let known = known.ok_or_else(absent)?;
        let path = hub.checkpoint_folder(run, &name)?.join(known.path);
        Ok((std::fs::File::open(&path).map_err(Error::io(&path))?, known.bytes))
    });
    let (file, bytes) = match found.await.unwrap_or(Err(Error::Closed)) {
        Ok(found) => found,
        Err(error) => return error.into_response(),
    };
    let pieces = stream::unfold(Some(file), |file| async {
        let mut file = file?;
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            let read = std::io::Read::read(&mut file, &mut piece);
            read.map(|read| {
                piece.truncate(read);
                (piece, file)
            })
        });
        match read.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok((piece, _)) if piece.is_empty() => None,
            Ok((piece, file)) => Some((Ok(piece), Some(file))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_string()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    (headers, HttpBody::from_stream(pieces)).into_response()
}

pub(super) async fn delete(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((run, name)): Path<(String, String)>,
) -> Response {
    let hub = api.hub.clone();
    let done = tokio::task::spawn_blocking(move || {
        let run: RunId = run.parse()?;
        tracing::info!(user = user.name, %run, checkpoint = name, "is deleted");
        hub.delete_checkpoint(&Speaker(user.name), run, &name)?;
        Ok(json!({"run": run, "checkpoint": name, "state": "deleted"}))
    });
    match done.await.unwrap_or(Err(Error::Closed)) {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => error.into_response(),
    }
}
