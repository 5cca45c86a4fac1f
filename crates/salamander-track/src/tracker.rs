//! The sinks of a run while it goes on: a thread each, which nothing waits for until the run is over.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use salamander_core::experiment::{Mlflow, Tracking};
use salamander_core::layout::RunLayout;

use crate::about::About;
use crate::hub::{self, HubSender, is_trial};
use crate::mlflow::{self, SendProgress, Sender};
use crate::tensorboard::EventFiles;
use crate::traces::{self, Collector, TraceSender};

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
    /// A collector of OpenTelemetry is told.
    pub traces: Option<Collector>,
}

impl From<&Tracking> for Sinks {
    fn from(tracking: &Tracking) -> Self {
        let Tracking { tensorboard, mlflow, hub, .. } = tracking.clone();
        Self { tensorboard, mlflow, hub, traces: Collector::from_environment() }
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
    shared: Arc<TrackerShared>,
    threads: Vec<JoinHandle<Option<String>>>,
}

#[derive(Default)]
struct TrackerShared {
    stage: Mutex<TrackerStage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
enum TrackerStage {
    #[default]
    Going,
    /// The run is over and has summed up.
    Over { since: Instant, patience: Patience },
    /// Nobody wants anything any more.
    Dropped,
}

impl TrackerShared {
    fn stage(&self) -> TrackerStage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: TrackerStage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.changed.notify_all();
    }

    /// Waits for this time, or until the stage is another one.
    fn pause(&self, time: Duration) {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let going = |stage: &mut TrackerStage| matches!(stage, TrackerStage::Going);
        let _ = if matches!(*stage, TrackerStage::Going) {
            self.changed.wait_timeout_while(stage, time, going).map(drop)
        } else {
            let dropped = |stage: &mut TrackerStage| !matches!(stage, TrackerStage::Dropped);
            self.changed.wait_timeout_while(stage, time, dropped).map(drop)
        };
    }
}

impl Tracker {
    /// Begins to tell of a run. What is wrong with a sink is told in the log and at the end: it is no reason not to
    /// train.
    pub fn start(run: &RunLayout, sinks: &Sinks) -> Self {
        let shared = Arc::new(TrackerShared::default());
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
        if let Some(collector) = sinks.traces.clone() {
            let (own, shared) = (run.clone(), Arc::clone(&tracker.shared));
            tracker.spawn("traces", move || tell_collector(&own, &collector, &shared));
        }
        tracker
    }

    /// The run is over and its summary is written: what is left is written and sent, as long as patience lasts.
    /// Returns what people should know.
    pub fn finish(mut self, patience: Patience) -> Vec<String> {
        self.shared.set(TrackerStage::Over { since: Instant::now(), patience });
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
        self.shared.set(TrackerStage::Dropped);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Writes events to the end of the run; returns what went wrong.
fn write_events(run: &RunLayout, shared: &TrackerShared) -> Option<String> {
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
        if let Err(error) = files.advance(matches!(stage, TrackerStage::Over { .. })) {
            return failed(error);
        }
        match stage {
            TrackerStage::Going => shared.pause(LOOK),
            TrackerStage::Over { .. } | TrackerStage::Dropped => return None,
        }
    }
}

/// Tells a server to the end of the run; returns what is left.
fn tell_mlflow(run: &RunLayout, mlflow: &Mlflow, shared: &TrackerShared) -> Option<String> {
    let made = About::read(run).map_err(mlflow::Error::from);
    let made = made.and_then(|about| Sender::new(run, about, mlflow));
    let told = made.map_err(|error| error.to_string()).and_then(|mut sender| {
        // The disk may have room again.
        let passes = |error: &_| match error {
            mlflow::Error::Folder(_) => true,
            error => error.passes(),
        };
        tell(shared, "MLflow", passes, async |over| sender.advance(over).await)?;
        Ok(sender.refused().join("; "))
    });
    let who = format!("MLflow at {}", mlflow.uri);
    match told {
        Ok(refused) => (!refused.is_empty()).then(|| format!("{who} has refused: {refused}")),
        Err(reason) => Some(not_heard(&who, &reason, run)),
    }
}

/// Tells a hub to the end of the run; returns what is left.
fn tell_hub(run: &RunLayout, url: &str, shared: &TrackerShared) -> Option<String> {
    let made = HubSender::new(run, url).map_err(|error| error.to_string());
    let told = made.and_then(|mut sender| {
        let passes = |error: &_| !matches!(error, hub::Error::Refused(_));
        tell(shared, "the hub", passes, async |over| sender.advance(over).await)
    });
    told.err().map(|reason| not_heard(&format!("the hub at {url}"), &reason, run))
}

/// Tells a collector to the end of the run; returns what is left.
fn tell_collector(
    run: &RunLayout,
    collector: &Collector,
    shared: &TrackerShared,
) -> Option<String> {
    let made = About::read(run).map_err(traces::Error::from);
    let made = made.and_then(|about| TraceSender::new(run, about, collector));
    let told = made.map_err(|error| error.to_string()).and_then(|mut sender| {
        let passes = |error: &_| !matches!(error, traces::Error::Refused(_));
        tell(shared, "the collector", passes, async |over| sender.advance(over).await)
    });
    told.err()
        .map(|reason| not_heard(&format!("the collector at {}", collector.endpoint), &reason, run))
}

fn not_heard(who: &str, reason: &str, run: &RunLayout) -> String {
    format!(
        "{who} has not heard everything: {reason}; nothing is lost, `salamander track {}` sends the rest",
        run.folder().display()
    )
}

/// Sends what there is until the run is over and everything was sent, or says why not.
fn tell<E: std::fmt::Display>(
    shared: &TrackerShared,
    who: &str,
    passes: impl Fn(&E) -> bool,
    mut advance: impl AsyncFnMut(bool) -> Result<SendProgress, E>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut talk = Talk { shared, heard: Instant::now(), reason: None, pause: PAUSES.0 };
    loop {
        let stage = shared.stage();
        let over = matches!(stage, TrackerStage::Over { .. });
        match runtime.block_on(talk.patiently(advance(over))) {
            None => return Err(talk.reason()),
            Some(Ok(progress)) => {
                talk.heard();
                match (progress, stage) {
                    (SendProgress::Sent, _) => {}
                    (SendProgress::UpToDate, TrackerStage::Going) => shared.pause(LOOK),
                    (SendProgress::UpToDate, _) => return Ok(()),
                }
            }
            Some(Err(error)) if passes(&error) => talk.failed(who, &error),
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}

/// How a talk with a server goes.
struct Talk<'a> {
    shared: &'a TrackerShared,
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
            TrackerStage::Going => None,
            TrackerStage::Dropped => Some(Duration::ZERO),
            TrackerStage::Over { since, patience } => {
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
