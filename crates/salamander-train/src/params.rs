//! Parameters by path: reading and writing a module's state under names that every process agrees on.
//!
//! Burn's own parameter ids are random in each process, so they never leave this crate.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::params;
//!
//! let device = Device::flex().autodiff();
//! let trained: Linear = LinearConfig::new(3, 2).init(&device);
//! let paths: Vec<String> = params::list(&trained).into_iter().map(|param| param.path).collect();
//! assert_eq!(paths, ["weight", "bias"]);
//!
//! let fresh: Linear = LinearConfig::new(3, 2).init(&device);
//! let copy = params::write(fresh, params::read(&trained).into_iter().collect())?;
//! assert_eq!(params::read(&copy), params::read(&trained));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fill;

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor, TensorData};

/// A parameter of a module, or a value that it keeps (such as BatchNorm's running mean).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its path: `fc1.weight`.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Whether gradients move it.
    pub trainable: bool,
}

/// The methods of a visitor or a mapper that keep its `path`, the names down to the parameter that it is at.
macro_rules! keep_path {
    () => {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_string());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
    };
}

pub(crate) use keep_path;

pub use fill::{TensorSource, fill};

/// Lists the float parameters of a module that is in training, in their fixed order. Parameters
/// that were not initialised yet are, in this order, so that a seed gives the same values always.
pub fn list<M: Module>(module: &M) -> Vec<ParamInfo> {
    #[derive(Default)]
    struct List {
        path: Vec<String>,
        found: Vec<ParamInfo>,
    }
    impl ModuleVisitor for List {
        keep_path!();

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            self.found.push(ParamInfo {
                path: self.path.join("."),
                shape: value.dims().to_vec(),
                trainable: value.is_require_grad(),
            });
        }
    }
    let mut list = List::default();
    module.visit(&mut list);
    list.found
}

/// How many numbers of a module are trained.
pub(crate) fn trainable<M: Module>(module: &M) -> u64 {
    let size = |info: &ParamInfo| info.shape.iter().product::<usize>() as u64;
    list(module).iter().filter(|info| info.trainable).map(size).sum()
}

/// Everything a module keeps, by path. Running values that are still pending are taken in first.
pub fn read<M: Module>(module: &M) -> Vec<(String, TensorData)> {
    read_some(module, None)
}

/// What a module in training keeps besides its trainable parameters: BatchNorm's running values.
pub(crate) fn running<M: Module>(module: &M) -> Vec<(String, TensorData)> {
    let kept = list(module).into_iter().filter(|info| !info.trainable).map(|info| info.path);
    let kept: Vec<String> = kept.collect();
    if kept.is_empty() {
        return Vec::new();
    }
    let found = read_some(module, Some(kept)).into_iter();
    found.map(|(path, data)| (path, data.convert::<f32>())).collect()
}

/// The values of these paths, or of all.
fn read_some<M: Module>(module: &M, only: Option<Vec<String>>) -> Vec<(String, TensorData)> {
    let mut read = Read { path: Vec::new(), only, found: Vec::new() };
    // `valid` is what folds pending updates of running values in; a plain visit may be one late.
    module.valid().visit(&mut read);
    read.found
}

struct Read {
    path: Vec<String>,
    only: Option<Vec<String>>,
    found: Vec<(String, TensorData)>,
}

impl Read {
    fn take(&mut self, data: impl FnOnce() -> TensorData) {
        let path = self.path.join(".");
        if self.only.as_ref().is_none_or(|only| only.contains(&path)) {
            self.found.push((path, data()));
        }
    }
}

