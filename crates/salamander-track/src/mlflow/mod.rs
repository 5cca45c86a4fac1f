//! Tells an MLflow server of a run: parameters, every step, every validation, and at the end the report.
//!
//! Points are taken from the run's metrics file, written down with their time and step, and then sent; so what is sent
//! again after a lost answer, and what is trained again after a kill, adds nothing. A run is found by a tag that only
//! it has before it is made.

pub mod api;
pub mod batch;
pub mod state;

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use salamander_core::experiment::Mlflow;
use salamander_core::layout::{
    CHECKPOINTS, CONFUSION, EXPERIMENT, MANIFEST, REPORT, RunLayout, SUMMARY,
};
use serde_json::{Value, json};

use self::api::{MlflowApi, RunInfo};
use self::batch::MetricPoint;
use self::state::SenderState;
use crate::about::{self, About, Confusion, TrackedEnd};
use crate::follow::{Follower, Found};
use crate::point::{LoggedPoint, PointKind};
use crate::tensorboard::picture::RgbPicture;

/// The tag that a run is found by.
const UID: &str = "salamander.uid";
/// Parameters of one call.
const MOST_PARAMS: usize = 100;

/// Why nothing more is sent for now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the run's folder.
    #[error(transparent)]
    Folder(#[from] about::Error),
    /// Of the server.
    #[error(transparent)]
    Server(#[from] api::Error),
    /// A trial's search makes its own run first.
    #[error("the run of the search is not there yet")]
    NoParent,
}

impl Error {
    /// Whether it may work later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::NoParent | Self::Server(api::Error::Away(_)))
    }
}

/// Tells one server of one run.
pub struct Sender {
    run: RunLayout,
    about: About,
    server: MlflowApi,
    state: SenderState,
    follower: Follower,
    /// Points that are new and not yet being sent.
    waiting: VecDeque<LoggedPoint>,
    /// The experiment's id there.
    experiment: Option<String>,
    remote: Option<RunInfo>,
    /// What was refused and is not tried again.
    refused: Vec<String>,
    with_checkpoint: bool,
    /// The files that were read and are at the server, as they were then: none is read again for each that follows.
    checked: HashMap<String, FileStamp>,
}

/// What a call of [`Sender::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// Something was sent; there may be more.
    Sent,
    /// The server has everything.
    UpToDate,
}

impl Sender {
    /// For a run's folder.
    pub fn new(run: &RunLayout, about: About, mlflow: &Mlflow) -> Result<Self, Error> {
        let experiment = mlflow.experiment.as_deref().unwrap_or_else(|| about.title());
        let state = SenderState::open(run, mlflow.uri.trim_end_matches('/'), experiment)?;
        let server = MlflowApi::new(&state.uri)?;
        let follower = Follower::new(run.metrics());
        let run = run.clone();
        Ok(Self {
            run,
            about,
            server,
            state,
            follower,
            waiting: VecDeque::new(),
            experiment: None,
            remote: None,
            refused: Vec::new(),
            with_checkpoint: mlflow.checkpoint,
            checked: HashMap::new(),
        })
    }

    /// Does the next thing that is to be done. Once the run is `over`, that includes how it ended.
    pub async fn advance(&mut self, over: bool) -> Result<SendProgress, Error> {
        let remote = match &self.remote {
            Some(remote) => remote.clone(),
            None => {
                let found = self.find_or_make().await?;
                self.remote = Some(found.clone());
                found
            }
        };
        if !self.state.sending.is_empty() {
            self.server.log_metrics(&remote.id, &self.state.sending).await?;
            self.state.sending.clear();
            self.state.keep(&self.run)?;
            return Ok(SendProgress::Sent);
        }
        if self.send_params(&remote).await? {
            return Ok(SendProgress::Sent);
        }
        let ended = over.then(|| TrackedEnd::read(&self.run)).flatten();
        if self.fill(ended.as_ref())? {
            return Ok(SendProgress::Sent);
        }
        let (status, time) = match &ended {
            Some(ended) => {
                if self.send_artifact(&remote).await? {
                    return Ok(SendProgress::Sent);
                }
                (status(&ended.state), (ended.time * 1000.0) as i64)
            }
            None => ("RUNNING", 0),
        };
        let stands = (status.to_string(), time);
        if self.state.status.as_ref() != Some(&stands) {
            self.server.update_run(&remote.id, status, (time > 0).then_some(time)).await?;
            self.state.status = Some(stands);
            self.state.keep(&self.run)?;
            return Ok(SendProgress::Sent);
        }
        Ok(SendProgress::UpToDate)
    }

