//! Weights of other programs: `.safetensors` and PyTorch's files, by the names that they have there.
//!
//! PyTorch keeps the weight of a linear layer transposed. A parameter is one of those if it has two axes, is called
//! `weight` and does not lie below something called `embeddings`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::store::pytorch_reader::{DType as TorchType, PytorchReader};
use burn::tensor::{DType, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use salamander_files::{Durability, replace};
use salamander_train::params::{self, ParamInfo};

/// What is wrong with a file of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct Error {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Error {
    /// An error about a file.
    pub fn new(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.to_path_buf(), reason: reason.to_string() }
    }
}

/// Float tensors by name.
pub type Tensors = BTreeMap<String, TensorData>;

/// How a file calls the parameters of a model.
pub struct Naming<'a> {
    /// The name of the parameter at a path of ours.
    pub name: &'a dyn Fn(&str) -> String,
    /// The name that is meant by one in the file; nothing for a tensor that the model has no use for.
    pub known: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the parameter at a path may be absent, and keeps the values that it has.
    pub optional: &'a dyn Fn(&str) -> bool,
}

/// What PyTorch's wrappers put before the names of weights: DataParallel and DDP, `torch.compile`, and the field that
/// a Lightning module keeps its network in.
const WRAPPERS: [&str; 3] = ["module.", "_orig_mod.", "model."];

/// A name in a file as it is without wrappers, whatever is wrapped in what.
pub fn unwrapped(name: &str) -> &str {
    match WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        Some(rest) => unwrapped(rest),
        None => name,
    }
}

/// Reads the float tensors of a file, as f32. Integers, such as counters of steps, are left out.
pub fn read(path: &Path) -> Result<Tensors, Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if !path.is_file() => Err(Error::new(path, "there is no such file")),
        Some("safetensors") => read_safetensors(path),
        // Scripts call their checkpoints `model_best.pth.tar` too, which are no archives of tar.
        Some("pt" | "pth" | "bin" | "tar" | "th" | "ckpt") => read_pytorch(path),
        _ => {
            let known =
                "only .safetensors, .pt, .pth, .pth.tar, .th, .ckpt and .bin files can be read";
            Err(Error::new(path, known))
        }
    }
}

fn read_safetensors(path: &Path) -> Result<Tensors, Error> {
    let bytes = std::fs::read(path).map_err(|error| Error::new(path, error))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| Error::new(path, error))?;
    let mut found = Tensors::new();
    for (name, view) in file.iter() {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            _ => continue,
        };
        let data = floats(view.data().to_vec(), view.shape().to_vec(), dtype);
        found.insert(name.to_string(), data);
    }
    Ok(found)
}

fn read_pytorch(path: &Path) -> Result<Tensors, Error> {
    let wrong = |error: &dyn std::fmt::Display| Error::new(path, error);
    let reader = PytorchReader::new(path).map_err(|error| wrong(&error))?;
    let start = weights_start(reader.tensors().keys());
    let mut found = Tensors::new();
    for (name, tensor) in reader.tensors() {
        let Some(name) = name.strip_prefix(start) else { continue };
        let dtype = match tensor.dtype() {
            TorchType::F32 => DType::F32,
            TorchType::F64 => DType::F64,
            TorchType::F16 => DType::F16,
            TorchType::BF16 => DType::BF16,
            _ => continue,
        };
        let bytes = tensor.read().map_err(|error| wrong(&error))?;
        found.insert(name.to_string(), floats(bytes, tensor.shape().to_vec(), dtype));
    }
    Ok(found)
}

/// What the names of weights begin with: checkpoints of training scripts have them below a key, beside the state of
/// the optimizer.
fn weights_start<'a>(names: impl Iterator<Item = &'a String> + Clone) -> &'static str {
    let any = |start: &str| names.clone().any(|name| name.starts_with(start));
    let keys = ["state_dict.", "model_state_dict.", "models_state_dict.0."];
    match keys.into_iter().find(|&start| any(start)) {
        Some(start) => start,
        // torchvision's own scripts; a part of a network may have this name too.
        None if any("model.") && any("optimizer.") => "model.",
        None => "",
    }
}

fn floats(bytes: Vec<u8>, shape: Vec<usize>, dtype: DType) -> TensorData {
    TensorData::from_bytes_vec(bytes, shape, dtype).convert::<f32>()
}

