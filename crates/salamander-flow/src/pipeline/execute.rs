//! One step carried out: its attempts, its time, its outputs. What fails leaves a message and no artifact.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use salamander_core::layout::RunLayout;
use serde_json::Value as Json;

use super::command;
use super::duration::backoff;
use super::outputs::StepFiles;
use super::planner::{Due, World};
use super::process::{self, ChildEnd, ChildStart};
use super::spec::{Pipeline, PipelineStep};
use super::store::{Artifact, ArtifactManifest, ArtifactStore};

/// How often a wait is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Characters of a log's last line in a message.
const SHOWN: usize = 400;

/// Why a step has left nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepFailure {
    /// All attempts failed; this is why the last one did.
    Failed { why: String, attempts: u32 },
    /// The pipeline was asked to stop.
    Stopped,
}

/// Carries out a step that is due; `note` is told of attempts that failed.
pub(crate) fn execute(
    pipeline: &Pipeline,
    store: &ArtifactStore,
    due: &Due,
    stop: &AtomicBool,
    note: &dyn Fn(String),
) -> Result<ArtifactManifest, StepFailure> {
    let Some(step) = pipeline.step(&due.step) else { return Err(StepFailure::Stopped) };
    // Only who has it may end what an earlier process has left, which else is another's work.
    let _lock = match store.lock_step(&due.instance, &due.key) {
        Ok(lock) => lock,
        Err(error) => return Err(StepFailure::Failed { why: error.to_string(), attempts: 0 }),
    };
    // Another process may have done it meanwhile.
    if let Artifact::Whole(manifest) = store.artifact(&due.key) {
        return Ok(*manifest);
    }
    let begun = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let attempt = Attempt { pipeline, store, step, due };
        let why = match attempt.run(stop) {
            Ok(Tried::Done(mut manifest)) => {
                (manifest.seconds, manifest.attempts) = (begun.elapsed().as_secs_f64(), attempts);
                match store.commit(&mut manifest) {
                    Ok(()) => return Ok(*manifest),
                    Err(error) => format!("cannot keep what it left: {error}"),
                }
            }
            Ok(Tried::Stopped) => return Err(StepFailure::Stopped),
            Ok(Tried::Failed(why)) => why,
            Err(error) => error.to_string(),
        };
        if attempts > step.retries {
            attempt.clean();
            return Err(StepFailure::Failed { why, attempts });
        }
        let wait = backoff(step.backoff, attempts);
        note(format!("attempt {attempts} of {}: {why}; again in {wait:?}", step.retries + 1));
        if !pause(wait, stop) {
            return Err(StepFailure::Stopped);
        }
    }
}

enum Tried {
    Done(Box<ArtifactManifest>),
    Failed(String),
    Stopped,
}

struct Attempt<'a> {
    pipeline: &'a Pipeline,
    store: &'a ArtifactStore,
    step: &'a PipelineStep,
    due: &'a Due,
}

