//! Inputs that are normalised by statistics of the data, so that nobody copies means into code.

use std::path::Path;
use std::sync::OnceLock;

use burn::tensor::Tensor;
use salamander_data::preprocess::normalise;
use salamander_data::stats::Stats;

use super::{Column, DecodeError, Target};

/// The means and deviations of an input's columns, read once per process when the first batch needs them.
#[derive(Debug)]
pub struct Normaliser {
    file: &'static str,
    columns: &'static [&'static str],
    /// Mean and standard deviation of each column.
    found: OnceLock<Result<Vec<(f32, f32)>, String>>,
}

impl Normaliser {
    /// From a file, relative to the current folder, that `salamander data inspect --stats --json` wrote.
    pub const fn new(file: &'static str, columns: &'static [&'static str]) -> Self {
        Self { file, columns, found: OnceLock::new() }
    }

    fn read(&self) -> Result<Vec<(f32, f32)>, String> {
        let stats = Stats::from_file(Path::new(self.file)).map_err(|error| error.to_string())?;
        let one = |column: &&str| {
            stats.normaliser(column).ok_or_else(|| {
                let known: Vec<&str> = stats
                    .columns()
                    .iter()
                    .map(|column| column.name.as_str())
                    .filter(|name| stats.normaliser(name).is_some())
                    .collect();
                format!("{} has no numbers of {column:?} (it has: {})", self.file, known.join(", "))
            })
        };
        self.columns.iter().map(one).collect()
    }
}

/// A tensor of floats with mean 0 and deviation 1 over the data of the statistics. Each of several columns has
/// its own, and an equal share of the values.
pub fn normalised_tensor<'a, const D: usize, C: Column + 'a>(
    target: Target<'_, D>,
    columns: impl Iterator<Item = &'a C>,
    normaliser: &Normaliser,
) -> Result<Tensor<D>, DecodeError> {
    let found = normaliser.found.get_or_init(|| normaliser.read());
    let found = found.as_ref().map_err(|error| DecodeError::new(target.name, error))?;
    let mut values = target.values(columns, C::floats)?;
    let each = target.shape[1..].iter().product::<usize>() / found.len().max(1);
    for (part, (mean, std)) in values.chunks_mut(each.max(1)).zip(found.iter().cycle()) {
        part.iter_mut().for_each(|value| *value = normalise(*value, *mean, *std));
    }
    Ok(target.floats(values))
}
