//! Outputs for every record, in the order of the files.

use std::sync::Arc;

use salamander_data::Dataset;

use crate::Error;
use crate::evaluate::{Over, in_file_order, rows_fit};
use crate::gradients::host;
use crate::trial::Trial;

/// The predictions of a batch: record numbers and one row of outputs each.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictions {
    /// Numbers of the records in the data.
    pub records: Vec<u64>,
    /// Outputs of a record.
    pub width: usize,
    /// Row-major outputs.
    pub values: Vec<f32>,
}

impl Predictions {
    /// Records with their rows.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &[f32])> {
        self.records.iter().copied().zip(self.values.chunks(self.width.max(1)))
    }
}

/// Predicts all records; `each` gets them batch by batch.
pub fn predict<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    each: &mut dyn FnMut(Predictions) -> Result<(), Error>,
) -> Result<u64, Error> {
    let model = model.valid();
    let mut skipped = 0;
    for loaded in in_file_order(&model, dataset, over)? {
        let loaded = loaded?;
        skipped += loaded.tally.skipped;
        let Some(batch) = &loaded.batch else { continue };
        let output = model.predict(model.forward(batch));
        let [rows, width] = output.dims();
        rows_fit::<T, _>(&loaded, rows)?;
        each(Predictions { records: loaded.records, width, values: host(output) })?;
    }
    Ok(skipped)
}
