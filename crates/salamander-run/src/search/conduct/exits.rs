//! What the end of a trial's process means: a measurement, another start, or the end of the trial.

use std::fs;

use rustix::io::Errno;
use salamander_core::layout::RunLayout;
use salamander_search::{Ending, SearchEvent, Trial, TrialId, TrialState};
use serde_json::Value as Json;

use super::Conductor;
use crate::Error;
use crate::search::processes::TrialExit;

/// Kills by the system that are tolerated in one trial; they do not count as restarts.
const MAX_KILLS: u64 = 20;
/// Failures of the system in a row, such as a full disk, before the search ends, to be resumed.
const MAX_SYSTEM: u64 = 3;
/// Trials whose hyperparameters the model refuses, with hardly any that it takes, before the search
/// is given up.
const MAX_INVALID: usize = 100;

impl Conductor<'_, '_> {
    /// What the end of a process means.
    pub(super) fn event(
        &mut self,
        trial: TrialId,
        exit: TrialExit,
    ) -> Result<Option<SearchEvent>, Error> {
        self.widths.remove(&trial);
        let Some(known) = self.search().trial(trial) else { return Ok(None) };
        let until = known.until;
        let layout = self.folders.layout(trial);
        let metric = match exit {
            TrialExit::Done => measured(&layout, &self.search().method().metric),
            _ => None,
        };
        let restarts = self.queue.restarts.entry(trial).or_default();
        if let Some(metric) = metric {
            restarts.system = 0;
            return Ok(Some(SearchEvent::Report { trial, length: until, metric }));
        }
        let why = || last_error(&layout).unwrap_or_else(|| "failed without a word".to_string());
        let (why, given_up) = match exit {
            TrialExit::Left => {
                self.queue.queue.push_front(trial);
                return Ok(None);
            }
            TrialExit::Refused => {
                self.refusal = why();
                self.line(format!("trial {trial}: {}", self.refusal));
                return Ok(Some(SearchEvent::Ended { trial, how: Ending::Invalid }));
            }
            TrialExit::Done | TrialExit::System | TrialExit::DiskFull => {
                // Of one that came so far only what it measured is missing.
                let why = if exit == TrialExit::Done { unwritten(&layout) } else { why() };
                restarts.system += 1;
                if restarts.system >= MAX_SYSTEM {
                    let folder = layout.folder().display();
                    let what = format!("trial {trial} cannot go on: {why} (in {folder})");
                    return Err(match exit {
                        // On a full disk a trial may have no place to say so.
                        TrialExit::DiskFull => Error::System { what, cause: Errno::NOSPC.into() },
                        _ => Error::Failed(what),
                    });
                }
                (why, false)
            }
            // It came to where it pauses before the signal did, or did not: it is over.
            TrialExit::Killed(_) if layout.killed().exists() => {
                ("was killed by hand".to_string(), true)
            }
            TrialExit::Killed(signal) => {
                restarts.kills += 1;
                (format!("was killed by signal {signal}"), restarts.kills > MAX_KILLS)
            }
            TrialExit::Diverged => (why(), true),
            TrialExit::Failed => {
                restarts.failures += 1;
                (why(), restarts.failures > self.max_restarts)
            }
        };
        if given_up {
            self.on.end(&layout)?;
            self.line(format!("trial {trial}: {why}; given up"));
            return Ok(Some(SearchEvent::Ended { trial, how: Ending::Failed }));
        }
        self.line(format!("trial {trial}: {why}; started again"));
        self.queue.queue.push_front(trial);
        Ok(None)
    }

    /// A model that refuses everything would be asked for ever.
    pub(super) fn give_up_if_hopeless(&self) -> Result<(), Error> {
        let trials = self.search().trials();
        let is_invalid = |t: &&Trial| t.state == TrialState::Ended(Ending::Invalid);
        let invalid = trials.iter().filter(is_invalid).count();
        match invalid >= MAX_INVALID && invalid > 10 * (trials.len() - invalid) {
            true => Err(Error::Failed(format!(
                "the model refuses the hyperparameters of {invalid} of {} trials, the last because \
                 of: {}",
                trials.len(),
                self.refusal
            ))),
            false => Ok(()),
        }
    }
}

/// What a trial measured where it paused; nothing if its summary does not say. In a summary null is
/// not a number.
fn measured(run: &RunLayout, metric: &str) -> Option<f64> {
    let summary = fs::read_to_string(run.summary()).ok()?;
    let summary: Json = serde_json::from_str(&summary).ok()?;
    let value = summary["metrics"]["validation"].get(metric)?;
    Some(value.as_f64().unwrap_or(f64::NAN))
}

/// Why a summary does not say what was measured: whoever cannot write it has no place to say so, and
/// it is tried again.
fn unwritten(run: &RunLayout) -> String {
    match fs::write(run.summary(), "{}\n") {
        Err(error) => format!("{}: {error}", run.summary().display()),
        Ok(()) => "its summary did not say what it measured".to_string(),
    }
}

/// What went wrong in a trial: what its run says, or its process said last.
fn last_error(run: &RunLayout) -> Option<String> {
    let summary = fs::read_to_string(run.summary()).unwrap_or_default();
    let summary: Json = serde_json::from_str(&summary).unwrap_or_default();
    if let Some(error) = summary["error"].as_str() {
        return Some(error.to_string());
    }
    let log = fs::read_to_string(run.log("worker-0")).ok()?;
    log.lines().rev().find_map(|line| line.strip_prefix("error: ").map(str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_that_was_cut_short_is_no_measurement() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        assert_eq!(measured(&run, "loss"), None, "there is none");
        let whole = r#"{"metrics": {"validation": {"loss": 0.5, "worst": null}}}"#;
        for cut in 0..whole.len() {
            fs::write(run.summary(), &whole[..cut]).expect("written");
            assert_eq!(measured(&run, "loss"), None, "{}", &whole[..cut]);
        }
        fs::write(run.summary(), whole).expect("written");
        assert_eq!(measured(&run, "loss"), Some(0.5));
        assert!(measured(&run, "worst").is_some_and(f64::is_nan));
        assert_eq!(measured(&run, "accuracy"), None);
        assert_eq!(unwritten(&run), "its summary did not say what it measured");
        let nowhere = RunLayout::new(folder.path().join("nowhere"));
        assert!(unwritten(&nowhere).contains("summary.json: No such file"));
    }
}
