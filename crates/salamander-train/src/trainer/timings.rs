//! Where the time of a run goes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Time by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Forward, backward and optimizer.
    pub compute: Duration,
    /// Between workers.
    pub exchange: Duration,
    /// Waiting for records.
    pub data: Duration,
    /// Validation.
    pub test: Duration,
    /// Everything.
    pub wall: Duration,
}

impl Timings {
    /// In seconds, under the names of the command line's contract.
    pub fn to_json(&self) -> Value {
        json!({
            "compute_s": self.compute.as_secs_f64(),
            "exchange_s": self.exchange.as_secs_f64(),
            "data_s": self.data.as_secs_f64(),
            "test_s": self.test.as_secs_f64(),
            "wall_s": self.wall.as_secs_f64(),
        })
    }
}
