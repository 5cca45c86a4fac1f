//! What the simulations of protocols share: events in the order of their time, seeds run by several threads, and
//! fences that are taken out to show that they are needed.
//!
//! # Layout
//! - `timeline`: time and chance in a world; `queue`: the events that wait for their time
//! - `seeds`: runs worlds by their seeds; `tally`: what they went through

mod queue;
mod seeds;
mod tally;
mod timeline;

pub(crate) use queue::Queue;
pub(crate) use seeds::{Simulation, Violation};
pub(crate) use tally::{Counts, Tally};
pub(crate) use timeline::{Timeline, say};
