//! The optimizer at work on a module: one state per parameter path, where the parameter is.
//!
//! A parameter without a gradient stays as it is, which is not what a gradient of zero does:
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::{GradientSum, OptimizerState, ParamGradient, params};
//!
//! let device = Device::flex().autodiff();
//! let before: Linear = LinearConfig::new(2, 1).init(&device);
//! let bias = ParamGradient { path: "bias".to_string(), sum: Some(vec![2.0]) };
//! let pass = Pass::new("train", Optimizer::sgd(0.1));
//! let mut optimizer = OptimizerState::new(&pass);
//! let after = optimizer.step(before.clone(), GradientSum::from_params(vec![bias]), 0.1)?;
//!
//! let values = |layer: &Linear| -> Vec<f32> {
//!     params::read(layer).iter().flat_map(|(_, data)| data.iter::<f32>()).collect()
//! };
//! let (before, after) = (values(&before), values(&after));
//! assert_eq!(before[..2], after[..2], "the weight has no gradient");
//! assert!((after[2] - before[2] + 0.2).abs() < 1e-6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pieces;
mod rule;

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use salamander_core::optimizer::Optimizer;
use salamander_kernels::ops;

use crate::Error;
use crate::gradients::{BucketSum, GradientSum, ParamGradient, host};
use crate::groups::{self, ParamGroup};
use crate::params::keep_path;
use crate::trial::Pass;

/// What an optimizer keeps for one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamState {
    /// How often the parameter was moved.
    pub steps: u64,
    /// The slots that [`Optimizer::slots`] names.
    pub slots: Vec<Vec<f32>>,
}

/// The same on a GPU.
#[derive(Clone, Debug)]
struct DeviceState {
    steps: u64,
    slots: Vec<Tensor<1>>,
}

/// A parameter's state where its last move was made.
#[derive(Clone, Debug)]
enum Placed {
    Host(ParamState),
    Device(DeviceState),
}

impl Placed {
    fn into_host(self) -> ParamState {
        match self {
            Self::Host(state) => state,
            Self::Device(DeviceState { steps, slots }) => {
                ParamState { steps, slots: slots.into_iter().map(host).collect() }
            }
        }
    }
}

/// The state of one pass's optimizer, by parameter path.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    optimizer: Optimizer,
    groups: Vec<ParamGroup>,
    params: HashMap<String, Placed>,
}

