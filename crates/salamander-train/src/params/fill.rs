//! Values for a module that was just built: they take the place of what would have been drawn, one tensor after the
//! other, and nothing is drawn.

use std::collections::HashSet;

use burn::module::{Module, ModuleMapper, Param, Parameter};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::{described, keep_path};

/// Where named tensors come from, each of them once.
pub trait TensorSource {
    /// All names.
    fn names(&self) -> Vec<String>;
    /// The shape of one, without its values.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;
    /// The values of one.
    fn read(&mut self, name: &str) -> Result<TensorData, String>;
}

/// Gives a module that was just built all that it keeps. Names and shapes must fit exactly.
pub fn fill<M: Module>(module: M, source: impl TensorSource) -> Result<M, String> {
    let names: HashSet<String> = source.names().into_iter().collect();
    let mut fill = Fill { path: Vec::new(), names, source, wrong: Vec::new() };
    let module = module.map(&mut fill);
    let Fill { names, mut wrong, .. } = fill;
    wrong.extend(names.iter().map(|path| format!("{path} is not in the model")));
    match wrong.is_empty() {
        true => Ok(module),
        false => Err(described(wrong)),
    }
}

struct Fill<S> {
    path: Vec<String>,
    /// Those that were not met yet.
    names: HashSet<String>,
    source: S,
    wrong: Vec<String>,
}

impl<S: TensorSource> Fill<S> {
    fn take(&mut self, shape: &[usize]) -> Option<TensorData> {
        let path = self.path.join(".");
        self.names.remove(&path);
        let found = match self.source.shape(&path) {
            None => Err(format!("{path} is missing")),
            Some(found) if found != shape => {
                Err(format!("{path} has shape {found:?}, the model's is {shape:?}"))
            }
            Some(_) => self.source.read(&path),
        };
        found.map_err(|reason| self.wrong.push(reason)).ok()
    }

    fn filled<T: Parameter>(
        &mut self,
        param: Param<T>,
        tensor: impl FnOnce(TensorData, &Device) -> T,
    ) -> Param<T> {
        // What a module holds is its value, and not what its layout is saved as: that way is for values which are
        // there.
        if is_saved_otherwise(&param) {
            let requires = param.is_require_grad();
            return match self.take(&param.shape().to_vec()) {
                Some(data) => {
                    param.map(|old| tensor(data, &old.device()).set_require_grad(requires))
                }
                None => param,
            };
        }
        match self.take(&param.lazy_shape().to_vec()) {
            Some(data) => {
                let (id, tensor) = (param.id, tensor(data, &param.lazy_device()));
                param.transform_for_load(tensor, id)
            }
            None => param,
        }
    }
}

/// Whether Burn turns a parameter into another layout where it is loaded; only its description tells.
fn is_saved_otherwise<T: Parameter>(param: &Param<T>) -> bool {
    format!("{param:?}").contains("load: true")
}

impl<S: TensorSource> ModuleMapper for Fill<S> {
    keep_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.filled(param, |data, device| Tensor::from_data(data, device))
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        self.filled(param, |data, device| Tensor::from_data(data, device))
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<D, Bool>>,
    ) -> Param<Tensor<D, Bool>> {
        self.filled(param, |data, device| Tensor::from_data(data, device))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use burn::module::ParamId;
    use burn::nn::{BatchNorm, BatchNormConfig, Initializer, Linear, LinearConfig, LinearLayout};
    use burn::tensor::Device;

    use super::super::{list, read};
    use super::*;

    #[derive(Module, Debug)]
    struct FilledNet {
        fc: Linear,
        norm: BatchNorm,
    }

    impl TensorSource for HashMap<String, TensorData> {
        fn names(&self) -> Vec<String> {
            self.keys().cloned().collect()
        }

        fn shape(&self, name: &str) -> Option<Vec<usize>> {
            self.get(name).map(|data| data.shape().to_vec())
        }

        fn read(&mut self, name: &str) -> Result<TensorData, String> {
            self.remove(name).ok_or_else(|| format!("{name} was read twice"))
        }
    }

    fn net(value: f64) -> FilledNet {
        let device = Device::flex().autodiff();
        let linear = LinearConfig::new(3, 2).with_initializer(Initializer::Constant { value });
        FilledNet { fc: linear.init(&device), norm: BatchNormConfig::new(2).init(&device) }
    }

    fn values(of: &FilledNet) -> HashMap<String, TensorData> {
        read(of).into_iter().collect()
    }

    #[test]
    fn a_fresh_module_has_what_another_one_had() {
        let from = net(0.25);
        let to = fill(net(7.0), values(&from)).expect("same shapes");
        assert!(to.fc.weight.is_initialized());
        assert_eq!(read(&to), read(&from));
        assert_eq!(list(&to), list(&from), "what is trained is trained");
        assert_eq!(read(&to.valid()), read(&from));
    }

    /// Burn turns these weights when they are loaded; here they are what they were.
    #[test]
    fn a_layer_of_another_layout_has_its_values() {
        let device = Device::flex().autodiff();
        let net = || LinearConfig::new(3, 2).with_layout(LinearLayout::Col).init(&device);
        let from: Linear = net();
        let to = fill(net(), read(&from).into_iter().collect::<HashMap<_, _>>());
        let to = to.expect("same shapes");
        assert_eq!(read(&to), read(&from));
        assert_eq!(list(&to), list(&from), "what is trained is trained");
    }

    #[derive(Module, Debug)]
    struct Undrawn {
        weight: Param<Tensor<1>>,
    }

    #[test]
    fn what_is_filled_is_not_drawn_before() {
        let device = Device::flex().autodiff();
        let draw = |_: &Device, _: bool| panic!("it was drawn");
        let weight = Param::uninitialized(ParamId::new(), draw, device, true, [2].into());
        let values = TensorData::new(vec![1.0f32, 2.0], [2]);
        let source = HashMap::from([("weight".to_string(), values.clone())]);
        let filled = fill(Undrawn { weight }, source).expect("same shapes");
        assert_eq!(filled.weight.val().into_data(), values);
        assert!(filled.weight.val().is_require_grad());
    }

    #[test]
    fn misfits_are_named() {
        let mut wrong = values(&net(0.25));
        wrong.insert("fc.extra".to_string(), TensorData::zeros::<f32, _>([1]));
        wrong.insert("fc.weight".to_string(), TensorData::zeros::<f32, _>([2, 2]));
        wrong.remove("norm.beta");
        let error = fill(net(7.0), wrong).expect_err("wrong");
        assert_eq!(
            error,
            "fc.extra is not in the model; fc.weight has shape [2, 2], the model's is [3, 2]; norm.beta is missing"
        );
    }
}
