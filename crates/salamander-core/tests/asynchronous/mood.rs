//! The circumstances of a run, drawn from the seed.

use salamander_core::asynchronous::{Consistency, Numbering};
use salamander_core::elastic::Millis;
use salamander_core::plan::Plan;
use salamander_core::seed::Rng;

use crate::truth::Job;

/// The circumstances of a run.
#[derive(Clone, Debug)]
pub(crate) struct Mood {
    pub(crate) workers: u64,
    /// How many messages are lost.
    pub(crate) loss: f64,
    /// How many messages come once more, late and out of order.
    pub(crate) strays: f64,
    /// How often somebody finds a master or a server that was replaced.
    pub(crate) stale: f64,
    /// A master looks from time to time whether it was replaced, not only when it writes.
    pub(crate) looks: bool,
    /// How often a copy takes longer than anybody waits.
    pub(crate) slow: f64,
    /// How often a master wants a checkpoint when it looks around.
    pub(crate) saves: f64,
    /// From then on nothing goes wrong.
    pub(crate) quiet: Millis,
    pub(crate) faults: u64,
    pub(crate) theme: Theme,
}

/// What goes wrong most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Anything,
    Servers,
    Masters,
    Moves,
}

impl Mood {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let themes = [Theme::Anything, Theme::Servers, Theme::Masters, Theme::Moves];
        Self {
            workers: 1 + rng.below(4),
            loss: [0.0, 0.0, 0.01, 0.05][rng.below(4) as usize],
            strays: [0.0, 0.05, 0.2, 0.4][rng.below(4) as usize],
            stale: [0.0, 0.1, 0.5][rng.below(3) as usize],
            looks: rng.below(2) == 0,
            slow: [0.0, 0.0, 0.02, 0.1][rng.below(4) as usize],
            saves: [0.05, 0.15, 0.4][rng.below(3) as usize],
            quiet: 400 + rng.below(2_000),
            faults: rng.below(12),
            theme: themes[rng.below(4) as usize],
        }
    }

    pub(crate) fn draw_job(rng: &mut Rng) -> Job {
        let batch = 2 + rng.below(4);
        let records = batch * (2 + rng.below(3)) + rng.below(batch);
        let aggregation = if rng.below(4) == 0 { 2 } else { 1 };
        let slices = 1 + rng.below(3) as u32;
        let consistency = match rng.below(3) {
            0 => Consistency::Bounded(rng.below(3)),
            _ => Consistency::Async,
        };
        Job {
            names: Numbering::of(&Plan { records, batch, aggregation, slices }),
            epochs: 2 + rng.below(2),
            partitions: 4 + rng.below(3) as u32,
            servers: 1 + rng.below(3) as u32,
            consistency,
        }
    }
}
