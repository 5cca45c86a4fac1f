//! Dense parameters as rows of a table: blocks of a fixed number of floats, each parameter in whole blocks, so that
//! servers know nothing but tables.

use std::collections::{BTreeSet, HashMap};

use burn::module::Module;
use burn::tensor::TensorData;
use salamander_core::optimizer::Optimizer;
use salamander_ps::{Initializer, TableSpec};

use crate::gradients::ParamGradient;
use crate::params;

/// Floats of a block.
pub(crate) const BLOCK: usize = 1024;

/// The name of the table, which no table of a model can have.
pub const TABLE: &str = "salamander.dense";

/// Where each parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dense {
    params: Vec<DenseParameter>,
    blocks: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DenseParameter {
    path: String,
    shape: Vec<usize>,
    first: usize,
    floats: usize,
}

impl DenseParameter {
    fn blocks(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.floats.div_ceil(BLOCK)
    }
}

impl Dense {
    /// The trainable parameters of a model, in their fixed order.
    pub(crate) fn of<M: Module>(model: &M) -> Self {
        let mut dense = Self { params: Vec::new(), blocks: 0 };
        for info in params::list(model).into_iter().filter(|info| info.trainable) {
            let floats = info.shape.iter().product();
            let place =
                DenseParameter { path: info.path, shape: info.shape, first: dense.blocks, floats };
            dense.blocks = place.blocks().end;
            dense.params.push(place);
        }
        dense
    }

    /// No parameters.
    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self { params: Vec::new(), blocks: 0 }
    }

    /// How many blocks there are; their ids count from 0.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The table.
    pub(crate) fn spec(&self, optimizer: Optimizer) -> TableSpec {
        TableSpec { init: Initializer::Zeros, optimizer, ..TableSpec::new(TABLE, BLOCK) }
    }

    /// All blocks, from values by path.
    pub(crate) fn gather(&self, values: &[(String, TensorData)]) -> Vec<f32> {
        let by_path: HashMap<&str, &TensorData> =
            values.iter().map(|(path, data)| (path.as_str(), data)).collect();
        let mut blocks = vec![0.0; self.blocks * BLOCK];
        for place in &self.params {
            let Some(data) = by_path.get(place.path.as_str()) else { continue };
            let to = &mut blocks[place.first * BLOCK..][..place.floats];
            to.iter_mut().zip(data.iter::<f32>()).for_each(|(to, value)| *to = value);
        }
        blocks
    }

    /// The parameters that these blocks are of, by path.
    pub(crate) fn scatter(
        &self,
        blocks: &[f32],
        changed: &BTreeSet<usize>,
    ) -> HashMap<String, TensorData> {
        let is_changed = |place: &&DenseParameter| changed.range(place.blocks()).next().is_some();
        let value = |place: &DenseParameter| {
            let values = blocks[place.first * BLOCK..][..place.floats].to_vec();
            (place.path.clone(), TensorData::new(values, place.shape.clone()))
        };
        self.params.iter().filter(is_changed).map(value).collect()
    }

    /// The blocks of a gradient: only of parameters that were used.
    pub(crate) fn pieces(&self, gradient: &[ParamGradient]) -> (Vec<u64>, Vec<f32>) {
        let by_path: HashMap<&str, &DenseParameter> =
            self.params.iter().map(|place| (place.path.as_str(), place)).collect();
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        for param in gradient {
            let (Some(sum), Some(place)) = (&param.sum, by_path.get(param.path.as_str())) else {
                continue;
            };
            ids.extend(place.blocks().map(|block| block as u64));
            values.extend_from_slice(sum);
            values.resize(ids.len() * BLOCK, 0.0);
        }
        (ids, values)
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn parameters_survive_the_way_through_blocks() {
        let model = LinearConfig::new(40, 30).init(&Device::flex().autodiff());
        let dense = Dense::of(&model);
        // 1200 floats are two blocks, 30 are one.
        assert_eq!(dense.blocks(), 3);
        let values = params::read(&model);
        let blocks = dense.gather(&values);
        assert_eq!(blocks.len(), 3 * BLOCK);
        let all = dense.scatter(&blocks, &(0..3).collect());
        assert_eq!(all, values.into_iter().collect::<HashMap<_, _>>());
        let second = dense.scatter(&blocks, &BTreeSet::from([1]));
        assert_eq!(second.keys().collect::<Vec<_>>(), ["weight"]);
    }

    #[test]
    fn a_parameter_that_nothing_used_has_no_pieces() {
        let model = LinearConfig::new(40, 30).init(&Device::flex().autodiff());
        let dense = Dense::of(&model);
        let param = |path: &str, sum| ParamGradient { path: path.to_string(), sum };
        let gradient = [param("weight", None), param("bias", Some(vec![2.0; 30]))];
        let (ids, values) = dense.pieces(&gradient);
        assert_eq!((ids, values.len()), (vec![2], BLOCK));
        assert_eq!((values[29], values[30]), (2.0, 0.0));
    }
}
