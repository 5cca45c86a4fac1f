//! Data like the public files of recommenders, drawn from a known truth: what a model could reach at best is
//! then known too.
//!
//! A [`World`] is a truth, made from a seed. Each of its records is a pure function of its number, so that any
//! range can be drawn anywhere, on any machine, and validation data are simply other records of the same world.
//!
//! - [`Census`]: incomes like those of UCI's `adult.data`
//! - [`Criteo`]: clicks like those of Criteo's `train.txt`
//! - [`MovieLens`]: ratings like those of MovieLens' `ratings.dat`
//! - [`Sequences`]: tokens whose order counts, for encoders
//! - [`Pictures`]: pictures of ten classes in the format of CIFAR-10
//! - [`Reachable`]: the AUC and the log-loss of the true probabilities; `draw` holds the distributions

mod census;
mod criteo;
mod draw;
mod movielens;
mod pictures;
mod sequences;

use salamander_core::metrics::{Metric, Metrics};

pub use census::Census;
pub use criteo::Criteo;
pub use movielens::MovieLens;
pub use pictures::{GeneratedPicture, Pictures};
pub use sequences::Sequences;

use crate::{Format, Row, Value};

/// A truth that records are drawn from.
///
/// ```
/// use salamander_data::generate::{Census, Reachable, World};
///
/// let world = Census::new(7);
/// let mut reachable = Reachable::default();
/// for record in 0..1000 {
///     let drawn = world.draw(record);
///     reachable.observe(&drawn);
///     assert_eq!(drawn.row(&world).text("label")?, if drawn.label { "1" } else { "0" });
/// }
/// assert!(reachable.auc() > 0.8, "no model can do better than the truth");
/// # Ok::<(), salamander_data::Error>(())
/// ```
pub trait World: Send + Sync {
    /// The names of the columns.
    fn columns(&self) -> &'static [&'static str];

    /// The format of the public file that this is like.
    fn format(&self) -> Format;

    /// A record by its number.
    fn draw(&self, record: u64) -> Drawn;
}

/// A record and the truth about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// What stands in each column; nothing where a value is missing.
    pub cells: Vec<String>,
    /// How probable it was that the record is a positive one.
    pub probability: f64,
    /// Whether it is.
    pub label: bool,
}

impl Drawn {
    /// The record with the names of the world's columns.
    pub fn row(&self, world: &(impl World + ?Sized)) -> Row<'_> {
        let cells = self.cells.iter().map(|cell| Value::Text(cell));
        Row::new(world.columns().iter().map(|name| (*name).into()).zip(cells).collect())
    }
}

/// What the true probabilities reach on the records observed: no model can do better but by chance.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    counted: Metrics,
    waiting: Vec<(f64, bool)>,
    loss: f64,
    positives: u64,
    records: u64,
}

impl Reachable {
    /// Records kept until they are counted together.
    const TOGETHER: usize = 4096;

    /// Counts a record.
    pub fn observe(&mut self, drawn: &Drawn) {
        let Drawn { probability, label, .. } = *drawn;
        let of_truth = if label { probability } else { 1.0 - probability };
        self.loss -= libm::log(of_truth.max(f64::MIN_POSITIVE));
        self.records += 1;
        self.positives += u64::from(label);
        self.waiting.push((probability, label));
        if self.waiting.len() >= Self::TOGETHER {
            self.counted.merge(&auc(&self.waiting));
            self.waiting.clear();
        }
    }

    /// The area under the ROC curve; not a number while one of the labels has not occurred.
    pub fn auc(&self) -> f64 {
        let all = self.counted.clone().and(auc(&self.waiting));
        all.values().get("auc").copied().unwrap_or(f64::NAN)
    }

    /// The mean of the negative logarithm of what was expected of each label.
    pub fn log_loss(&self) -> f64 {
        self.loss / self.records as f64
    }

    /// The share of positive labels.
    pub fn positives(&self) -> f64 {
        self.positives as f64 / self.records as f64
    }
}

fn auc(scores: &[(f64, bool)]) -> Metrics {
    Metrics::new().with("auc", Metric::auc(scores.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worlds(seed: u64) -> [Box<dyn World>; 4] {
        [
            Box::new(Census::new(seed)),
            Box::new(Criteo::new(seed, 1000)),
            Box::new(MovieLens::new(seed, 500, 300)),
            Box::new(Sequences::new(seed)),
        ]
    }

    #[test]
    fn worlds_are_made_by_their_seed() {
        for ((one, same), other) in worlds(3).iter().zip(&worlds(3)).zip(&worlds(4)) {
            let draw = |world: &dyn World| (0..50).map(|n| world.draw(n)).collect::<Vec<_>>();
            assert_eq!(draw(&**one), draw(&**same));
            assert_ne!(draw(&**one), draw(&**other));
            // Any record at once, whatever was drawn before.
            assert_eq!(one.draw(30), draw(&**one)[30]);
            assert_eq!(one.draw(1 << 40).cells.len(), one.columns().len());
        }
    }

    /// Beside the truth, its opposite, and scores that know nothing.
    #[test]
    fn only_the_truth_reaches_the_reachable() {
        for world in worlds(1) {
            let (mut truth, mut blind) = (Reachable::default(), Reachable::default());
            let mut turned = Reachable::default();
            for record in 0..20_000 {
                let drawn = world.draw(record);
                assert!((0.0..=1.0).contains(&drawn.probability));
                truth.observe(&drawn);
                blind.observe(&Drawn { probability: 0.5, ..drawn.clone() });
                turned.observe(&Drawn { probability: 1.0 - drawn.probability, ..drawn });
            }
            let name = world.format();
            assert!((0.74..0.93).contains(&truth.auc()), "{name}: {}", truth.auc());
            assert!((blind.auc() - 0.5).abs() < 1e-9, "{name}");
            assert!((truth.auc() + turned.auc() - 1.0).abs() < 1e-3, "{name}");
            assert!(truth.log_loss() < blind.log_loss() - 0.05, "{name}: {}", truth.log_loss());
        }
    }

    /// Of all records that the truth calls as probable, that share is positive.
    #[test]
    fn probabilities_are_those_of_the_labels() {
        for world in worlds(2) {
            let mut bins = [(0.0, 0.0, 0.0); 10];
            for record in 0..40_000 {
                let Drawn { probability, label, .. } = world.draw(record);
                let bin = &mut bins[((probability * 10.0) as usize).min(9)];
                *bin = (bin.0 + 1.0, bin.1 + probability, bin.2 + f64::from(u8::from(label)));
            }
            for (records, expected, found) in bins.into_iter().filter(|bin| bin.0 >= 500.0) {
                let deviation = f64::sqrt(expected * (1.0 - expected / records));
                assert!((found - expected).abs() < 4.0 * deviation, "{found} of {expected}");
            }
        }
    }
}
