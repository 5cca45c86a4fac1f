//! What the simulations of protocols share: worlds with events in the order of their time, seeds run by several
//! threads, and guards that are taken out to show that they are needed.
//!
//! # Layout
//! - `world`: a world and how it is run; `timeline`: time and chance in it; `queue`: events that wait for their time
//! - `seeds`: runs worlds by their seeds; `tally`: what they went through

mod queue;
pub(crate) mod seeds;
mod tally;
mod timeline;
mod world;

pub(crate) use queue::Queue;
pub(crate) use tally::{Counts, Tally, counts};
pub(crate) use timeline::{Timeline, say};
pub(crate) use world::{Seeded, Violation, on_timeline};
