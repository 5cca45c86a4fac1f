//! Sequences of tokens whose class depends on which tokens there are and on what follows certain ones: a model that
//! only
//! counts them misses a part of the truth.

use salamander_core::seed::{self, Rng};

use super::draw::{bias, happens, sigmoid, weight};
use super::{Drawn, World};
use crate::Format;

/// Different tokens.
const TOKENS: u64 = 32;
/// The first of them lend a meaning of their own to the token that follows.
const MARKERS: u64 = 4;
/// How much a token means by itself.
const ALONE: f64 = 0.3;
/// How much it means behind a marker.
const BEHIND: f64 = 0.6;

/// One column per place, and the label.
const COLUMNS: [&str; 33] = [
    "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14",
    "t15", "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27",
    "t28", "t29", "t30", "t31", "label",
];
/// Tokens of a sequence.
const PLACES: usize = COLUMNS.len() - 1;

/// A world of sequences of 32 tokens, each of 32 kinds.
#[derive(Clone, Debug)]
pub struct Sequences {
    seed: u64,
    bias: f64,
}

impl Sequences {
    /// A world.
    pub fn new(seed: u64) -> Sequences {
        let mut world = Sequences { seed, bias: 0.0 };
        world.bias = bias(0.5, |record| world.score(&world.tokens(record)));
        world
    }

    fn tokens(&self, record: u64) -> Vec<u64> {
        let rng = &mut Rng::new(seed::derive(self.seed, &[DRAWS, record]));
        (0..PLACES).map(|_| rng.below(TOKENS)).collect()
    }

    fn score(&self, tokens: &[u64]) -> f64 {
        let alone: f64 = tokens.iter().map(|token| weight(self.seed, &[ALONE_OF, *token])).sum();
        let pairs = tokens.windows(2).filter(|pair| pair[0] < MARKERS);
        let behind: f64 = pairs.map(|pair| weight(self.seed, &[BEHIND_OF, pair[0], pair[1]])).sum();
        ALONE * alone + BEHIND * behind
    }
}

/// The streams of draws: tokens, labels, and the truth about tokens.
const DRAWS: u64 = 1;
const LABELS: u64 = 2;
const ALONE_OF: u64 = 3;
const BEHIND_OF: u64 = 4;

impl World for Sequences {
    fn columns(&self) -> &'static [&'static str] {
        &COLUMNS
    }

    fn format(&self) -> Format {
        Format::Csv
    }

    fn draw(&self, record: u64) -> Drawn {
        let tokens = self.tokens(record);
        let probability = sigmoid(self.score(&tokens) + self.bias);
        let rng = &mut Rng::new(seed::derive(self.seed, &[LABELS, record]));
        let label = happens(rng, probability);
        let mut cells: Vec<String> = tokens.iter().map(u64::to_string).collect();
        cells.push(u8::from(label).to_string());
        Drawn { cells, probability, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_tokens_counts() {
        let world = Sequences::new(1);
        let tokens = world.tokens(7);
        assert!(tokens.iter().all(|token| *token < TOKENS));
        let mut turned = tokens.clone();
        turned.reverse();
        assert_ne!(world.score(&tokens), world.score(&turned));
    }
}