impl OptimizerState {
    /// Fresh state: everything is zero and made at first use.
    pub fn new(pass: &Pass) -> Self {
        let groups = pass.groups.clone();
        Self { optimizer: pass.optimizer, groups, params: HashMap::new() }
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The states, by path, as they go into a checkpoint.
    pub fn params(&self) -> HashMap<String, ParamState> {
        let copy = |(path, state): (&String, &Placed)| (path.clone(), state.clone().into_host());
        self.params.iter().map(copy).collect()
    }

    /// Takes a state back from a checkpoint.
    pub fn insert(&mut self, path: String, state: ParamState) {
        self.params.insert(path, Placed::Host(state));
    }

    /// Moves the module's parameters along a gradient; those without one stay untouched. A gradient on a GPU is
    /// followed there, unless the optimizer has no kernel.
    pub fn step<M: Module>(
        &mut self,
        module: M,
        gradient: GradientSum,
        rate: f64,
    ) -> Result<M, Error> {
        self.step_by(module, gradient, Along { rate, factor: 1.0 })
    }

    /// The same with a gradient that is multiplied on the way, usually by one over the number of records.
    pub fn step_by<M: Module>(
        &mut self,
        module: M,
        gradient: GradientSum,
        along: Along,
    ) -> Result<M, Error> {
        let gradient = self.placed(gradient)?;
        Ok(self.moved(module, gradient, along))
    }

    /// The gradient where this optimizer follows it.
    pub(crate) fn placed(&self, gradient: GradientSum) -> Result<GradientSum, Error> {
        match gradient {
            GradientSum::Device(_) if rule::of(&self.optimizer, 0.0, 1).is_none() => {
                gradient.into_host(false).map(GradientSum::Host)
            }
            other => Ok(other),
        }
    }

    /// The module behind a step along a [placed](Self::placed) gradient. On the host a parameter that nobody else
    /// holds is changed in place.
    pub(crate) fn moved<M: Module>(&mut self, module: M, gradient: GradientSum, along: Along) -> M {
        let Along { rate, factor } = along;
        let path = Vec::new();
        match gradient {
            GradientSum::Device(mut sum) => {
                sum.scale(factor);
                let places = sum.used().map(|(part, at)| (part.path.clone(), at)).collect();
                module.map(&mut DeviceStep { path, state: self, places, sum: &sum, rate })
            }
            GradientSum::Host(params) => {
                let with = |param: ParamGradient| Some((param.path, param.sum?));
                let gradients = params.into_iter().filter_map(with).collect();
                module.map(&mut HostStep { path, state: self, gradients, along })
            }
        }
    }

    /// The optimizer of a parameter, and what its rate is multiplied by.
    fn optimizer_of(&self, path: &str) -> (Optimizer, f64) {
        groups::optimizer_of(self.optimizer, &self.groups, path)
    }

    /// A parameter's state, taken out to be moved on the host.
    fn take_to_host(&mut self, path: &str, len: usize) -> ParamState {
        let slots = self.optimizer.slots().len();
        let fresh = || ParamState { steps: 0, slots: vec![vec![0.0; len]; slots] };
        self.params.remove(path).map_or_else(fresh, Placed::into_host)
    }

    /// The same to be moved on a device.
    fn take_to_device(&mut self, path: &str, len: usize, device: &Device) -> DeviceState {
        match self.params.remove(path) {
            Some(Placed::Device(state)) => state,
            Some(Placed::Host(ParamState { steps, slots })) => DeviceState {
                steps,
                slots: slots.into_iter().map(|slot| ops::send(slot, device)).collect(),
            },
            None => {
                let slots = self.optimizer.slots().iter();
                let slots = slots.map(|_| Tensor::zeros([len], device)).collect();
                DeviceState { steps: 0, slots }
            }
        }
    }
}

/// How far to go along a gradient.
#[derive(Clone, Copy, Debug)]
pub struct Along {
    /// The learning rate.
    pub rate: f64,
    /// What the gradient is multiplied by on the way: it saves a pass over it.
    pub factor: f32,
}

struct HostStep<'a> {
    path: Vec<String>,
    state: &'a mut OptimizerState,
    gradients: HashMap<String, Vec<f32>>,
    along: Along,
}

impl ModuleMapper for HostStep<'_> {
    keep_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        let Some(mut gradient) = self.gradients.remove(&path) else { return param };
        let (optimizer, slower) = self.state.optimizer_of(&path);
        let along = Along { rate: self.along.rate * slower, ..self.along };
        let mut state = self.state.take_to_host(&path, gradient.len());
        state.steps += 1;
        let param = param.map(|old| {
            let (shape, device) = (old.shape(), old.device().without_autodiff());
            let mut values = host(old.inner());
            pieces::step(&optimizer, along, &mut values, &mut gradient, &mut state);
            let new = Tensor::<D>::from_data(TensorData::new(values, shape), &device);
            Tensor::from_inner(new).require_grad()
        });
        self.state.insert(path, state);
        param
    }
}

struct DeviceStep<'a> {
    path: Vec<String>,
    state: &'a mut OptimizerState,
    places: HashMap<String, usize>,
    sum: &'a BucketSum,
    rate: f64,
}