    /// What the server has refused for good, to be told to people.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Takes the next points and writes them down as what is being sent; false: there are none.
    fn fill(&mut self, ended: Option<&TrackedEnd>) -> Result<bool, Error> {
        let mut sending: Vec<MetricPoint> = Vec::new();
        let mut told = self.state.told;
        loop {
            if self.waiting.is_empty() {
                let path = self.follower.path().to_path_buf();
                let found = self.follower.poll().map_err(about::Error::file(&path))?;
                if found.is_empty() {
                    break;
                }
                self.waiting.extend(found.into_iter().filter_map(|found| match found {
                    Found::FromTheBeginning => None,
                    Found::Point(point) => Some(point),
                }));
                continue;
            }
            let next = self.waiting.front().map_or(0, |point| point.values.len());
            if sending.len() + next > batch::MOST && !sending.is_empty() {
                break;
            }
            let Some(point) = self.waiting.pop_front() else { break };
            if told.take(&point) {
                sending.extend(batch::metrics(&point));
            }
        }
        let best = ended.filter(|_| self.about.is_search).and_then(|ended| ended.best);
        if let (Some(ended), Some((value, trial))) =
            (ended, best.filter(|_| best != self.state.best))
        {
            // The one point of a search: its best trial, under that trial's number.
            let (kind, values) = (PointKind::Epoch, vec![("best".to_string(), value)]);
            let point = LoggedPoint { kind, step: trial, time: Some(ended.time), values };
            sending.extend(batch::metrics(&point));
            self.state.best = best;
        }
        if sending.is_empty() {
            self.state.told = told;
            return Ok(false);
        }
        (self.state.sending, self.state.told) = (sending, told);
        self.state.keep(&self.run)?;
        Ok(true)
    }

    async fn find_or_make(&mut self) -> Result<RunInfo, Error> {
        let experiment = match &self.experiment {
            Some(known) => known.clone(),
            None => self.server.experiment(&self.state.experiment).await?,
        };
        self.experiment = Some(experiment.clone());
        let found = self.server.runs_with_tag(&experiment, UID, &self.state.uid).await?;
        if let Some(found) = found.into_iter().next() {
            return Ok(found);
        }
        let parent = match &self.about.search {
            None => None,
            Some(search) => Some(self.parent(&experiment, search).await?),
        };
        let body = self.description(&experiment, parent.as_ref());
        self.server.create_run(&body).await?;
        // An answer that was lost may have made one before: the oldest one is it, for everybody.
        let mut made =
            self.server.runs_with_tag(&experiment, UID, &self.state.uid).await?.into_iter();
        let oldest =
            made.next().ok_or_else(|| api::Error::Away("the new run is not found".into()))?;
        for twin in made {
            self.server.delete_run(&twin.id).await?;
        }
        Ok(oldest)
    }

    /// The run of a trial's search, by the name that it has written down.
    async fn parent(&self, experiment: &str, search: &RunLayout) -> Result<RunInfo, Error> {
        if !search.mlflow().is_file() {
            return Err(Error::NoParent);
        }
        let kept: SenderState = about::read_json(&search.mlflow())?;
        let found = self.server.runs_with_tag(experiment, UID, &kept.uid).await?;
        found.into_iter().next().ok_or(Error::NoParent)
    }