impl Attempt<'_> {
    fn run(&self, stop: &AtomicBool) -> io::Result<Tried> {
        let due = self.due;
        let (folder, log_path) =
            (self.store.folder(&due.key), self.store.log(&due.instance, "log"));
        // First: whoever still writes there is ended.
        let log = process::claim_log(&log_path)?;
        let begun = if due.kind.resumes { begun_run(&folder) } else { Begun::Nothing };
        if let Begun::Nothing = begun {
            renew(&folder)?;
        }
        let json = match begun {
            Begun::Completed(summary) => *summary,
            begun => match self.process(&folder, &log, begun.run(), stop)? {
                Ok(json) => json,
                Err(ChildEnd::Stopped) => return Ok(Tried::Stopped),
                Err(ended) => return Ok(Tried::Failed(self.reason(&ended, &log_path))),
            },
        };
        let artifact = self.store.artifact_folder(&due.key);
        let (step, digester) = (self.step, self.store.digester());
        let found = StepFiles { step, due, folder: &folder, artifact: &artifact, json, digester };
        Ok(match found.collect() {
            Err(why) => Tried::Failed(format!("{why} (log: {})", log_path.display())),
            Ok(left) => Tried::Done(Box::new(ArtifactManifest {
                key: due.key.clone(),
                step: due.step.clone(),
                outputs: left.outputs,
                values: left.values,
                files: left.files,
                seconds: 0.0,
                attempts: 0,
                folder,
            })),
        })
    }

    /// Runs the command; returns the JSON that it ended with, if it is one that does.
    fn process(
        &self,
        folder: &Path,
        log: &File,
        resume: Option<&Path>,
        stop: &AtomicBool,
    ) -> io::Result<Result<Json, ChildEnd>> {
        let program = self.store.program().map_err(io::Error::other)?.0;
        let words = command::line(self.due, &program, folder, resume);
        let is_read = self.due.kind.json || !self.step.values.is_empty();
        let out_path = self.store.log(&self.due.instance, "out");
        let out = if is_read { Some(File::create(&out_path)?) } else { None };
        let start = ChildStart {
            words: &words,
            folder: &self.pipeline.folder,
            log,
            out,
            timeout: self.step.timeout,
            ends_with_us: !self.due.kind.is_shell(),
        };
        let ended = process::run(start, stop)?;
        if ended != ChildEnd::Well {
            return Ok(Err(ended));
        }
        if !is_read {
            return Ok(Ok(Json::Null));
        }
        let text = String::from_utf8_lossy(&fs::read(&out_path)?).into_owned();
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        Ok(Ok(serde_json::from_str(last).unwrap_or_default()))
    }

    fn reason(&self, ended: &ChildEnd, log: &Path) -> String {
        let what = match ended {
            ChildEnd::TimedOut => {
                format!("it took longer than {:?}", self.step.timeout.unwrap_or_default())
            }
            ChildEnd::Badly(what) => what.clone(),
            ChildEnd::Well | ChildEnd::Stopped => String::new(),
        };
        let place = log.display();
        match last_line(log) {
            Some(line) => format!("{what}: {line} (log: {place})"),
            None => format!("{what} (log: {place})"),
        }
    }

    /// Removes what a step that failed has begun; a training can still be gone on with.
    fn clean(&self) {
        if !self.due.kind.resumes {
            // Only a waste of room, which the next attempt removes.
            let _ = fs::remove_dir_all(self.store.folder(&self.due.key));
        }
    }
}

/// What an earlier attempt of a training has left.
enum Begun {
    Nothing,
    Run(PathBuf),
    Completed(Box<Json>),
}

impl Begun {
    fn run(&self) -> Option<&Path> {
        match self {
            Begun::Run(run) => Some(run),
            _ => None,
        }
    }
}

/// The run of an earlier attempt, if it has something to go on with.
fn begun_run(folder: &Path) -> Begun {
    let Ok(entries) = fs::read_dir(folder.join("runs")) else { return Begun::Nothing };
    let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    runs.sort();
    let Some(run) = runs.pop() else { return Begun::Nothing };
    let layout = RunLayout::new(&run);
    let summary = fs::read(layout.summary()).ok();
    let summary = summary.and_then(|bytes| serde_json::from_slice::<Json>(&bytes).ok());
    if let Some(summary) = summary.filter(|summary| summary["state"] == "completed") {
        return Begun::Completed(Box::new(summary));
    }
    let has_checkpoint =
        fs::read_dir(layout.checkpoints()).is_ok_and(|mut all| all.next().is_some());
    let is_search = layout.search().exists() && layout.search_journal().exists();
    if has_checkpoint || is_search { Begun::Run(run) } else { Begun::Nothing }
}

/// Makes a folder empty.
fn renew(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)
}

fn last_line(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let line = text.lines().rfind(|line| !line.trim().is_empty())?.trim();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    Some(line.chars().take(SHOWN).collect())
}

/// Waits; false if it was asked to stop meanwhile.
fn pause(longest: Duration, stop: &AtomicBool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < longest {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        sleep(LOOK.min(longest));
    }
    !stop.load(Ordering::Relaxed)
}
