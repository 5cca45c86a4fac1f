//! The parameter server: tables that no worker can hold, applied exactly once by name.
//!
//! Rows live in [`PARTITIONS`] fixed partitions, the unit of placement, applied names, checkpoints
//! and moves. An [`Engine`] holds some of them, each owned by one thread that nobody else touches.
//! Dense parameters are rows too: blocks of a reserved table whose values are set, not drawn.
//!
//! ```
//! use salamander_core::progress::StepCount;
//! use salamander_ps::{Engine, EngineOptions, Read, TableRows, TableSpec};
//!
//! let engine = Engine::new(EngineOptions::default())?;
//! let user = engine.declare(TableSpec::new("user", 4))?;
//! let mut rows = [0.0; 8];
//! engine.pull(user, &[7, 9], Read::Train, &mut rows)?;
//! // The gradient sum of slice 0 of the first step, applied by whoever knows that the step is complete.
//! engine.stage(StepCount(0), 0, &[TableRows { table: user, ids: &[7], values: &[1.0; 4] }])?;
//! engine.advance(StepCount(1), 1.0, 1.0)?;
//! assert_eq!(engine.version(), StepCount(1));
//! # Ok::<(), salamander_ps::Error>(())
//! ```
//!
//! # Layout
//! - [`Engine`] (`engine`): the handle; `owners`: its threads; [`Shard`]: what one of them owns
//! - `table`: batch look-ups and updates; `index`, `store`, `arena`, `meta`: where rows are;
//!   `fused`: optimizers over a row; `memory`: hints to the machine
//! - `names`, `sum`: what was applied, and what waits for its step
//! - `section`, `image`, [`Snapshot`], [`checkpoint`]: partitions as bytes, in files and on the way
//! - [`RowFiles`]: rows of a checkpoint, read where they are
//! - `spec`, `options`: tables and requests as data; `init`: first values as functions of names;
//!   `placement`: which partitions a server holds
//! - [`wire`], [`server`], [`client`]: the tables for other processes; [`role`]: a process of them

#[cfg(target_endian = "big")]
compile_error!("files and frames are the memory of little-endian machines");

mod arena;
pub mod checkpoint;
pub mod client;
mod engine;
mod error;
mod fused;
mod image;
mod index;
mod init;
mod memory;
mod meta;
mod names;
mod options;
mod owners;
mod placement;
pub mod role;
mod row_files;
mod search;
mod section;
pub mod server;
mod shard;
mod snapshot;
mod spec;
mod store;
mod sum;
mod table;
pub mod wire;

pub use salamander_core::asynchronous::Applied;
use salamander_core::seed::mix;
pub use salamander_core::status::TableStats;

pub use engine::{Engine, PullRows};
pub use error::Error;
pub use init::first_values;
pub use options::{
    Changed, EngineOptions, Held, LedgerPage, Mode, Pages, Push, Read, TableId, TableRows, Written,
};
pub use placement::partitions_of;
pub use row_files::RowFiles;
pub use shard::{Apply, Shard};
pub use snapshot::Snapshot;
pub use spec::{Initializer, Storage, TableSpec};

/// Partitions of every table, whatever the number of servers.
pub const PARTITIONS: usize = 1024;

/// The partition of an id, the same for every table.
pub const fn partition_of(id: u64) -> u16 {
    (mix(id) >> 54) as u16
}
