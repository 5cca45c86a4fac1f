//! Weights and gradients as histograms, for those who ask for them: a line of the run's folder now and then, which
//! TensorBoard is told of.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use salamander_core::layout::RunLayout;
use serde_json::{Map, Value, json};

use super::{Setup, Trainer};
use crate::Error;
use crate::gradients::GradientSum;
use crate::params;
use crate::trial::Trial;

/// Stretches of a histogram, all of the same width.
const BINS: usize = 40;

/// Where histograms go, and how often.
pub(super) struct HistogramLog {
    path: PathBuf,
    every: u64,
}

impl HistogramLog {
    /// As the experiment says; none: it asks for none.
    pub(super) fn of(setup: &Setup) -> Option<Self> {
        let every = setup.experiment.tracking.histograms;
        let path = RunLayout::new(&setup.folder).histograms();
        (every > 0).then_some(Self { path, every })
    }

    fn append(&self, line: &Value) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

impl<T: Trial> Trainer<T> {
    /// The gradients of the step that is being done, if they are to be kept.
    pub(super) fn due_gradients(&self, gradient: &GradientSum) -> Option<GradientSum> {
        let log = self.histograms.as_ref().filter(|_| self.place.leads())?;
        let is_due = self.course.progress().steps.next().0.is_multiple_of(log.every);
        is_due.then(|| gradient.clone())
    }

    /// Keeps gradients, which are to be multiplied by a factor, and the weights after them.
    pub(super) fn keep_histograms(&self, gradient: GradientSum, factor: f32) -> Result<(), Error> {
        let Some(log) = &self.histograms else { return Ok(()) };
        let (mut gradients, mut weights) = (Map::new(), Map::new());
        for param in gradient.into_host(false)? {
            let Some(sum) = param.sum else { continue };
            gradients.insert(param.path, histogram(sum.iter().map(|value| value * factor)));
        }
        for (path, data) in params::read(&*self.state.model) {
            if gradients.contains_key(&path) {
                weights.insert(path, histogram(data.convert::<f32>().iter::<f32>()));
            }
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = json!({
            "steps": self.course.progress().steps, "time": time.as_secs_f64(), "weights": weights,
            "gradients": gradients,
        });
        // As with metrics: a full disk ends the run with the next checkpoint, where it matters.
        if let Err(error) = log.append(&line) {
            tracing::debug!(%error, "histograms are not kept");
        }
        Ok(())
    }
}

/// How values are spread; those that are no numbers are left out.
fn histogram(values: impl Iterator<Item = f32>) -> Value {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).map(f64::from).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.is_empty() {
        return json!({"count": 0});
    }
    let width = ((most - least) / BINS as f64).max(f64::MIN_POSITIVE);
    let mut counts = [0u64; BINS];
    for value in &values {
        counts[(((value - least) / width) as usize).min(BINS - 1)] += 1;
    }
    let (sum, squares) = values
        .iter()
        .fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    json!({
        "count": values.len(), "min": least, "max": most, "sum": sum, "squares": squares, "counts": counts.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_stretch_and_what_is_no_number_in_none() {
        let found = histogram([1.0, 2.0, 3.0, f32::NAN, f32::INFINITY, 3.0].into_iter());
        let counts: Vec<u64> = serde_json::from_value(found["counts"].clone()).expect("counts");
        assert_eq!((counts[0], counts[BINS / 2], counts[BINS - 1]), (1, 1, 2));
        assert_eq!(
            (&found["count"], &found["sum"], &found["squares"]),
            (&json!(4), &json!(9.0), &json!(23.0))
        );
        let same = histogram([0.5; 7].into_iter());
        assert_eq!(
            (&same["min"], &same["max"], &same["counts"][0]),
            (&json!(0.5), &json!(0.5), &json!(7))
        );
        assert_eq!(histogram(std::iter::empty()), json!({"count": 0}));
    }
}
