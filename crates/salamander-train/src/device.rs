//! Devices by name, chosen at run time and checked before use.

use burn::tensor::Device;

use crate::Error;

/// Turns `auto`, `cpu`, `wgpu[:i]` or `cuda[:i]` into a device, or says why not.
pub fn select(name: &str) -> Result<Device, Error> {
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => {
            let index = index.parse::<usize>().map_err(|_| {
                Error::Invalid(format!("device \"{name}\": what follows the colon is not a number"))
            })?;
            (kind, index)
        }
        None => (name, 0),
    };
    match kind {
        "auto" => Ok(best()),
        "cpu" if index == 0 => Ok(Device::flex()),
        "cpu" => Err(Error::Invalid(format!("device \"{name}\": there is one cpu device"))),
        "wgpu" => wgpu(index),
        "cuda" => cuda(index),
        _ => Err(Error::Invalid(format!(
            "device \"{name}\" is not known (auto, cpu, wgpu, wgpu:1, cuda, cuda:1)"
        ))),
    }
}

/// The fastest kind that is compiled in and present.
fn best() -> Device {
    cuda(0).or_else(|_| wgpu(0)).unwrap_or_else(|_| Device::flex())
}

#[cfg(feature = "wgpu")]
fn wgpu(index: usize) -> Result<Device, Error> {
    use burn::tensor::DeviceType;
    // Creating a device that is not there panics inside the driver, so count first.
    let found = Device::enumerate(DeviceType::Wgpu).into_vec();
    let count = found.len();
    found.into_iter().nth(index).ok_or_else(|| {
        Error::Invalid(format!(
            "device wgpu:{index} is not there: {count} found (is a Vulkan driver installed?)"
        ))
    })
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_index: usize) -> Result<Device, Error> {
    Err(Error::Invalid("device wgpu is not compiled in: build with `--features wgpu`".to_string()))
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<Device, Error> {
    use burn::tensor::DeviceType;
    let found = Device::enumerate(DeviceType::Cuda).into_vec();
    let count = found.len();
    found
        .into_iter()
        .nth(index)
        .ok_or_else(|| Error::Invalid(format!("device cuda:{index} is not there: {count} found")))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_index: usize) -> Result<Device, Error> {
    Err(Error::Invalid("device cuda is not compiled in: build with `--features cuda`".to_string()))
}

/// The kinds compiled into this program.
pub fn compiled() -> Vec<&'static str> {
    let mut kinds = vec!["cpu"];
    if cfg!(feature = "wgpu") {
        kinds.push("wgpu");
    }
    if cfg!(feature = "cuda") {
        kinds.push("cuda");
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(select("cpu").is_ok());
        assert!(select("auto").is_ok());
        for wrong in ["gpu", "cpu:1", "cuda:x"] {
            assert!(select(wrong).is_err(), "{wrong}");
        }
    }
}
