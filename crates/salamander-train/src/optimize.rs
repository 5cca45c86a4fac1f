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