/// Gives a model the values of tensors that were read from `path`. Returns it with the paths of the parameters that
/// kept what they had. Tensors that are missing, misshapen or not of the model are named.
pub fn load<M: Module>(
    model: M,
    path: &Path,
    tensors: Tensors,
    naming: &Naming<'_>,
) -> Result<(M, Vec<String>), Error> {
    let mut found: BTreeMap<String, (String, TensorData)> = BTreeMap::new();
    for (original, data) in tensors {
        let Some(name) = (naming.known)(&original) else { continue };
        if let Some((other, _)) = found.insert(name, (original.clone(), data)) {
            let reason = format!("{original} and {other} are the same parameter: keep one");
            return Err(Error::new(path, reason));
        }
    }
    let (mut values, mut kept, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for info in params::list(&model) {
        let name = (naming.name)(&info.path);
        match found.remove(&name) {
            None if (naming.optional)(&info.path) => kept.push(info.path),
            None => wrong.push(format!("{name} is missing")),
            Some((original, data)) => {
                let (shape, expected) = (data.shape().to_vec(), foreign_shape(&info));
                if shape != expected {
                    wrong.push(format!(
                        "{original} has shape {shape:?}, the model's is {expected:?}"
                    ));
                    continue;
                }
                let data = if is_linear(&info) { transposed(&data) } else { data };
                values.push((info.path, data));
            }
        }
    }
    wrong
        .extend(found.into_values().map(|(original, _)| format!("{original} is not in the model")));
    if !wrong.is_empty() {
        return Err(Error::new(path, several(wrong)));
    }
    let model = params::overwrite(model, values.into_iter().collect())
        .map_err(|reason| Error::new(path, reason))?;
    Ok((model, kept))
}

/// Writes all that a model keeps as safetensors, as PyTorch's programs expect it.
pub fn save<M: Module>(model: &M, path: &Path, name: &dyn Fn(&str) -> String) -> Result<(), Error> {
    let listed: BTreeMap<String, ParamInfo> =
        params::list(model).into_iter().map(|info| (info.path.clone(), info)).collect();
    let mut tensors = Vec::new();
    for (own, data) in params::read(model) {
        let Some(info) = listed.get(&own) else { continue };
        let data = data.convert::<f32>();
        let data = if is_linear(info) { transposed(&data) } else { data };
        tensors.push((name(&own), data));
    }
    write(path, &tensors.into_iter().collect())
}

/// Writes tensors as safetensors, with the mark of PyTorch's programs.
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), Error> {
    let views = tensors.iter().map(|(name, data)| {
        let view = TensorView::new(Dtype::F32, data.shape().to_vec(), data.as_bytes());
        view.map(|view| (name.clone(), view)).map_err(|error| Error::new(path, error))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let metadata = [("format".to_string(), "pt".to_string())].into();
    let bytes =
        safetensors::serialize(views, Some(metadata)).map_err(|error| Error::new(path, error))?;
    replace(path, &bytes, Durability::Synced).map_err(|error| Error::new(path, error))
}

/// Whether a parameter is the weight of a linear layer, which PyTorch keeps transposed.
fn is_linear(info: &ParamInfo) -> bool {
    let is_weight = info.path == "weight" || info.path.ends_with(".weight");
    is_weight && info.shape.len() == 2 && !info.path.contains("embeddings")
}

fn foreign_shape(info: &ParamInfo) -> Vec<usize> {
    match is_linear(info) {
        true => info.shape.iter().rev().copied().collect(),
        false => info.shape.clone(),
    }
}

/// The transposed matrix.
fn transposed(data: &TensorData) -> TensorData {
    let shape = data.shape().to_vec();
    let (rows, columns) = (shape[0], shape[1]);
    let values: Vec<f32> = data.iter::<f32>().collect();
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    TensorData::new(turned.map(|at| values[at]).collect::<Vec<f32>>(), [columns, rows])
}

/// The first few of several mistakes.
fn several(mut wrong: Vec<String>) -> String {
    let more = wrong.len().saturating_sub(5);
    wrong.truncate(5);
    let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{tail}", wrong.join("; "))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use salamander_kernels::layers::{BatchNorm, BatchNormConfig, Linear, LinearConfig};

    use super::*;

    #[derive(Module, Debug)]
    struct Net {
        fc: Linear,
        norm: BatchNorm,
    }

    fn net() -> Net {
        let device = Device::flex().autodiff();
        Net {
            fc: LinearConfig::new(3, 2).init(&device),
            norm: BatchNormConfig::new(2).init(&device),
        }
    }

    fn names(path: &str) -> String {
        path.replace("gamma", "weight").replace("beta", "bias")
    }

    fn naming(optional: &dyn Fn(&str) -> bool) -> Naming<'_> {
        let known = &|name: &str| Some(name.trim_start_matches("module.").to_string());
        Naming { name: &names, known, optional }
    }

    #[test]
    fn weights_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("net.safetensors");
        let original = net();
        save(&original, &path, &names).expect("written");
        let tensors = read(&path).expect("read");
        assert_eq!(tensors["fc.weight"].shape().to_vec(), [2, 3], "PyTorch has it transposed");
        let spelled = tensors.into_iter().map(|(name, data)| (format!("module.{name}"), data));
        let (copy, kept) =
            load(net(), &path, spelled.collect(), &naming(&|_| false)).expect("loads");
        assert_eq!(params::read(&copy), params::read(&original));
        assert!(kept.is_empty());
    }

    #[test]
    fn wrappers_are_no_part_of_a_name() {
        let check = |name: &str| assert_eq!(unwrapped(name), "layer1.0.conv1.weight", "{name}");
        check("layer1.0.conv1.weight");
        check("module.layer1.0.conv1.weight");
        check("_orig_mod.module.layer1.0.conv1.weight");
        check("model._orig_mod.layer1.0.conv1.weight");
    }

    #[test]
    fn missing_extra_and_misshapen_tensors_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("net.safetensors");
        save(&net(), &path, &names).expect("written");
        let check = |change: &dyn Fn(&mut Tensors), expected: &str| {
            let mut tensors = read(&path).expect("read");
            change(&mut tensors);
            let error = load(net(), &path, tensors, &naming(&|_| false)).expect_err("unfit");
            assert_eq!(error.reason, expected);
        };
        check(&|tensors| drop(tensors.remove("fc.bias")), "fc.bias is missing");
        check(
            &|tensors| drop(tensors.insert("extra".into(), TensorData::zeros::<f32, _>([1]))),
            "extra is not in the model",
        );
        check(
            &|tensors| {
                drop(tensors.insert("fc.weight".into(), TensorData::zeros::<f32, _>([3, 2])))
            },
            "fc.weight has shape [3, 2], the model's is [2, 3]",
        );
        check(
            &|tensors| {
                let copy = tensors["fc.bias"].clone();
                tensors.insert("module.fc.bias".into(), copy);
            },
            "module.fc.bias and fc.bias are the same parameter: keep one",
        );
        let mut tensors = read(&path).expect("read");
        tensors.remove("fc.bias");
        let optional = |path: &str| path.starts_with("fc.");
        let (_, kept) = load(net(), &path, tensors, &naming(&optional)).expect("may be absent");
        assert_eq!(kept, ["fc.bias"]);
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |name: &str, content: Option<&[u8]>, expected: &str| {
            let path = folder.path().join(name);
            content.inspect(|content| std::fs::write(&path, content).expect("written"));
            let error = read(&path).expect_err("unfit").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("a.safetensors", None, "there is no such file");
        check("b.safetensors", Some(b"nothing"), "b.safetensors: ");
        check("c.pth", Some(b"nothing"), "c.pth: ");
        check("d.onnx", Some(b"nothing"), "only .safetensors, .pt, .pth, .pth.tar, .th, .ckpt and");
    }

    #[test]
    fn weights_are_found_below_the_keys_of_training_scripts() {
        let check = |names: &[&str], expected: &str| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            assert_eq!(weights_start(names.iter()), expected, "{names:?}");
        };
        check(&["fc.weight", "fc.bias"], "");
        check(&["model.fc.weight", "head.weight"], "");
        check(&["state_dict.fc.weight", "best_acc1"], "state_dict.");
        check(&["optimizer.state.0.momentum_buffer", "state_dict.model.fc.weight"], "state_dict.");
        check(&["model.fc.weight", "optimizer.state.0.exp_avg", "model_ema.fc.weight"], "model.");
        check(&["models_state_dict.0.fc.weight", "rng_state"], "models_state_dict.0.");
    }

    #[test]
    fn a_checkpoint_of_pytorchs_imagenet_script_is_read_without_its_optimizer() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let found = read(&fixtures.join("script/model_best.pth.tar")).expect("read");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["module.fc.bias", "module.fc.weight"]);
        // It was saved as f16 and with its columns one after the other.
        let weight = &found["module.fc.weight"];
        assert_eq!(weight.shape().to_vec(), [2, 3]);
        let values: Vec<f32> = weight.iter::<f32>().collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
