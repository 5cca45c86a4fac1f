//! A member of a distributed run: the same trainer, with an exchange that meets other workers.
//!
//! ```no_run
//! use salamander_net::Transport;
//! use salamander_train::Error;
//! use salamander_train::model::Model;
//! use salamander_train::trainer::Setup;
//! use salamander_train::worker::{WorkerOptions, WorkerConnection, join};
//!
//! /// Trains with the other workers of a run until it is over.
//! fn work(model: &dyn Model, setup: Setup, connection: WorkerConnection) -> Result<(), Error> {
//!     let membership = join(WorkerOptions {
//!         connection,
//!         listen: [127, 0, 0, 1].into(),
//!         transport: Transport::Auto,
//!         with_servers: false,
//!         start: None,
//!     })?;
//!     let handle = membership.handle.clone();
//!     let outcome = model.take_part(setup, membership)?;
//!     println!("{:?} after {} steps", handle.ending(), outcome.progress.steps);
//!     Ok(())
//! }
//! ```
//!
//! # Layout
//! - `shared`: the participant of `salamander_core::elastic`, shared by the session and the trainer
//! - `group`: the exchange over a ring of workers
//! - `reports`: what is told outside, and when it may be
//! - `meter`: what a worker shows of itself

mod group;
mod meter;
mod reports;
mod shared;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::elastic::{Ending, WorkerId};
use salamander_core::environment;
use salamander_net::{Keys, Token, Transport};
use salamander_proto::client::{Registration, Role, SessionOptions};

use crate::Error;
use crate::callback::Callback;

pub use meter::Meter;

use group::Group;
use reports::Reports;
use shared::SharedMember;

/// How a worker is connected to its run, whatever the strategy.
#[derive(Clone, Debug)]
pub struct WorkerConnection {
    /// The master's address, `host:port`.
    pub master: String,
    /// The run's secrets.
    pub keys: Keys,
    /// The platform's place for this process.
    pub slot: u32,
    /// bf16 on the wire.
    pub bf16: bool,
    /// How often the master hears from this worker.
    pub beat_every: Duration,
    /// Set from outside when this worker has to go.
    pub leave: Arc<AtomicBool>,
    /// What it shows of itself.
    pub meter: Meter,
}

impl WorkerConnection {
    pub(crate) fn has_to_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    pub(crate) fn session(&self) -> SessionOptions {
        let beat_every = self.beat_every;
        SessionOptions { beat_every, ..SessionOptions::of(&self.master, &self.keys) }
    }

    /// What this process is called, as its log is.
    pub(crate) fn process(&self) -> String {
        format!("worker-{}", self.slot)
    }

    /// What this worker says of itself to the master.
    pub(crate) fn registration(&self, id: WorkerId, endpoint: String, role: Role) -> Registration {
        Registration { id, endpoint, slot: self.slot, process: process_number(), role }
    }
}

/// How a worker takes part in generations.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// To the run.
    pub connection: WorkerConnection,
    /// Where other workers reach this one.
    pub listen: IpAddr,
    /// How gradients travel.
    pub transport: Transport,
    /// Whether parameter servers are part of the run.
    pub with_servers: bool,
    /// The checkpoint that a resumed run begins with.
    pub start: Option<String>,
}

/// A worker that is ready to take part: the exchange, the callbacks that tell what happens, and how the run ended
/// once the trainer is back.
pub struct Membership {
    pub(crate) exchange: Box<Group>,
    pub(crate) callbacks: Vec<Box<dyn Callback>>,
    /// What this process is called.
    pub(crate) process: String,
    /// For the program.
    pub handle: Handle,
}

/// What is known of the run when the trainer is back.
#[derive(Clone)]
pub struct Handle(Arc<SharedMember>);

impl Handle {
    /// How the run ended, if the master said so.
    pub fn ending(&self) -> Option<Ending> {
        self.0.with(|machine| machine.ending().cloned())
    }
}

/// Prepares to take part; nothing is said to the master before the trainer is ready.
pub fn join(options: WorkerOptions) -> Result<Membership, Error> {
    let id = fresh_id()?;
    let member = Arc::new(SharedMember::new(id));
    let reports = Reports::default();
    let handle = Handle(Arc::clone(&member));
    let (meter, process) = (options.connection.meter.clone(), options.connection.process());
    let exchange = Box::new(Group::new(id, options, member, reports.clone())?);
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(reports), Box::new(meter)];
    Ok(Membership { exchange, callbacks, process, handle })
}

/// An id that no other worker has.
pub fn fresh_id() -> Result<WorkerId, Error> {
    let random = Token::random().map_err(|error| Error::Invalid(error.to_string()))?;
    // The first digits of a fresh secret that is used for nothing else.
    Ok(WorkerId(u64::from_str_radix(&random.to_hex()[..16], 16).unwrap_or_default()))
}

/// The number that the platform knows this process by. In a pod every process is number 1, so the pod says another.
pub fn process_number() -> u32 {
    let given = std::env::var(environment::PROCESS.name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(std::process::id)
}