    fn description(&self, experiment: &str, parent: Option<&RunInfo>) -> Value {
        let in_force = &self.about.experiment;
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let mut tags = vec![
            (UID.to_string(), self.state.uid.clone()),
            ("salamander.run".to_string(), self.about.id.clone()),
            ("mlflow.runName".to_string(), self.about.id.clone()),
            ("mlflow.source.type".to_string(), "LOCAL".to_string()),
            ("mlflow.source.name".to_string(), "salamander".to_string()),
        ];
        tags.extend(user.map(|user| ("mlflow.user".to_string(), user)));
        tags.extend(
            in_force.description.clone().map(|text| ("mlflow.note.content".to_string(), text)),
        );
        tags.extend(parent.map(|parent| ("mlflow.parentRunId".to_string(), parent.id.clone())));
        tags.extend(
            in_force
                .labels
                .iter()
                .map(|label| (batch::key(&format!("label.{label}")), label.clone())),
        );
        let tags: Vec<Value> =
            tags.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        json!({
            "experiment_id": experiment,
            "run_name": self.about.id,
            "start_time": (self.about.begun * 1000.0) as i64,
            "tags": tags,
        })
    }

    /// Sends parameters that the server has not; false: it has all.
    async fn send_params(&mut self, remote: &RunInfo) -> Result<bool, Error> {
        let all = params(&self.about);
        let new: Vec<(String, String)> =
            all.into_iter().filter(|param| !self.state.params.contains(param)).collect();
        if new.is_empty() {
            return Ok(false);
        }
        for some in new.chunks(MOST_PARAMS) {
            match self.server.log_params(&remote.id, some).await {
                Err(error @ api::Error::Refused { .. }) => {
                    tracing::debug!(%error, "parameters one by one");
                    self.send_each(remote, some).await?;
                }
                sent => sent?,
            }
        }
        self.state.params.retain(|(key, _)| !new.iter().any(|(other, _)| other == key));
        self.state.params.extend(new);
        self.state.keep(&self.run)?;
        Ok(true)
    }

