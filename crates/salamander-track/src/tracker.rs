//! The sinks of a run while it goes on: a thread each, which nothing waits for until the run is over.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use salamander_core::experiment::{Mlflow, Tracking};
use salamander_core::layout::RunLayout;

use crate::about::About;
use crate::hub::{self, HubSender, is_trial};
use crate::mlflow::{Progress, Sender};
use crate::tensorboard::EventFiles;

/// How often the metrics file is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// The pauses while a server is away.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Who is told of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sinks {
    /// TensorBoard's files are written.
    pub tensorboard: bool,
    /// An MLflow server is told.
    pub mlflow: Option<Mlflow>,
    /// A hub is told, by its address.
    pub hub: Option<String>,
}

impl From<&Tracking> for Sinks {
    fn from(tracking: &Tracking) -> Self {
        let Tracking { tensorboard, mlflow, hub } = tracking.clone();
        Self { tensorboard, mlflow, hub }
    }
}

/// How long the end of a run waits for a server.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// While nothing is heard of it.
    pub silent: Duration,
    /// In all.
    pub longest: Duration,
}

impl Default for Patience {
    /// A run has ended, and people want their terminal back; what was not sent is not lost.
    fn default() -> Self {
        Self { silent: Duration::from_secs(3), longest: Duration::from_secs(60) }
    }
}

/// The sinks of a run. Dropping it ends them, without another word to anybody.
pub struct Tracker {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Option<String>>>,
}

#[derive(Default)]
struct Shared {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Going,
    /// The run is over and has summed up.
    Over { since: Instant, patience: Patience },
    /// Nobody wants anything any more.
    Dropped,
}

impl Shared {
    fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.changed.notify_all();
    }

    /// Waits for this time, or until the stage is another one.
    fn pause(&self, time: Duration) {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let going = |stage: &mut Stage| matches!(stage, Stage::Going);
        let _ = if matches!(*stage, Stage::Going) {
            self.changed.wait_timeout_while(stage, time, going).map(drop)
        } else {
            let dropped = |stage: &mut Stage| !matches!(stage, Stage::Dropped);
            self.changed.wait_timeout_while(stage, time, dropped).map(drop)
        };
    }
}

