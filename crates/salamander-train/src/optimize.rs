//! The optimizer at work on a module: one state per parameter path.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use salamander_core::optimizer::{Optimizer, Update};

use crate::gradients::{GradientSum, host};
use crate::params::Path;
use crate::trial::Pass;

/// What an optimizer keeps for one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamState {
    /// How often the parameter was moved.
    pub steps: u64,
    /// The slots that [`Optimizer::slots`] names.
    pub slots: Vec<Vec<f32>>,
}

/// The state of one pass's optimizer, by parameter path.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    optimizer: Optimizer,
    params: HashMap<String, ParamState>,
}

impl OptimizerState {
    /// Fresh state: everything is zero and made at first use.
    pub fn new(pass: &Pass) -> Self {
        Self { optimizer: pass.optimizer, params: HashMap::new() }
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The states, by path.
    pub fn params(&self) -> &HashMap<String, ParamState> {
        &self.params
    }

    /// Takes a state back from a checkpoint.
    pub fn insert(&mut self, path: String, state: ParamState) {
        self.params.insert(path, state);
    }

    /// Moves the module's parameters along a gradient; those without one stay untouched.
    #[must_use]
    pub fn step<M: Module>(&mut self, module: M, gradient: &GradientSum, rate: f64) -> M {
        let gradients = gradient
            .params()
            .iter()
            .filter_map(|param| Some((param.path.as_str(), param.sum.as_deref()?)))
            .collect();
        module.map(&mut Step { path: Path::default(), state: self, gradients, rate })
    }
}

struct Step<'a> {
    path: Path,
    state: &'a mut OptimizerState,
    gradients: HashMap<&'a str, &'a [f32]>,
    rate: f64,
}

impl ModuleMapper for Step<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.name();
        let Some(gradient) = self.gradients.get(path.as_str()) else { return param };
        let optimizer = self.state.optimizer;
        let state = self.state.params.entry(path).or_insert_with(|| ParamState {
            steps: 0,
            slots: vec![vec![0.0; gradient.len()]; optimizer.slots().len()],
        });
        state.steps += 1;
        param.map(|old| {
            let (shape, device) = (old.shape(), old.device().without_autodiff());
            let mut values = host(old.inner());
            let update = Update {
                learning_rate: self.rate,
                step: state.steps,
                param: &mut values,
                grad: gradient,
            };
            optimizer.update(update, &mut state.slots);
            let new = Tensor::<D>::from_data(TensorData::new(values, shape), &device);
            Tensor::from_inner(new).require_grad()
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{
        AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, RmsPropConfig, SgdConfig,
        momentum::MomentumConfig,
    };
    use burn::tensor::Device;

    use super::*;
    use crate::params;

    fn gradients(model: &Linear, step: usize) -> GradientsParams {
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::from_data([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], &device);
        let loss = model.forward(x * (1.0 + step as f64 / 3.0)).powi_scalar(2).sum();
        GradientsParams::from_grads(loss.backward(), model)
    }

    /// Ten steps of ours and of Burn's from the same start.
    fn check(ours: impl Into<Optimizer>, mut burns: ModuleOptimizer) {
        let optimizer = ours.into();
        let rate = optimizer.learning_rate();
        let pass = Pass::new("train", optimizer);
        let mut state = OptimizerState::new(&pass);
        let device = Device::flex().autodiff();
        let mut mine: Linear = LinearConfig::new(3, 2).init(&device);
        params::list(&mine);
        let mut theirs = mine.clone();
        for step in 0..10 {
            let mut sum = GradientSum::default();
            sum.add(&mine, gradients(&mine, step), &pass);
            mine = state.step(mine, &sum, rate);
            theirs = burns.step(rate, theirs.clone(), gradients(&theirs, step));
        }
        for ((path, a), (_, b)) in params::read(&mine).iter().zip(&params::read(&theirs)) {
            for (a, b) in a.iter::<f32>().zip(b.iter::<f32>()) {
                assert!((a - b).abs() < 1e-5, "{optimizer:?} {path}: {a} and {b}");
            }
        }
    }

    #[test]
    fn trajectories_equal_burns() {
        check(Optimizer::sgd(0.01), SgdConfig::new().init());
        let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
        check(
            Optimizer::sgd(0.01).momentum(0.9),
            SgdConfig::new().with_momentum(Some(momentum)).init(),
        );
        check(Optimizer::adam(0.01), AdamConfig::new().with_epsilon(1e-8).init());
        check(
            Optimizer::adamw(0.01).weight_decay(0.05),
            AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.05).init(),
        );
        check(
            Optimizer::rmsprop(0.01),
            RmsPropConfig::new().with_alpha(0.99).with_momentum(0.0).with_epsilon(1e-8).init(),
        );
    }
}
