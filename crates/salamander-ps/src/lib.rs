//! The parameter server: tables that no worker can hold, applied exactly once by name.
//!
//! Rows live in [`PARTITIONS`] fixed partitions, the unit of placement, applied names, checkpoints
//! and moves. An [`Engine`] holds some of them, each owned by one thread that nobody else touches.
//! Dense parameters are rows too: blocks of a reserved table whose values are set, not drawn.
//!
//! ```
//! use salamander_ps::{Engine, EngineOptions, Read, Rows, TableSpec};
//!
//! let engine = Engine::new(EngineOptions::default())?;
//! let user = engine.declare(TableSpec::new("user", 4))?;
//! let mut rows = [0.0; 8];
//! engine.pull(user, &[7, 9], Read::Train, &mut rows)?;
//! // The gradient sum of slice 0 of step 0, applied by whoever knows that the step is complete.
//! engine.stage(0, 0, &[Rows { table: user, ids: &[7], values: &[1.0; 4] }])?;
//! engine.advance(1, 1.0, 1.0)?;
//! assert_eq!(engine.version(), 1);
//! # Ok::<(), salamander_ps::Error>(())
//! ```
//!
//! # Layout
//! - [`Engine`] (`engine`): the public handle
//! - `naive`: the tables in maps
//! - `spec`: tables as data; `init`: first values as pure functions of names
//! - `applied`: names of micro-batches that were applied

mod applied;
mod engine;
mod error;
mod init;
mod naive;
mod options;
mod spec;

use salamander_core::seed::mix;

pub use applied::Applied;
pub use engine::{Engine, Snapshot};
pub use error::Error;
pub use init::first_values;
pub use options::{
    Changed, EngineOptions, Held, Mode, Page, Pages, Push, Read, Rows, Stats, TableId, TableStats,
    Written,
};
pub use spec::{Initializer, Storage, TableSpec};

/// Partitions of every table, whatever the number of servers.
pub const PARTITIONS: usize = 1024;

/// The partition of an id, the same for every table.
pub const fn partition_of(id: u64) -> u16 {
    (mix(id) >> 54) as u16
}
