//! Clicks like those of Criteo: counts that are often missing, hashed values with frequencies of a power law, and
//! a truth of single values and of pairs of them, which is what factorisation machines look for.

use salamander_core::seed::{self, Rng};

use super::draw::{bias, happens, normal, power_law, sigmoid, weight};
use super::{Drawn, World};
use crate::split::shuffle;
use crate::{CRITEO_COLUMNS, Format};

/// The share of clicks in Criteo's data.
const CLICKED: f64 = 0.256;

/// Of each integer column: the mean and the deviation of its logarithm, and how often it is missing.
const COUNTS: [(f64, f64, f64); 13] = [
    (0.8, 1.0, 0.45),
    (1.8, 1.7, 0.0),
    (1.8, 1.3, 0.21),
    (1.5, 0.9, 0.22),
    (7.7, 2.1, 0.03),
    (3.4, 1.5, 0.22),
    (1.6, 1.4, 0.04),
    (2.0, 1.1, 0.001),
    (3.7, 1.4, 0.04),
    (0.4, 0.4, 0.45),
    (1.0, 0.8, 0.04),
    (0.3, 0.6, 0.77),
    (1.6, 0.9, 0.22),
];

/// Of each categorical column: how many values Criteo's has, and how often it is missing.
const CATEGORIES: [(u64, f64); 26] = [
    (1_460, 0.0),
    (583, 0.0),
    (10_131_227, 0.03),
    (2_202_608, 0.03),
    (305, 0.0),
    (24, 0.12),
    (12_517, 0.0),
    (633, 0.0),
    (3, 0.0),
    (93_145, 0.0),
    (5_683, 0.0),
    (8_351_593, 0.03),
    (3_194, 0.0),
    (27, 0.0),
    (14_992, 0.0),
    (5_461_306, 0.03),
    (10, 0.0),
    (5_652, 0.0),
    (2_173, 0.44),
    (4, 0.44),
    (7_046_547, 0.03),
    (18, 0.76),
    (15, 0.0),
    (286_181, 0.03),
    (105, 0.44),
    (142_572, 0.44),
];

/// How frequent the values of a column are: the k-th is `k^-EXPONENT` as frequent as the first.
const EXPONENT: f64 = 1.5;
/// How much a count says, and a value of the column that says most; the n-th column says `FADES^n` of that.
const COUNT_SAYS: f64 = 0.12;
const VALUE_SAYS: f64 = 0.8;
const FADES: f64 = 0.75;
/// How much a pair of values says.
const PAIR_SAYS: f64 = 0.6;
/// How many pairs of columns say something together, by how many factors, and how many values such a column has at
/// most: pairs of rare values could not be learned from any data.
const PAIRS: u64 = 4;
const FACTORS: u64 = 4;
const PAIRED_VALUES: u64 = 3_000;

/// The streams of draws: records, their labels, and the truth about counts, values, pairs and texts.
const RECORDS: u64 = 1;
const LABELS: u64 = 2;
const OF_COUNTS: u64 = 3;
const OF_VALUES: u64 = 4;
const OF_PAIRS: u64 = 5;
const OF_TEXTS: u64 = 6;

/// A world of advertisements that are clicked or not.
#[derive(Clone, Debug)]
pub struct Criteo {
    seed: u64,
    most_values: u64,
    /// How much each column says.
    says: [f64; CATEGORIES.len()],
    /// The columns that say something together.
    pairs: Vec<(usize, usize)>,
    bias: f64,
}

/// What stands in the columns of a record.
struct Shown {
    counts: [Option<u64>; COUNTS.len()],
    values: [Option<u64>; CATEGORIES.len()],
}

impl Criteo {
    /// A world whose columns have as many values as Criteo's, but at most so many each.
    pub fn new(seed: u64, most_values: u64) -> Criteo {
        let rng = &mut Rng::new(seed::derive(seed, &[OF_PAIRS]));
        let mut order: Vec<usize> = (0..CATEGORIES.len()).collect();
        shuffle(&mut order, rng);
        let mut says = [VALUE_SAYS; CATEGORIES.len()];
        order
            .iter()
            .zip(0..)
            .for_each(|(column, place)| says[*column] *= libm::pow(FADES, place.into()));
        order.retain(|column| CATEGORIES[*column].0 <= PAIRED_VALUES);
        let columns = order.len() as u64;
        let pairs = (0..PAIRS).map(|_| {
            let first = rng.below(columns);
            // Never the same column twice.
            let second = (first + 1 + rng.below(columns - 1)) % columns;
            (order[first as usize], order[second as usize])
        });
        let pairs = pairs.collect();
        let mut world = Criteo { seed, most_values: most_values.max(1), says, pairs, bias: 0.0 };
        world.bias = bias(CLICKED, |record| world.score(&world.shown(record)));
        world
    }

