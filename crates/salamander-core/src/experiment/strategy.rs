//! Where gradients meet, and the parameter servers that are part of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where gradients meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// In one process.
    #[default]
    Local,
    /// In a ring of workers.
    Allreduce,
    /// On parameter servers.
    Ps,
    /// Dense parameters in a ring, tables on parameter servers.
    Hybrid,
}

impl Strategy {
    /// Whether parameter servers are part of the run.
    pub fn has_servers(self) -> bool {
        matches!(self, Strategy::Ps | Strategy::Hybrid)
    }
}

/// Parameter servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ps {
    /// How many.
    pub servers: u32,
    /// Threads of each that own rows.
    pub threads: u32,
    /// How far workers may run apart, with strategy `ps`.
    pub mode: PsMode,
    /// With mode `bounded`: by how many steps.
    pub staleness: u64,
    /// With strategy `ps`: micro-batches that a worker computes without pulling dense parameters in between. It pushes
    /// each of them.
    pub local_steps: u64,
    /// With strategy `ps`: divide the learning rate of a push by one more than the number of others that came
    /// since its parameters were pulled.
    pub scale_by_staleness: bool,
}

/// How far workers may run apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PsMode {
    /// As far as it happens.
    #[default]
    Async,
    /// By some steps at most.
    Bounded,
    /// Not at all: every step sums the gradients of all workers, as with strategy `hybrid`, which this is another name
    /// for. Tables are on the servers; dense parameters meet in the ring, since on servers they would travel twice.
    Sync,
}

impl Default for Ps {
    fn default() -> Self {
        Self {
            servers: 1,
            threads: 1,
            mode: PsMode::Async,
            staleness: 4,
            local_steps: 0,
            scale_by_staleness: false,
        }
    }
}
