//! What workers and the master say to each other about names.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Map, Report, Task};
use crate::report::{Brief, EvaluationPart, Measured};

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseAsk {
    /// It wants work: at most so many names.
    Work {
        /// How many.
        most: usize,
    },
    /// All servers have acknowledged these names.
    Pushed {
        /// Which, and who acknowledged them.
        report: Report,
        /// What the worker measured, one value for each name.
        measured: Vec<Measured>,
    },
    /// It gives a lease back, with what it has not reported.
    GiveBack {
        /// Which lease.
        fence: u64,
    },
    /// It has validated some batches.
    Validated {
        /// The task.
        task: u64,
        /// Which lease of it.
        fence: u64,
        /// What it found.
        part: EvaluationPart,
    },
}

/// What the master answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseAnswer {
    /// Names to compute and push.
    Leased {
        /// The lease.
        task: Task,
        /// Where the servers listen, in the order of the map.
        servers: Vec<String>,
        /// What the schedule needs to know.
        brief: Brief,
    },
    /// Batches to validate, with nothing of the training under way.
    Validate {
        /// The task.
        task: u64,
        /// Which lease of it.
        fence: u64,
        /// The batches of the validation data.
        batches: Range<u64>,
        /// The map in force.
        map: Map,
        /// Where the servers listen.
        servers: Vec<String>,
    },
    /// There is nothing right now; ask again after so many milliseconds.
    Wait(u64),
    /// The run is complete, or about to end.
    Done,
    /// What the worker said was taken; false: it counts for nothing, and what it is about is for others.
    Heard(bool),
}
