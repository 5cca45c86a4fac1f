//! First values of rows, as pure functions of names: nothing about them has to be stored or sent.

use salamander_core::seed::{derive, mix};

use crate::wire::TableKey;
use crate::{Initializer, TableSpec};

/// Writes the first values of a table's row, as every server would.
pub fn first_values(spec: &TableSpec, seed: u64, id: u64, row: &mut [f32]) {
    FirstValues::new(spec.init, seed, &spec.name).draw(id, row);
}

/// A table's source of first values.
#[derive(Clone, Debug)]
pub(crate) struct FirstValues {
    init: Initializer,
    /// Of the seed and the table's name.
    stream: u64,
}

impl FirstValues {
    pub(crate) fn new(init: Initializer, seed: u64, table: &str) -> Self {
        Self { init, stream: derive(seed, &[TableKey::of(table).0]) }
    }

    /// Writes the first values of a row.
    pub(crate) fn draw(&self, id: u64, row: &mut [f32]) {
        match self.init {
            Initializer::Zeros => row.fill(0.0),
            Initializer::Constant { value } => row.fill(value),
            Initializer::Uniform { low, high } => self.uniform(id, row, low, high),
            Initializer::Normal { mean, deviation } => {
                self.each(id, row, |bits| mean + deviation * normal(bits, 0));
            }
            Initializer::TruncatedNormal { mean, deviation } => {
                self.each(id, row, |bits| mean + deviation * truncated(bits));
            }
            Initializer::Xavier { fan_in, fan_out } => {
                let bound = (6.0 / (fan_in as f64 + fan_out as f64)).sqrt() as f32;
                self.uniform(id, row, -bound, bound);
            }
            Initializer::He { fan_in } => {
                let deviation = (2.0 / fan_in as f64).sqrt() as f32;
                self.each(id, row, |bits| deviation * normal(bits, 0));
            }
        }
    }

    fn uniform(&self, id: u64, row: &mut [f32], low: f32, high: f32) {
        // 24 bits are what an f32 in [0, 1) can hold evenly.
        let width = (high - low) / (1 << 24) as f32;
        self.each(id, row, |bits| low + width * (bits >> 40) as f32);
    }

    fn each(&self, id: u64, row: &mut [f32], value: impl Fn(u64) -> f32) {
        let mut state = mix(self.stream ^ mix(id));
        for element in row {
            *element = value(mix(state));
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// Attempt number `attempt` at a standard normal draw (Box-Muller), in Rust's own logarithm and
/// cosine so that every machine draws the same.
fn normal(bits: u64, attempt: u64) -> f32 {
    let first = mix(bits ^ mix(2 * attempt + 1));
    let second = mix(bits ^ mix(2 * attempt + 2));
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(first)));
    (radius * libm::cos(std::f64::consts::TAU * unit(second))) as f32
}

fn truncated(bits: u64) -> f32 {
    // One draw in twenty lies outside; a hundred in a row do not happen.
    (0..100).map(|attempt| normal(bits, attempt)).find(|value| value.abs() <= 2.0).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(init: Initializer) -> Vec<f32> {
        let values = FirstValues::new(init, 7, "user");
        let mut rows = vec![0.0; 40_000];
        for (id, row) in rows.chunks_mut(4).enumerate() {
            values.draw(id as u64, row);
        }
        rows
    }

    fn check(init: Initializer, mean: f64, deviation: f64, bounds: (f32, f32)) {
        let sample = sample(init);
        let n = sample.len() as f64;
        let got = sample.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let square = sample.iter().map(|v| (f64::from(*v) - got).powi(2)).sum::<f64>() / n;
        assert!((got - mean).abs() < 0.02 * (deviation + 1e-9), "{init:?}: mean {got}");
        assert!((square.sqrt() - deviation).abs() <= 0.02 * deviation, "{init:?}: {square}");
        assert!(sample.iter().all(|v| (bounds.0..=bounds.1).contains(v)), "{init:?}: bounds");
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let all = (f32::MIN, f32::MAX);
        check(Initializer::Zeros, 0.0, 0.0, (0.0, 0.0));
        check(Initializer::Constant { value: 0.5 }, 0.5, 0.0, (0.5, 0.5));
        let third = 1.0 / 3f64.sqrt();
        check(Initializer::Uniform { low: -1.0, high: 1.0 }, 0.0, third, (-1.0, 1.0));
        check(Initializer::Normal { mean: 1.0, deviation: 2.0 }, 1.0, 2.0, all);
        let cut = Initializer::TruncatedNormal { mean: 0.0, deviation: 1.0 };
        check(cut, 0.0, 0.8796, (-2.0, 2.0));
        check(Initializer::Xavier { fan_in: 2, fan_out: 4 }, 0.0, third, (-1.0, 1.0));
        check(Initializer::He { fan_in: 8 }, 0.0, 0.5, all);
    }

    #[test]
    fn draws_depend_on_every_name_and_on_nothing_else() {
        let init = Initializer::Normal { mean: 0.0, deviation: 1.0 };
        let draw = |seed, table, id| {
            let mut row = [0.0; 3];
            FirstValues::new(init, seed, table).draw(id, &mut row);
            row
        };
        let row = draw(1, "user", 5);
        assert_eq!(row, draw(1, "user", 5));
        assert_ne!(row, draw(2, "user", 5));
        assert_ne!(row, draw(1, "item", 5));
        assert_ne!(row, draw(1, "user", 6));
        assert!(row[0] != row[1] && row[1] != row[2]);
    }
}