    fn shown(&self, record: u64) -> Shown {
        let rng = &mut Rng::new(seed::derive(self.seed, &[RECORDS, record]));
        let counts = COUNTS.map(|(mean, deviation, missing)| {
            let count = libm::exp(mean + deviation * normal(rng)) - 1.0;
            (!happens(rng, missing)).then_some(count.clamp(0.0, 1e9) as u64)
        });
        let values = CATEGORIES.map(|(values, missing)| {
            let value = power_law(rng, values.min(self.most_values), EXPONENT);
            (!happens(rng, missing)).then_some(value)
        });
        Shown { counts, values }
    }

    fn score(&self, shown: &Shown) -> f64 {
        let says = |names: &[u64]| weight(self.seed, names);
        let counts =
            shown.counts.iter().zip(&COUNTS).zip(0..).map(|((count, about), column)| match count {
                Some(count) => {
                    let usual = (libm::log1p(*count as f64) - about.0) / about.1;
                    says(&[OF_COUNTS, column]) * usual.clamp(-3.0, 3.0)
                }
                None => says(&[OF_COUNTS, column, 1]),
            });
        let values = shown.values.iter().zip(0..).map(|(value, column)| {
            let value = value.map_or(0, |value| value + 1);
            self.says[column as usize] * says(&[OF_VALUES, column, value])
        });
        let pairs = self.pairs.iter().map(|&(first, second)| self.pair(shown, first, second));
        COUNT_SAYS * counts.sum::<f64>() + values.sum::<f64>() + PAIR_SAYS * pairs.sum::<f64>()
    }

    /// What the values of two columns say together; nothing where one is missing.
    fn pair(&self, shown: &Shown, first: usize, second: usize) -> f64 {
        let (Some(one), Some(other)) = (shown.values[first], shown.values[second]) else {
            return 0.0;
        };
        let factor = |column: usize, value: u64, factor: u64| {
            weight(self.seed, &[OF_PAIRS, column as u64, value, factor])
        };
        let product = |at: u64| factor(first, one, at) * factor(second, other, at);
        (0..FACTORS).map(product).sum::<f64>() / libm::sqrt(FACTORS as f64)
    }

    /// The 32 bits in hexadecimal that stand for a value.
    fn text(&self, column: u64, value: u64) -> String {
        format!("{:08x}", seed::derive(self.seed, &[OF_TEXTS, column, value]) as u32)
    }
}

impl World for Criteo {
    fn columns(&self) -> &'static [&'static str] {
        &CRITEO_COLUMNS
    }

    fn format(&self) -> Format {
        Format::Criteo
    }

    fn draw(&self, record: u64) -> Drawn {
        let shown = self.shown(record);
        let probability = sigmoid(self.score(&shown) + self.bias);
        let rng = &mut Rng::new(seed::derive(self.seed, &[LABELS, record]));
        let label = happens(rng, probability);
        let mut cells = Vec::with_capacity(CRITEO_COLUMNS.len());
        cells.push(u8::from(label).to_string());
        cells.extend(
            shown.counts.iter().map(|count| count.map_or(String::new(), |n| n.to_string())),
        );
        cells.extend(
            shown.values.iter().zip(0..).map(|(value, column)| {
                value.map_or(String::new(), |value| self.text(column, value))
            }),
        );
        Drawn { cells, probability, label }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn columns_are_missing_and_frequent_as_they_should_be() {
        let world = Criteo::new(1, 1000);
        let records: Vec<Drawn> = (0..8000).map(|record| world.draw(record)).collect();
        let clicked = records.iter().filter(|drawn| drawn.label).count() as f64 / 8000.0;
        assert!((clicked - CLICKED).abs() < 0.03, "{clicked}");
        let missing = |column: &str| {
            let at = CRITEO_COLUMNS.iter().position(|name| *name == column).unwrap();
            records.iter().filter(|drawn| drawn.cells[at].is_empty()).count() as f64 / 8000.0
        };
        let check = |column: &str, share: f64| {
            assert!((missing(column) - share).abs() < 0.02, "{column}: {}", missing(column));
        };
        check("I1", 0.45);
        check("I2", 0.0);
        check("I12", 0.77);
        check("C1", 0.0);
        check("C22", 0.76);

        let mut counts = HashMap::<&str, u32>::new();
        records.iter().for_each(|drawn| *counts.entry(&drawn.cells[16]).or_default() += 1);
        assert!(counts.len() > 300 && counts.len() <= 1001, "{}", counts.len());
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert!(counts[0] > 10 * counts[20] && counts[0] < 8000 / 2, "{:?}", &counts[..21]);
    }

    #[test]
    fn cells_look_like_criteos() {
        let drawn = Criteo::new(2, 100).draw(9);
        assert_eq!(drawn.cells.len(), CRITEO_COLUMNS.len());
        for cell in drawn.cells[1..14].iter().filter(|cell| !cell.is_empty()) {
            cell.parse::<u64>().unwrap();
        }
        for cell in drawn.cells[14..].iter().filter(|cell| !cell.is_empty()) {
            assert!(cell.len() == 8 && u32::from_str_radix(cell, 16).is_ok(), "{cell}");
        }
    }
}
