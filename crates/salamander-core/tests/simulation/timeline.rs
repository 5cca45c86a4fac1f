//! What every simulated world is made of: time, chance, and events that wait for their time.

use salamander_core::elastic::Millis;
use salamander_core::seed::{Rng, derive};

use super::Queue;

/// The part of a world that knows nothing of its protocol. Everything in it follows from the seed.
pub(crate) struct Timeline<E, G> {
    pub(crate) now: Millis,
    pub(crate) rng: Rng,
    /// From then on nothing goes wrong.
    pub(crate) quiet: Millis,
    /// What was taken out.
    pub(crate) without: Option<G>,
    queue: Queue<E>,
    trace: bool,
}

/// Says what happens, when somebody looks.
macro_rules! say {
    ($world:expr, $($words:tt)*) => {
        if $world.is_traced() {
            println!("{:6} {}", $world.now, format!($($words)*));
        }
    };
}
pub(crate) use say;

impl<E, G: Copy + PartialEq> Timeline<E, G> {
    pub(crate) fn new(seed: u64, stream: u64, without: Option<G>, trace: bool) -> Self {
        let rng = Rng::new(derive(seed, &[stream]));
        Self { now: 0, rng, quiet: Millis::MAX, without, queue: Queue::default(), trace }
    }

    pub(crate) fn has(&self, guard: G) -> bool {
        self.without != Some(guard)
    }

    /// The next event; its time is now.
    pub(crate) fn next_event(&mut self) -> Option<E> {
        let (at, event) = self.queue.next()?;
        self.now = at;
        Some(event)
    }

    pub(crate) fn after(&mut self, delay: Millis, event: E) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, time: Millis, event: E) {
        self.queue.put(time, event);
    }

    /// A number in `[low, high]`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low + 1)
    }

    pub(crate) fn chance(&mut self, of: f64) -> bool {
        self.rng.uniform() < of
    }

    /// One of these, if there are any.
    pub(crate) fn any<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let chosen = self.rng.below(all.len() as u64) as usize;
        all.get(chosen).copied()
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace
    }

    /// Whether things still go wrong.
    pub(crate) fn is_wild(&self) -> bool {
        self.now < self.quiet
    }
}
