//! One hash of everything that was learned: two runs with the same one hold the same bits, wherever they were trained.

use std::path::PathBuf;

use burn::tensor::TensorData;
use salamander_files::Disk;
use salamander_ps::checkpoint::rows_hash;

use super::{OptimizerStates, Snapshot};
use crate::Error;

/// The BLAKE3 hash over path, type, shape and bytes of parameters, running values and optimizer state in the order of
/// their paths, and over the rows of tables by id, whichever servers hold them.
pub(super) fn weights_hash(
    disk: &dyn Disk,
    snapshot: &Snapshot,
    rows: &[PathBuf],
) -> Result<String, Error> {
    let mut hasher = WeightsHasher::default();
    let mut model: Vec<&(String, TensorData)> = snapshot.model.iter().collect();
    model.sort_by_key(|(path, _)| path);
    for (path, data) in model {
        let kind = format!("{:?}", data.dtype());
        hasher.put(&["model", path, &kind], &data.shape().to_vec(), data.as_bytes());
    }
    hasher.put_optimizers(&snapshot.optimizers);
    if !rows.is_empty() {
        hasher.put(&["rows"], &[], &rows_hash(disk, rows)?);
    }
    Ok(hasher.0.finalize().to_hex().to_string())
}

#[derive(Default)]
struct WeightsHasher(blake3::Hasher);

impl WeightsHasher {
    fn put_optimizers(&mut self, states: &OptimizerStates) {
        for (pass, params) in states {
            let mut params: Vec<_> = params.iter().collect();
            params.sort_by_key(|(path, _)| *path);
            for (path, state) in params {
                self.put(&["optimizer", pass, path, "steps"], &[], &state.steps.to_le_bytes());
                for slot in &state.slots {
                    let bytes: Vec<u8> =
                        slot.iter().flat_map(|value| value.to_le_bytes()).collect();
                    self.put(&["optimizer", pass, path], &[slot.len()], &bytes);
                }
            }
        }
    }

    /// Lengths go ahead, so that no two contents run into each other.
    fn put(&mut self, names: &[&str], shape: &[usize], bytes: &[u8]) {
        let lengths = names.iter().map(|name| name.len()).chain(shape.iter().copied());
        let counts = [names.len(), shape.len(), bytes.len()];
        for number in counts.into_iter().chain(lengths) {
            self.0.update(&(number as u64).to_le_bytes());
        }
        names.iter().for_each(|name| {
            self.0.update(name.as_bytes());
        });
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::optimize::ParamState;

    fn hash(model: &[(&str, Vec<f32>)], slots: Vec<Vec<f32>>, steps: u64) -> String {
        let data = |values: &Vec<f32>| TensorData::new(values.clone(), [values.len()]);
        let model = model.iter().map(|(path, values)| (path.to_string(), data(values)));
        let params = HashMap::from([("w".to_string(), ParamState { steps, slots })]);
        let snapshot = Snapshot {
            model: model.collect(),
            optimizers: OptimizerStates::from([("train".to_string(), params)]),
            ..Snapshot::default()
        };
        weights_hash(&*salamander_files::real(), &snapshot, &[]).expect("no file can be damaged")
    }

    #[test]
    fn every_bit_of_what_was_learned_counts_and_its_order_does_not() {
        let (w, b) = (("w", vec![1.0, 2.0]), ("b", vec![0.0]));
        let one = hash(&[w.clone(), b.clone()], vec![vec![3.0]], 1);
        assert_eq!(hash(&[b.clone(), w.clone()], vec![vec![3.0]], 1), one);
        let others = [
            hash(&[w.clone(), ("b", vec![-0.0])], vec![vec![3.0]], 1),
            hash(&[w.clone(), ("c", vec![0.0])], vec![vec![3.0]], 1),
            hash(&[w.clone(), b.clone()], vec![vec![3.1]], 1),
            hash(&[w.clone(), b.clone()], vec![vec![3.0]], 2),
            hash(&[w, b], vec![], 1),
        ];
        assert!(others.iter().all(|other| *other != one));
    }
}