impl Tracker {
    /// Begins to tell of a run. What is wrong with a sink is told in the log and at the end: it is no reason not to
    /// train.
    pub fn start(run: &RunLayout, sinks: &Sinks) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tracker = Self { shared, threads: Vec::new() };
        if sinks.tensorboard {
            let (own, shared) = (run.clone(), Arc::clone(&tracker.shared));
            tracker.spawn("tensorboard", move || write_events(&own, &shared));
        }
        if let Some(mlflow) = sinks.mlflow.clone() {
            let (own, shared) = (run.clone(), Arc::clone(&tracker.shared));
            tracker.spawn("mlflow", move || tell_mlflow(&own, &mlflow, &shared));
        }
        // A search tells of its trials.
        if let Some(hub) = sinks.hub.clone().filter(|_| !is_trial(run)) {
            let (own, shared) = (run.clone(), Arc::clone(&tracker.shared));
            tracker.spawn("hub", move || tell_hub(&own, &hub, &shared));
        }
        tracker
    }

    /// The run is over and its summary is written: what is left is written and sent, as long as patience lasts.
    /// Returns what people should know.
    pub fn finish(mut self, patience: Patience) -> Vec<String> {
        self.shared.set(Stage::Over { since: Instant::now(), patience });
        self.threads.drain(..).filter_map(|thread| thread.join().ok().flatten()).collect()
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() -> Option<String> + Send + 'static) {
        match Builder::new().name(name.to_string()).spawn(work) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => tracing::warn!(%error, "no thread for {name}"),
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.shared.set(Stage::Dropped);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Writes events to the end of the run; returns what went wrong.
fn write_events(run: &RunLayout, shared: &Shared) -> Option<String> {
    let failed = |error: crate::about::Error| {
        tracing::warn!(%error, "TensorBoard's files are not written any more");
        Some(format!("TensorBoard's files are not complete: {error}"))
    };
    // A search has no metrics of its own; its trials have.
    let about = match About::read(run) {
        Ok(about) if about.is_search => return None,
        Ok(about) => about,
        Err(error) => return failed(error),
    };
    let mut files = EventFiles::new(run, about);
    loop {
        let stage = shared.stage();
        if let Err(error) = files.advance(matches!(stage, Stage::Over { .. })) {
            return failed(error);
        }
        match stage {
            Stage::Going => shared.pause(LOOK),
            Stage::Over { .. } | Stage::Dropped => return None,
        }
    }
}

/// Tells a server to the end of the run; returns what is left.
fn tell_mlflow(run: &RunLayout, mlflow: &Mlflow, shared: &Shared) -> Option<String> {
    let failed = |reason: &dyn std::fmt::Display| {
        let note = format!(
            "MLflow at {} has not heard everything: {reason}; nothing is lost, `salamander track {}` sends the rest",
            mlflow.uri,
            run.folder().display()
        );
        Some(note)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let made = About::read(run).map_err(Into::into);
    let mut sender = match made.and_then(|about| Sender::new(run, about, mlflow)) {
        Ok(sender) => sender,
        Err(error) => return failed(&error),
    };
    let mut talk = Talk { shared, heard: Instant::now(), reason: None, pause: PAUSES.0 };
    loop {
        let stage = shared.stage();
        let over = matches!(stage, Stage::Over { .. });
        let step = runtime.block_on(talk.patiently(sender.advance(over)));
        match step {
            None => return failed(&talk.reason()),
            Some(Ok(progress)) => {
                talk.heard();
                match (progress, stage) {
                    (Progress::Sent, _) => {}
                    (Progress::UpToDate, Stage::Going) => shared.pause(LOOK),
                    (Progress::UpToDate, _) => {
                        let refused = sender.refused();
                        return (!refused.is_empty()).then(|| {
                            format!("MLflow at {} has refused: {}", mlflow.uri, refused.join("; "))
                        });
                    }
                }
            }
            // Of the disk, which may have room again.
            Some(Err(error))
                if error.passes() || matches!(error, crate::mlflow::Error::Folder(_)) =>
            {
                talk.failed("MLflow", &error);
            }
            Some(Err(error)) => return failed(&error),
        }
    }
}

/// Tells a hub to the end of the run; returns what is left.
fn tell_hub(run: &RunLayout, url: &str, shared: &Shared) -> Option<String> {
    let failed = |reason: &dyn std::fmt::Display| {
        Some(format!(
            "the hub at {url} has not heard everything: {reason}; nothing is lost, `salamander track {}` sends the \
             rest",
            run.folder().display()
        ))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let mut sender = match HubSender::new(run, url) {
        Ok(sender) => sender,
        Err(error) => return failed(&error),
    };
    let mut talk = Talk { shared, heard: Instant::now(), reason: None, pause: PAUSES.0 };
    loop {
        let stage = shared.stage();
        let over = matches!(stage, Stage::Over { .. });
        match runtime.block_on(talk.patiently(sender.advance(over))) {
            None => return failed(&talk.reason()),
            Some(Ok(progress)) => {
                talk.heard();
                match (progress, stage) {
                    (Progress::Sent, _) => {}
                    (Progress::UpToDate, Stage::Going) => shared.pause(LOOK),
                    (Progress::UpToDate, _) => return None,
                }
            }
            Some(Err(error @ hub::Error::Refused(_))) => return failed(&error),
            Some(Err(error)) => talk.failed("the hub", &error),
        }
    }
}

/// How a talk with a server goes.
struct Talk<'a> {
    shared: &'a Shared,
    /// When it was heard of last.
    heard: Instant,
    reason: Option<String>,
    pause: Duration,
}

impl Talk<'_> {
    /// What a call came to; nothing once patience is over.
    async fn patiently<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        let mut call = std::pin::pin!(call);
        loop {
            let left = self.left();
            if left == Some(Duration::ZERO) {
                return None;
            }
            // The stage may change while a call is under way.
            let look = left.unwrap_or(LOOK).min(LOOK);
            if let Ok(done) = tokio::time::timeout(look, &mut call).await {
                return Some(done);
            }
        }
    }

    /// How much longer the run's end waits; nothing while the run goes on.
    fn left(&self) -> Option<Duration> {
        match self.shared.stage() {
            Stage::Going => None,
            Stage::Dropped => Some(Duration::ZERO),
            Stage::Over { since, patience } => {
                // Who has answered so far is slow rather than away.
                let silent = patience.silent * if self.reason.is_none() { 4 } else { 1 };
                let silent = silent.saturating_sub(self.heard.max(since).elapsed());
                Some(silent.min(patience.longest.saturating_sub(since.elapsed())))
            }
        }
    }

    fn heard(&mut self) {
        (self.heard, self.reason, self.pause) = (Instant::now(), None, PAUSES.0);
    }

    fn failed(&mut self, who: &str, error: &dyn std::fmt::Display) {
        if self.reason.is_none() {
            tracing::warn!(%error, "{who} is away; what is to be told is kept");
        }
        self.reason = Some(error.to_string());
        let pause = self.left().map_or(self.pause, |left| left.min(PAUSES.0));
        self.shared.pause(pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    fn reason(&self) -> String {
        self.reason.clone().unwrap_or_else(|| "it does not answer".to_string())
    }
}
