//! The master of a run, and the platform that runs a whole run on one machine.
//!
//! The rules are in `salamander_core::elastic`; here they get a journal, a clock and a port. **Architecture
//! invariant**: nothing here decides about membership, and the master is not on the path of a training step.
//!
//! # Layout
//! - [`run()`]: the role: configuration, listener, shutdown
//! - `master`: one thread that tells the mode what happens and does what it decides; `inbox` is what reaches it
//! - `mode`: how work is given out: `members` of generations, `leases` of micro-batches, `tasks`
//! - `cluster`: what every run has: `workers`, `processes`, `events`, the journal
//! - `asynchronous`, `server_calls`: the threads and files of leases
//! - [`journal`], [`record`], `sent_reports`: what a restarted master goes on from
//! - `service`, `guard`, `session`, `status`: the port
//! - [`local`]: starts, watches and ends the processes of a run on this machine

mod asynchronous;
mod clock;
mod cluster;
mod config;
mod events;
mod greeting;
mod guard;
mod inbox;
pub mod journal;
pub mod local;
mod master;
mod mode;
mod processes;
pub mod record;
mod run;
mod sent_reports;
mod server_calls;
mod service;
mod session;
mod status;
mod term_file;
mod workers;

pub use config::{AskedProcesses, Config, ModePlan, PlatformKind, Sink, TaskPlan};
pub use run::{Error, run};
