//! A world in which a protocol runs, and how it is run: until it is over, or something happened that must not.

use std::fmt::Debug;
use std::ops::DerefMut;

use salamander_core::elastic::Millis;

use super::{Counts, Timeline, say};

/// What must never happen, and did.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// A world of a protocol. Everything in it follows from its seed.
pub(crate) trait Seeded:
    DerefMut<Target = Timeline<Self::Event, Self::Guard>> + Sized
{
    /// What happens at some time.
    type Event;
    /// What can be taken out.
    type Guard: Copy + Debug + PartialEq + Sync + 'static;

    /// The guards that are needed.
    const GUARDS: &'static [Self::Guard];
    /// Worlds of different protocols draw other numbers from the same seed.
    const STREAM: u64;
    /// How many seeds keep every invariant, unless `SALAMANDER_SEEDS` says otherwise.
    const SEEDS: u64;
    /// Seeds after which one violation is enough to show that a guard is needed.
    const ENOUGH: u64;
    /// How long a run may take once nothing goes wrong any more.
    const PATIENCE: Millis;

    /// The world before anything happened.
    fn new(timeline: Timeline<Self::Event, Self::Guard>) -> Self;
    fn happen(&mut self, event: Self::Event);
    /// Whether there is nothing more to see.
    fn is_over(&mut self) -> bool;
    /// Where the run stands, in words.
    fn standing(&self) -> String;
    /// Compares the end of the run with what must hold of it.
    fn judge(&mut self);
    /// What it went through.
    fn counts(&self) -> Counts;
    /// The first violation.
    fn violation(&mut self) -> &mut Option<Violation>;

    /// Notes a violation, if it is the first.
    fn blame(&mut self, invariant: &'static str, what: String) {
        say!(self, "VIOLATION {invariant}: {what}");
        self.violation().get_or_insert(Violation { invariant, what });
    }

    /// Runs the world of a seed to its end or to the first violation, telling what happens if asked to.
    fn run(seed: u64, without: Option<Self::Guard>, trace: bool) -> (Counts, Option<Violation>) {
        let mut world = Self::new(Timeline::new(seed, Self::STREAM, without, trace));
        while world.violation().is_none() && !world.is_over() {
            if world.now > world.quiet + Self::PATIENCE {
                let standing = world.standing();
                world.blame("the run ends", standing);
                break;
            }
            let Some(event) = world.next_event() else { break };
            world.happen(event);
        }
        if world.violation().is_none() {
            world.judge();
        }
        (world.counts(), world.violation().take())
    }
}

/// A world has its timeline's fields and functions beside its own.
macro_rules! on_timeline {
    ($world:ty, $event:ty, $guard:ty) => {
        impl std::ops::Deref for $world {
            type Target = crate::simulation::Timeline<$event, $guard>;

            fn deref(&self) -> &Self::Target {
                &self.timeline
            }
        }

        impl std::ops::DerefMut for $world {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.timeline
            }
        }
    };
}
pub(crate) use on_timeline;
