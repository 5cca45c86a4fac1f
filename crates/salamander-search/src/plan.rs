//! What a search would do at most, before anything is measured.

use salamander_core::yaml::Error;
use serde_json::Value as Json;

use crate::machine::TrialId;
use crate::method::{Method, Proposals, SchedulerRule};
use crate::scheduler::{Bracket, Divisor};
use crate::space::Space;

/// A trial of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTrial {
    /// Its number.
    pub id: TrialId,
    /// Its hyperparameters; null where they depend on results.
    pub hparams: Json,
    /// How far it goes.
    pub length: u64,
    /// Why it ends there.
    pub reason: String,
}

/// The trials of a search if each rung lets `max(floor(n / divisor), 1)` go on. Which ones is not known: the first.
pub fn plan(method: &Method, space: &Space) -> Result<Vec<PlannedTrial>, Error> {
    let mut ends: Vec<(u64, String)> = Vec::new();
    match &method.rule {
        SchedulerRule::Halving { divisor, brackets, .. } => {
            for (index, bracket) in brackets.iter().enumerate() {
                let name = match brackets.len() {
                    1 => String::new(),
                    all => format!(" in bracket {} of {all}", index + 1),
                };
                ends.extend(halving(*divisor, bracket, &name));
            }
        }
        SchedulerRule::Pasha { divisor, bracket } => {
            ends.extend(halving(*divisor, bracket, " at most"));
        }
        SchedulerRule::None | SchedulerRule::Median(_) | SchedulerRule::Population(_) => {
            let length = method.longest();
            let reason = match method.rule {
                SchedulerRule::None => "its full length".to_string(),
                _ => "its full length, unless it is stopped or replaced".to_string(),
            };
            ends.resize(method.max_trials as usize, (length, reason));
        }
    }
    let grid = match method.proposals {
        Proposals::Grid => space.grid()?,
        _ => Vec::new(),
    };
    if method.proposals == Proposals::Grid {
        // Brackets have a trial each also where there are fewer points.
        ends.truncate(grid.len());
    }
    let hparams = |index: usize| match method.proposals {
        Proposals::Grid => grid.get(index).cloned().unwrap_or(Json::Null),
        Proposals::Tpe { startup } if index as u64 >= startup => Json::Null,
        _ => space.values(&space.random(method.seed, index as u64 + 1)),
    };
    let trial = |(index, (length, reason)): (usize, (u64, String))| PlannedTrial {
        id: TrialId(index as u64 + 1),
        hparams: hparams(index),
        length,
        reason,
    };
    Ok(ends.into_iter().enumerate().map(trial).collect())
}

fn halving(divisor: Divisor, bracket: &Bracket, name: &str) -> Vec<(u64, String)> {
    let rungs = bracket.rungs.len();
    let mut entered = vec![bracket.max_trials as usize];
    for rung in 1..rungs {
        entered.push(divisor.at_least_one(entered[rung - 1]));
    }
    let end = |trial: usize| {
        let rung = entered.iter().rposition(|count| trial < *count).unwrap_or(0);
        let reason = match rung + 1 == rungs {
            true => format!("the top rung{name}"),
            false => {
                let (all, go_on) = (entered[rung], entered[rung + 1]);
                format!("rung {} of {rungs}{name}: of {all} the best {go_on} go on", rung + 1)
            }
        };
        (bracket.rungs[rung], reason)
    };
    (0..bracket.max_trials as usize).map(end).collect()
}
