//! Outputs for every record, in the order of the files.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
//! # #[derive(Example)]
//! # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
//! # #[derive(Module, Debug)]
//! # struct Net { out: Linear }
//! # impl Trial for Net {
//! #     const NAME: &str = "net";
//! #     type Hparams = ();
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//! #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.side)
//! #     }
//! #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
//! # let device = device::select("cpu")?.autodiff();
//! # let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//!
//! let net: Net = build(&Experiment::parse("hyperparameters: {}", &[])?, &device)?;
//! let mut scores = Vec::new();
//! predict(&net, &points, Over::batches_of(3), &mut |batch| {
//!     scores.extend(batch.rows().map(|(record, row)| (record, row.to_vec())));
//!     Ok(())
//! })?;
//! assert_eq!(scores.len(), 4);
//! assert_eq!((scores[3].0, scores[3].1.len()), (3, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use salamander_data::Dataset;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::evaluate::{BatchRange, Over, in_file_order};
use crate::example::{Assets, Example};
use crate::gradients::host;
use crate::trial::{Output, Trial};

/// The predictions of a batch: record numbers and one row of outputs each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predictions {
    /// Numbers of the records in the data.
    pub records: Vec<u64>,
    /// Outputs of a record.
    pub width: usize,
    /// Whether a record's outputs are scores of classes, or one value: see [`Output::CLASSES`].
    pub classes: bool,
    /// Row-major outputs.
    #[serde(with = "bits")]
    pub values: Vec<f32>,
    /// What `forward` gave for them, row by row, where that is one value for each class; else empty.
    #[serde(with = "bits")]
    pub raw: Vec<f32>,
}

impl Predictions {
    /// Records with their rows.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &[f32])> {
        self.records.iter().copied().zip(self.values.chunks(self.width.max(1)))
    }
}

/// Gets the predictions batch by batch; its error ends them.
pub type TakePredictions<'a> = dyn FnMut(Predictions) -> Result<(), Error> + 'a;

/// Predicts all records; `each` gets them batch by batch. Returns how many were skipped. Statistics and vocabularies of
/// the model's examples are looked for in the current folder.
pub fn predict<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    each: &mut TakePredictions<'_>,
) -> Result<u64, Error> {
    let assets = Assets::in_current_folder(T::Example::ASSETS)?;
    predict_part(model, &assets, BatchRange::all(dataset, over), each)
}

/// Predicts the records of some of the batches.
pub fn predict_part<T: Trial>(
    model: &T,
    assets: &Assets,
    part: BatchRange<'_>,
    each: &mut TakePredictions<'_>,
) -> Result<u64, Error> {
    let model = model.valid();
    let mut skipped = 0;
    for loaded in in_file_order(&model, assets, part)? {
        let loaded = loaded?;
        skipped += loaded.tally.skipped;
        let Some(batch) = &loaded.batch else { continue };
        let output = model.forward(batch);
        let raw = if T::Output::CLASSES { output.raw_rows() } else { None };
        let output = model.predict(output);
        let [rows, width] = output.dims();
        let raw =
            raw.filter(|raw| width > 1 && raw.dims() == [rows, width]).map_or_else(Vec::new, host);
        let (records, classes) = (loaded.records, T::Output::CLASSES);
        if records.len() != rows {
            let records = records.len();
            let reason = format!("forward gave {rows} rows for {records} records");
            return Err(Error::model::<T>(reason));
        }
        each(Predictions { records, width, classes, values: host(output), raw })?;
    }
    Ok(skipped)
}

/// Values as their bits: a file between two processes must not change any, and JSON has no NaN.
mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|value| value.to_bits()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
        Ok(Vec::<u32>::deserialize(from)?.into_iter().map(f32::from_bits).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_json_bit_for_bit() {
        let values = vec![0.1, -0.0, f32::NAN, f32::NEG_INFINITY, f32::MIN_POSITIVE / 3.0, 1e30];
        let bits = |p: &Predictions| p.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let raw = values.clone();
        let written = Predictions { records: vec![7, 9], width: 3, classes: true, values, raw };
        let text = serde_json::to_string(&written).expect("JSON");
        let read: Predictions = serde_json::from_str(&text).expect("read");
        assert_eq!((&read.records, read.width), (&written.records, 3));
        assert_eq!(bits(&read), bits(&written));
        assert_eq!(read.raw.len(), 6);
    }
}
