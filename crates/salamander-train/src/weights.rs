//! Weights from elsewhere and for elsewhere: `.safetensors` and PyTorch's `.pt`.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::{params, weights};
//!
//! let device = Device::flex().autodiff();
//! let trained: Linear = LinearConfig::new(3, 2).init(&device);
//! # let folder = tempfile::tempdir()?;
//! let file = folder.path().join("model.safetensors");
//! weights::save(&trained, &file)?;
//!
//! let fresh: Linear = LinearConfig::new(3, 2).init(&device);
//! assert_eq!(params::read(&weights::load(fresh, &file)?), params::read(&trained));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use burn::module::Module;
use burn::store::{ModuleSnapshot, PyTorchToBurnAdapter, PytorchStore, SafetensorsStore};

use crate::checkpoint::{TensorFile, from_safetensors, write_safetensors};
use crate::{Error, params};

/// Starts a model from a file of weights. Files of PyTorch are turned into Burn's layout.
pub fn load<M: Module + ModuleSnapshot>(mut model: M, path: &Path) -> Result<M, Error> {
    let unfit = |reason: String| Error::Invalid(format!("weights {}: {reason}", path.display()));
    if !path.is_file() {
        return Err(unfit("there is no such file".to_string()));
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => {
            let bytes = std::fs::read(path).map_err(Error::io(path))?;
            if written_by_pytorch(&bytes) {
                drop(bytes);
                let mut store =
                    SafetensorsStore::from_file(path).with_from_adapter(PyTorchToBurnAdapter);
                model.load_from(&mut store).map_err(|error| unfit(error.to_string()))?;
                return Ok(model);
            }
            let tensors = from_safetensors(&bytes).map_err(unfit)?;
            drop(bytes);
            params::write(model, tensors.into_iter().collect()).map_err(unfit)
        }
        Some("pt" | "pth" | "bin") => {
            let mut store = PytorchStore::from_file(path);
            model.load_from(&mut store).map_err(|error| unfit(error.to_string()))?;
            Ok(model)
        }
        _ => Err(unfit("only .safetensors, .pt and .pth files can be read".to_string())),
    }
}

/// [`load`] for a model that was just built: nothing is drawn, and of a file of ours one tensor is read at a time.
pub(crate) fn start<M: Module + ModuleSnapshot>(model: M, path: &Path) -> Result<M, Error> {
    if path.extension().is_some_and(|extension| extension == "safetensors") && path.is_file() {
        let unfit =
            |reason: String| Error::Invalid(format!("weights {}: {reason}", path.display()));
        let file = TensorFile::open(path).map_err(unfit)?;
        if file.about("format") != Some("pt") {
            return params::fill(model, &file).map_err(unfit);
        }
    }
    load(model, path)
}

/// Hugging Face and PyTorch mark their files with the format `pt`; linear weights are transposed there.
fn written_by_pytorch(bytes: &[u8]) -> bool {
    safetensors::SafeTensors::read_metadata(bytes)
        .ok()
        .and_then(|(_, about)| about.metadata().as_ref()?.get("format").cloned())
        .is_some_and(|format| format == "pt")
}

/// Writes a model's weights under their module paths.
pub fn save<M: Module>(model: &M, path: &Path) -> Result<(), Error> {
    write_safetensors(path, &params::read(model))
}