impl ModuleVisitor for Read {
    keep_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.take(|| param.val().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.take(|| param.val().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.take(|| param.val().into_data());
    }
}

/// A copy with the same parameter ids whose running values are its own: Burn's clones share them.
pub(crate) fn private_copy<M: Module>(module: &M) -> M {
    module.valid().train()
}

/// Replaces everything a module keeps. Names and shapes must fit exactly.
pub fn write<M: Module>(module: M, values: HashMap<String, TensorData>) -> Result<M, String> {
    write_some(module, values, true)
}

/// Replaces what is named and leaves the rest.
pub fn overwrite<M: Module>(module: M, values: HashMap<String, TensorData>) -> Result<M, String> {
    write_some(module, values, false)
}

fn write_some<M: Module>(
    module: M,
    values: HashMap<String, TensorData>,
    all: bool,
) -> Result<M, String> {
    let mut write = Write { path: Vec::new(), values, all, wrong: Vec::new() };
    // Through `valid`, so that pending running values cannot overwrite the ones written here.
    let module = module.valid().map(&mut write).train();
    let Write { values, mut wrong, .. } = write;
    wrong.extend(values.keys().map(|path| format!("{path} is not in the model")));
    match wrong.is_empty() {
        true => Ok(module),
        false => Err(described(wrong)),
    }
}

/// What does not fit, the first of it.
fn described(mut wrong: Vec<String>) -> String {
    wrong.sort();
    let more = wrong.len().saturating_sub(5);
    wrong.truncate(5);
    let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{tail}", wrong.join("; "))
}

struct Write {
    path: Vec<String>,
    values: HashMap<String, TensorData>,
    all: bool,
    wrong: Vec<String>,
}

impl Write {
    fn take(&mut self, shape: &[usize]) -> Option<TensorData> {
        let path = self.path.join(".");
        match self.values.remove(&path) {
            None if self.all => self.wrong.push(format!("{path} is missing")),
            None => {}
            Some(data) if data.shape().to_vec() != shape => {
                let found = data.shape().to_vec();
                self.wrong.push(format!("{path} has shape {found:?}, the model's is {shape:?}"));
            }
            Some(data) => return Some(data),
        }
        None
    }
}

impl ModuleMapper for Write {
    keep_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.take(&param.lazy_shape().to_vec()) {
            Some(data) => param.map(|old| Tensor::from_data(data, &old.device())),
            None => param,
        }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        match self.take(&param.val().dims()) {
            Some(data) => param.map(|old| Tensor::from_data(data, &old.device())),
            None => param,
        }
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<D, Bool>>,
    ) -> Param<Tensor<D, Bool>> {
        match self.take(&param.val().dims()) {
            Some(data) => param.map(|old| Tensor::from_data(data, &old.device())),
            None => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[derive(Module, Debug)]
    struct ParamsNet {
        fc: Linear,
        norm: BatchNorm,
    }

    fn net() -> ParamsNet {
        let device = Device::flex().autodiff();
        ParamsNet {
            fc: LinearConfig::new(3, 2).init(&device),
            norm: BatchNormConfig::new(2).init(&device),
        }
    }

    fn train(net: &ParamsNet) {
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::random([16, 3], Distribution::Normal(3.0, 1.0), &device);
        net.norm.forward(net.fc.forward(x));
    }

    #[test]
    fn paths_and_kinds_are_listed() {
        let found: Vec<(String, bool)> =
            list(&net()).into_iter().map(|info| (info.path, info.trainable)).collect();
        let expected = [
            ("fc.weight", true),
            ("fc.bias", true),
            ("norm.gamma", true),
            ("norm.beta", true),
            ("norm.running_mean", false),
            ("norm.running_var", false),
        ];
        assert_eq!(found, expected.map(|(path, trainable)| (path.to_string(), trainable)));
    }

    #[test]
    fn state_moves_to_another_module() {
        let from = net();
        list(&from);
        train(&from);
        let to = write(net(), read(&from).into_iter().collect()).expect("same shapes");
        assert_eq!(read(&to), read(&from));
        assert!(list(&to).iter().filter(|info| info.trainable).count() == 4);
    }

    #[test]
    fn a_private_copy_keeps_its_own_running_values() {
        let net = net();
        let before = running(&net);
        let copy = private_copy(&net);
        train(&copy);
        assert_eq!(running(&net), before);
        assert_ne!(running(&copy), before);
        let net = overwrite(net, running(&copy).into_iter().collect()).expect("same shapes");
        assert_eq!(running(&net), running(&copy));
    }

    #[test]
    fn misfits_are_named() {
        let values = [("fc.weight", vec![2, 2]), ("fc.extra", vec![1])]
            .map(|(path, shape)| (path.to_string(), TensorData::zeros::<f32, _>(shape)));
        let error = overwrite(net(), values.into()).expect_err("wrong");
        assert_eq!(
            error,
            "fc.extra is not in the model; fc.weight has shape [2, 2], the model's is [3, 2]"
        );
    }
}