impl ModuleMapper for DeviceStep<'_> {
    keep_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        let Some(at) = self.places.get(&path).copied() else { return param };
        let (optimizer, slower) = self.state.optimizer_of(&path);
        let (bucket, factor) = self.sum.bucket();
        let len = param.lazy_shape().num_elements();
        let mut state = self.state.take_to_device(&path, len, &bucket.device());
        state.steps += 1;
        // A gradient is placed on a device only for an optimizer with a kernel.
        let Some(rule) = rule::of(&optimizer, self.rate * slower, state.steps) else {
            return param;
        };
        let gradient = ops::Gradient { bucket, at, factor };
        let param = param.map(|old| {
            let new = ops::step(&rule, old.inner(), gradient, &mut state.slots);
            Tensor::from_inner(new).require_grad()
        });
        self.state.params.insert(path, Placed::Device(state));
        param
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
    use salamander_core::experiment::Clip;

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
            let sum = GradientSum::of(&mine, gradients(&mine, step), &pass);
            mine = state.step(mine, sum, rate).expect("on the host");
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

    /// The CPU as if it were a GPU, and the GPUs that the build has.
    fn devices() -> Vec<Device> {
        let all =
            crate::device::survey().into_iter().filter_map(|kind| kind.devices.ok()).flatten();
        let name =
            |found: Result<crate::device::FoundDevice, String>| found.expect("it works").name;
        all.map(|found| crate::device::select(&name(found)).expect("it works")).collect()
    }

    /// A model of the same values on any device.
    fn model(device: &Device) -> Linear {
        let linear: Linear = LinearConfig::new(3, 2).init(&device.clone().autodiff());
        let values = |count: usize| (0..count).map(|i| (i as f32).sin()).collect::<Vec<f32>>();
        let all = [("weight", vec![3, 2]), ("bias", vec![2])].map(|(path, shape)| {
            (path.to_string(), TensorData::new(values(shape.iter().product()), shape))
        });
        params::write(linear, all.into()).expect("these are its parameters")
    }

    /// The gradient of a step; every third one has none for the bias.
    fn gradient(step: usize) -> Vec<ParamGradient> {
        let values = |count: usize| (0..count).map(|i| (i as f32 + step as f32).cos()).collect();
        let bias = (step % 3 != 2).then(|| values(2));
        let param = |path: &str, sum| ParamGradient { path: path.to_string(), sum };
        vec![param("weight", Some(values(6))), param("bias", bias)]
    }

    fn values(model: &Linear) -> Vec<f32> {
        params::read(model).iter().flat_map(|(_, data)| data.iter::<f32>()).collect()
    }

    /// Eight clipped steps on a device and on the host, with a checkpoint's way to the host and back in between.
    fn check_device(optimizer: impl Into<Optimizer>, clip: Clip, device: &Device) {
        let pass = Pass::new("train", optimizer);
        let rate = pass.optimizer.learning_rate();
        let (mut on_device, mut on_host) = (OptimizerState::new(&pass), OptimizerState::new(&pass));
        let (mut there, mut here) = (model(device), model(&Device::flex()));
        for step in 0..8 {
            let mut host_sum = GradientSum::from_params(gradient(step));
            let bucket = BucketSum::send(&gradient(step), device).expect("has values");
            let mut device_sum = GradientSum::Device(Box::new(bucket));
            let mut norms = Vec::new();
            for sum in [&mut host_sum, &mut device_sum] {
                sum.scale(0.5);
                norms.push(sum.clip(Some(clip)).expect("readable").unwrap_or_default());
            }
            assert!((norms[0] - norms[1]).abs() < 1e-6, "{norms:?}");
            here = on_host.step(here, host_sum, rate).expect("on the host");
            there = on_device.step(there, device_sum, rate).expect("on the device");
            if step == 4 {
                let kept = on_device.params();
                on_device = OptimizerState::new(&pass);
                kept.into_iter().for_each(|(path, state)| on_device.insert(path, state));
            }
        }
        for (a, b) in values(&there).iter().zip(&values(&here)) {
            assert!((a - b).abs() < 2e-5, "{:?} on {device:?}: {a} and {b}", pass.optimizer);
        }
        let (there, here) = (on_device.params(), on_host.params());
        assert_eq!((there["weight"].steps, there["bias"].steps), (8, 6));
        for (path, state) in &here {
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 2e-5;
            for (a, b) in there[path].slots.iter().zip(&state.slots) {
                assert!(a.iter().zip(b).all(close), "{path} on {device:?}: {a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_step_on_a_device_is_the_one_of_the_host() {
        for device in devices() {
            let norm = Clip::Norm(0.7);
            check_device(Optimizer::sgd(0.1).weight_decay(0.1), norm, &device);
            check_device(Optimizer::sgd(0.1).momentum(0.9).nesterov(true), norm, &device);
            check_device(Optimizer::adam(0.1).weight_decay(0.1), Clip::Value(0.2), &device);
            check_device(Optimizer::adamw(0.1), norm, &device);
            // Without a kernel: the same on the host, wherever the gradient was.
            check_device(Optimizer::rmsprop(0.01), norm, &device);
        }
    }
}
