//! A search on known results: what it would have done, had trials measured this.
//!
//! Running trials advance equally; of those that report at the same time the one that was made first is heard first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::Value as Json;

use crate::machine::{Ending, Instruction, Search, SearchEvent, TrialAction, TrialId};
use crate::trial::TrialState;

/// What a trial would measure.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownCurve {
    /// The same at every length at which it is looked at.
    Constant(f64),
    /// This at these lengths, and then it ends.
    Points {
        /// Lengths and metrics.
        points: Vec<(u64, f64)>,
        /// How it ends after the last one.
        end: Ending,
    },
}

/// Why a file of curves cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// A line is not what it should be.
    #[error(
        "line {line}: {reason}; write a number, \"nan\", \"invalid\" or a list [[length, metric], ..]"
    )]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// There are more trials than lines.
    #[error("the search makes trial {trial}, and the file has {}", salamander_core::words::count(*lines, "line"))]
    TooFew {
        /// The first trial without a line.
        trial: TrialId,
        /// The lines that there are.
        lines: u64,
    },
}

impl KnownCurve {
    /// Reads a file of curves, one JSON value a line; empty lines do not count.
    pub fn read(text: &str) -> Result<Vec<Self>, CurveError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                curve(line.trim()).map_err(|reason| CurveError::Line { line: index + 1, reason })
            })
            .collect()
    }

    /// What comes after a length, for a trial that is looked at next at `until`.
    fn after(&self, length: u64, until: u64) -> CurveStep {
        match self {
            Self::Constant(metric) => CurveStep::Report(until.max(length + 1), *metric),
            Self::Points { points, end } => match points.iter().find(|(at, _)| *at > length) {
                Some((at, metric)) => CurveStep::Report(*at, *metric),
                None => CurveStep::End(*end),
            },
        }
    }
}

enum CurveStep {
    Report(u64, f64),
    End(Ending),
}

fn curve(line: &str) -> Result<KnownCurve, String> {
    let value: Json = serde_json::from_str(&quoted(line)).map_err(|error| error.to_string())?;
    let ended = |end| Ok(KnownCurve::Points { points: Vec::new(), end });
    match &value {
        Json::String(word) if word == "invalid" => ended(Ending::Invalid),
        Json::String(word) if word == "error" => ended(Ending::Failed),
        Json::Array(items) => {
            let mut points: Vec<(u64, f64)> = Vec::new();
            let mut end = Ending::Completed;
            for item in items {
                match item {
                    Json::String(word) if word == "error" => end = Ending::Failed,
                    Json::String(word) if word == "invalid" => end = Ending::Invalid,
                    _ => points.push(point(item)?),
                }
            }
            let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
            match rising {
                true => Ok(KnownCurve::Points { points, end }),
                false => Err("lengths must rise".to_string()),
            }
        }
        other => metric(other).map(KnownCurve::Constant),
    }
}

fn point(item: &Json) -> Result<(u64, f64), String> {
    let Some([length, value]) = item.as_array().map(Vec::as_slice) else {
        return Err(format!("{item} is no pair of a length and a metric"));
    };
    let whole = length.as_f64().filter(|length| length.fract() == 0.0 && *length >= 0.0);
    let length = whole.ok_or_else(|| format!("{length} is no length"))?;
    Ok((length as u64, metric(value)?))
}

fn metric(value: &Json) -> Result<f64, String> {
    let number = match value {
        Json::Null => Some(f64::NAN),
        Json::String(word) => word.parse().ok(),
        _ => value.as_f64(),
    };
    number.ok_or_else(|| format!("{value} is no metric"))
}

/// JSON has no names for what is not a number or infinite. Python writes some: outside of text they become text.
fn quoted(line: &str) -> String {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => part
            .replace("NaN", "\"nan\"")
            .replace("-Infinity", "\"-inf\"")
            .replace("Infinity", "\"inf\""),
        _ => part.to_string(),
    };
    line.split('"').enumerate().map(part).collect::<Vec<String>>().join("\"")
}

/// Runs a search that has not begun to its end.
pub fn replay(search: &mut Search, curves: &[KnownCurve]) -> Result<(), CurveError> {
    let mut clock = ReplayClock { curves, due: BinaryHeap::new(), now: 0 };
    let first = search.begin();
    clock.follow(search, &first)?;
    while let Some(Reverse((now, trial))) = clock.due.pop() {
        clock.now = now;
        let Some(known) = search.trial(trial).filter(|t| t.state == TrialState::Running) else {
            continue;
        };
        let event = match clock.curve(trial)?.after(known.length(), known.until) {
            CurveStep::Report(length, metric) => SearchEvent::Report { trial, length, metric },
            CurveStep::End(how) => SearchEvent::Ended { trial, how },
        };
        let actions = search.arrive(event);
        clock.follow(search, &actions)?;
        let told = actions.iter().any(|action| action.trial == trial);
        let runs = search.trial(trial).is_some_and(|known| known.state == TrialState::Running);
        if runs && !told && !search.is_waiting(trial) {
            clock.schedule(search, trial)?;
        }
    }
    Ok(())
}

/// What happens when.
struct ReplayClock<'a> {
    curves: &'a [KnownCurve],
    due: BinaryHeap<Reverse<(u64, TrialId)>>,
    now: u64,
}

impl<'a> ReplayClock<'a> {
    fn curve(&self, trial: TrialId) -> Result<&'a KnownCurve, CurveError> {
        let lines = self.curves.len() as u64;
        let curve = self.curves.get(trial.0 as usize - 1);
        curve.ok_or(CurveError::TooFew { trial, lines })
    }

    fn follow(&mut self, search: &Search, actions: &[TrialAction]) -> Result<(), CurveError> {
        for action in actions {
            if let Instruction::Create { .. }
            | Instruction::Train { .. }
            | Instruction::Copy { .. } = action.what
            {
                self.schedule(search, action.trial)?;
            }
        }
        Ok(())
    }

    fn schedule(&mut self, search: &Search, trial: TrialId) -> Result<(), CurveError> {
        let Some(known) = search.trial(trial) else { return Ok(()) };
        let wait = match self.curve(trial)?.after(known.length(), known.until) {
            CurveStep::Report(length, _) => length - known.length(),
            CurveStep::End(_) => 0,
        };
        self.due.push(Reverse((self.now + wait, trial)));
        Ok(())
    }
}