    /// A parameter cannot change there: what a resumed run has changed becomes a tag.
    async fn send_each(
        &mut self,
        remote: &RunInfo,
        params: &[(String, String)],
    ) -> Result<(), Error> {
        for param in params {
            match self.server.log_params(&remote.id, std::slice::from_ref(param)).await {
                Err(api::Error::Refused { .. }) => {
                    self.server
                        .set_tag(&remote.id, &format!("changed.{}", param.0), &param.1)
                        .await?;
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Sends the next file that the server has not; false: it has all.
    async fn send_artifact(&mut self, remote: &RunInfo) -> Result<bool, Error> {
        let mut all = artifacts(&self.run);
        if self.with_checkpoint {
            all.extend(checkpoint_files(&self.run));
        }
        for (name, file) in all {
            // Before it is read: what is written meanwhile is seen the next time.
            let stamp = file.stamp();
            if stamp.is_some() && self.checked.get(&name) == stamp.as_ref() {
                continue;
            }
            let Some(bytes) = file.read() else { continue };
            let sent = (name.clone(), crc32c::crc32c(&bytes));
            if self.state.artifacts.contains(&sent) {
                self.checked.extend(stamp.map(|stamp| (name, stamp)));
                continue;
            }
            match self.server.put_artifact(remote, &name, bytes).await {
                Err(error @ api::Error::Refused { .. }) => {
                    self.refused.push(format!("{name}: {error}"))
                }
                put => put?,
            }
            self.state.artifacts.retain(|(other, _)| *other != name);
            self.state.artifacts.push(sent);
            self.state.keep(&self.run)?;
            self.checked.extend(stamp.map(|stamp| (name, stamp)));
            return Ok(true);
        }
        Ok(false)
    }
}

/// Everything that a run was trained with.
fn params(about: &About) -> Vec<(String, String)> {
    let experiment = &about.experiment;
    let own =
        about.hyperparameters.iter().map(|(name, value)| (batch::key(name), batch::param(value)));
    let mut all: Vec<(String, String)> = own.collect();
    let seed = experiment.reproducibility.experiment_seed;
    let settings = [
        ("model", experiment.model().map(str::to_string)),
        ("global_batch_size", Some(experiment.global_batch.to_string())),
        ("strategy", Some(batch::param(&json!(experiment.strategy)))),
        ("workers", Some(experiment.workers.max.to_string())),
        ("seed", seed.map(|seed| seed.to_string())),
    ];
    for (name, value) in settings {
        // The model's own of this name comes first.
        if let Some(value) = value.filter(|_| !all.iter().any(|(own, _)| own == name)) {
            all.push((name.to_string(), value));
        }
    }
    all
}

/// What an artifact is made of.
enum ArtifactSource {
    File(PathBuf),
    Made(Vec<u8>),
}

/// A file's number, its length, and when it was written.
type FileStamp = (u64, u64, SystemTime);

impl ArtifactSource {
    /// None of what was made, and where there is no such file.
    fn stamp(&self) -> Option<FileStamp> {
        match self {
            Self::File(path) => {
                let file = fs::metadata(path).ok()?;
                Some((file.ino(), file.len(), file.modified().ok()?))
            }
            Self::Made(_) => None,
        }
    }

    /// Its bytes, one artifact at a time; none where there is no such file.
    fn read(self) -> Option<Vec<u8>> {
        match self {
            Self::File(path) => fs::read(path).ok(),
            Self::Made(bytes) => Some(bytes),
        }
    }
}

/// The files that tell how good the model is.
fn artifacts(run: &RunLayout) -> Vec<(String, ArtifactSource)> {
    let files = [
        (EXPERIMENT, run.experiment()),
        (SUMMARY, run.summary()),
        (REPORT, run.report()),
        (CONFUSION, run.confusion()),
    ];
    let file = |(name, path): (&str, PathBuf)| (name.to_string(), ArtifactSource::File(path));
    let mut all: Vec<(String, ArtifactSource)> = files.into_iter().map(file).collect();
    let picture =
        Confusion::read(run).map(|confusion| RgbPicture::of_confusion(&confusion).to_png());
    let made = |png| ("confusion.png".to_string(), ArtifactSource::Made(png));
    all.extend(picture.and_then(Result::ok).map(made));
    all
}

/// The files of the newest checkpoint that counts, as its manifest names them.
fn checkpoint_files(run: &RunLayout) -> Vec<(String, ArtifactSource)> {
    let counted = fs::read_to_string(run.counted()).ok();
    let counts =
        |name: &str| counted.as_ref().is_none_or(|list| list.lines().any(|line| line == name));
    let entries = fs::read_dir(run.checkpoints()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let newest = names.filter(|name| name.starts_with("step-") && counts(name)).max();
    let Some(newest) = newest else { return Vec::new() };
    let folder = run.checkpoints().join(&newest);
    let manifest: Option<Value> = about::read_json(&folder.join(MANIFEST)).ok();
    let files = manifest.as_ref().and_then(|manifest| manifest["files"].as_object());
    let names = files.into_iter().flat_map(|files| files.keys().map(String::as_str));
    let is_within = |name: &&str| {
        Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    let file = |name: &str| {
        (format!("{CHECKPOINTS}/{newest}/{name}"), ArtifactSource::File(folder.join(name)))
    };
    names.filter(is_within).chain([MANIFEST]).map(file).collect()
}

/// MLflow's word for how a run ended.
fn status(state: &str) -> &'static str {
    match state {
        "completed" => "FINISHED",
        "failed" => "FAILED",
        _ => "KILLED",
    }
}
