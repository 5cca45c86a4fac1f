//! The circumstances of a run, drawn from the seed.

use salamander_core::elastic::Millis;
use salamander_core::seed::Rng;

/// The circumstances of a run.
#[derive(Clone, Debug)]
pub(crate) struct Mood {
    pub(crate) workers: usize,
    pub(crate) min: usize,
    /// How many messages are lost, and their connection with them.
    pub(crate) loss: f64,
    /// How many messages come once more, late and out of order.
    pub(crate) strays: f64,
    /// How often a worker finds a master that was replaced.
    pub(crate) stale: f64,
    /// A master looks from time to time whether it was replaced, not only when it writes.
    pub(crate) looks: bool,
    /// From then on nothing goes wrong.
    pub(crate) quiet: Millis,
    /// The first two workers never reach each other, though the master reaches both.
    pub(crate) split: bool,
    /// A run that was stopped is resumed.
    pub(crate) resumes: bool,
    pub(crate) faults: u64,
    /// The longest that applying takes.
    pub(crate) apply: Millis,
    /// Processes that are too many are ended.
    pub(crate) scales_down: bool,
    /// How much longer messages to and from some workers take.
    pub(crate) slow_link: Millis,
    /// Parameter servers to begin with; none: there are no tables.
    pub(crate) servers: usize,
    pub(crate) theme: Theme,
}

/// What goes wrong most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Anything,
    Workers,
    Masters,
    /// Parameter servers and the rows on them.
    Servers,
}

impl Mood {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let crowd = rng.below(50) == 0;
        let workers = if crowd { 6 + rng.below(59) } else { 1 + rng.below(5) } as usize;
        let min = if rng.below(4) == 0 { 2 } else { 1 };
        let most = if rng.below(5) == 0 { 25 } else { 9 };
        let themes = [Theme::Anything, Theme::Workers, Theme::Masters, Theme::Servers];
        // In a crowd nothing else happens on servers.
        let servers = if crowd { 0 } else { [0, 0, 0, 1, 2, 3][rng.below(6) as usize] };
        Self {
            workers,
            min,
            loss: [0.0, 0.0, 0.005, 0.02][rng.below(4) as usize],
            strays: [0.0, 0.0, 0.1, 0.4][rng.below(4) as usize],
            stale: [0.0, 0.1, 0.5][rng.below(3) as usize],
            looks: rng.below(2) == 0,
            quiet: 1_500 + rng.below(4_000),
            resumes: rng.below(2) == 0,
            // Where two are enough but each other's last hope, nothing can be done; and in a crowd it takes long until
            // one of the two is the first to complain.
            split: min == 1 && !crowd && rng.below(15) == 0,
            faults: rng.below(most),
            apply: [12, 150, 150, 1_500][rng.below(4) as usize],
            scales_down: rng.below(3) == 0,
            slow_link: [0, 0, 0, 150][rng.below(4) as usize],
            servers,
            theme: themes[rng.below(if servers > 0 { 4 } else { 3 }) as usize],
        }
    }
}
