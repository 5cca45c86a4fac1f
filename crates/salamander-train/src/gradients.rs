//! Sums of gradients over records, on the host, in the parameters' fixed order.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use salamander_core::experiment::Clip;

use crate::params::Path;
use crate::trial::Pass;

/// The gradient of one parameter; absent while no record used it, which is not the same as zero:
/// momentum and weight decay would move a parameter on zero.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGradient {
    /// The parameter's path.
    pub path: String,
    /// The sum over records.
    pub sum: Option<Vec<f32>>,
}

/// The sum of gradients of a step, over the parameters of one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientSum {
    params: Vec<ParamGradient>,
}

impl GradientSum {
    /// Adds the gradients of a micro-batch.
    pub fn add<M: Module>(&mut self, module: &M, gradients: GradientsParams, pass: &Pass) {
        let first = self.params.is_empty();
        let mut adder =
            Add { path: Path::default(), sums: &mut self.params, gradients, pass, first, at: 0 };
        module.visit(&mut adder);
    }

    /// From what an exchange gave.
    pub fn from_params(params: Vec<ParamGradient>) -> Self {
        Self { params }
    }

    /// The parameters, in their fixed order.
    pub fn params(&self) -> &[ParamGradient] {
        &self.params
    }

    /// Multiplies all of it, usually by one over the number of records.
    pub fn scale(&mut self, factor: f32) {
        for value in self.values_mut() {
            *value *= factor;
        }
    }

    /// Bounds it; returns the norm before, when it had to be computed.
    pub fn clip(&mut self, clip: Option<Clip>) -> Option<f64> {
        match clip? {
            Clip::Value(limit) => {
                let limit = limit as f32;
                self.values_mut().for_each(|value| *value = value.clamp(-limit, limit));
                None
            }
            Clip::Norm(limit) => {
                let norm = self.norm();
                if norm > limit {
                    // The small term is PyTorch's, kept for equal trajectories.
                    self.scale((limit / (norm + 1e-6)) as f32);
                }
                Some(norm)
            }
        }
    }

    /// The norm over all parameters together.
    pub fn norm(&self) -> f64 {
        let values = self.params.iter().flat_map(|param| &param.sum).flatten();
        values.map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.params.iter_mut().flat_map(|param| &mut param.sum).flatten()
    }
}

struct Add<'a> {
    path: Path,
    sums: &'a mut Vec<ParamGradient>,
    gradients: GradientsParams,
    pass: &'a Pass,
    first: bool,
    at: usize,
}

impl ModuleVisitor for Add<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // Running values of normalisation layers are visited too; they have no gradients.
        if !param.base().is_require_grad() {
            return;
        }
        let path = self.path.name();
        if !self.pass.moves(&path) {
            return;
        }
        let new = self.gradients.remove::<D>(param.id).map(host);
        if self.first {
            self.sums.push(ParamGradient { path, sum: new });
            return;
        }
        let sum = &mut self.sums[self.at].sum;
        self.at += 1;
        match (sum.as_mut(), new) {
            (Some(sum), Some(new)) => sum.iter_mut().zip(&new).for_each(|(a, b)| *a += b),
            (None, Some(new)) => *sum = Some(new),
            (_, None) => {}
        }
    }
}

/// A tensor's values as f32; moved, not copied, when nobody else holds the tensor.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec::<f32>()
        .unwrap_or_else(|error| unreachable!("just converted to f32: {error:?}"))
}
