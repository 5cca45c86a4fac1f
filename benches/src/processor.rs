//! How fast something runs by the clock, and by the processor's time that it takes: on a machine that does other things
//! too only the second is its own.

use std::time::{Duration, Instant};

use super::median;

/// Items per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The median over the steps, by the clock.
    pub clock: f64,
    /// Over all steps, by the time of all threads on the processor.
    pub processor: f64,
}

impl Rates {
    /// The last two numbers of what a program printed.
    pub fn parse(printed: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(printed);
        let mut numbers = text.split_whitespace().rev();
        let processor = numbers.next()?.parse().ok()?;
        Some(Self { clock: numbers.next()?.parse().ok()?, processor })
    }
}

/// Runs `step` for about `time` after a warm-up, `items` being done each time.
pub fn rates(items: f64, time: Duration, mut step: impl FnMut()) -> Rates {
    for _ in 0..3 {
        step();
    }
    let mut clock = Vec::new();
    let (start, spent) = (Instant::now(), spent());
    while clock.len() < 5 || start.elapsed() < time {
        let begun = Instant::now();
        step();
        clock.push(items / begun.elapsed().as_secs_f64());
    }
    let spent = self::spent() - spent;
    Rates { processor: items * clock.len() as f64 / spent, clock: median(&mut clock) }
}

/// Seconds that all threads of this process have had a processor, as Linux counts them; not a number elsewhere.
fn spent() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return f64::NAN };
    // Behind the program's name in brackets, which may have spaces: 12th and 13th, in hundredths.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>());
    ticks.map(|ticks| ticks.unwrap_or(f64::NAN)).sum::<f64>() / 100.0
}
