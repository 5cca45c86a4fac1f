//! Devices by name, chosen at run time and checked before use.
//!
//! A device that is not compiled in, not present or not working is an error that says which of these it is; nothing
//! here panics. Whoever got a device from here has seen it compute.
//!
//! ```
//! use salamander::train::device;
//!
//! let device = device::select("cpu")?.autodiff();
//! assert!(device.is_autodiff());
//! let error = device::select("gpu").expect_err("gpu is no name of a device").to_string();
//! assert_eq!(error, "device \"gpu\" is not known (auto, cpu, wgpu, wgpu:1, cuda, cuda:1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod gpu;
mod survey;

use std::str::FromStr;

use burn::tensor::{DType, Device};
use salamander_kernels::ops::is_gpu;

pub use survey::{FoundDevice, Survey, survey};

use crate::Error;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor, on Burn's CPU backend and our kernels.
    Cpu,
    /// A GPU through Vulkan, Metal or DirectX.
    Wgpu,
    /// An NVIDIA GPU through CUDA.
    Cuda,
}

impl DeviceKind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [DeviceKind; 3] = [DeviceKind::Cpu, DeviceKind::Wgpu, DeviceKind::Cuda];

    /// Its name, which is also the name of its cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Wgpu => "wgpu",
            DeviceKind::Cuda => "cuda",
        }
    }

    /// Whether it is compiled into this program.
    pub fn is_compiled(self) -> bool {
        match self {
            DeviceKind::Cpu => true,
            DeviceKind::Wgpu => cfg!(feature = "wgpu"),
            DeviceKind::Cuda => cfg!(feature = "cuda"),
        }
    }

    /// The devices of this kind that are present, or why there are none.
    fn present(self) -> Result<Vec<Device>, String> {
        if !self.is_compiled() {
            return Err(format!("is not compiled in: build with `--features {}`", self.name()));
        }
        match self {
            DeviceKind::Cpu => Ok(vec![Device::flex()]),
            gpu => gpu::present(gpu),
        }
    }
}

/// What a user wrote: a kind, or none for the best, and a device's number, or none for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    kind: Option<DeviceKind>,
    index: Option<usize>,
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let (kind, index) = match name.split_once(':') {
            None => (name, None),
            Some((kind, index)) => {
                let number = index.parse::<usize>().map_err(|_| {
                    let reason = "what follows the colon is not a number";
                    Error::Invalid(format!("device \"{name}\": {reason}"))
                })?;
                (kind, Some(number))
            }
        };
        let found = DeviceKind::ALL.into_iter().find(|known| known.name() == kind);
        match (found, index) {
            (None, None) if kind == "auto" => Ok(Self { kind: None, index: None }),
            (None, _) => Err(Error::Invalid(format!(
                "device \"{name}\" is not known (auto, cpu, wgpu, wgpu:1, cuda, cuda:1)"
            ))),
            (Some(DeviceKind::Cpu), Some(1..)) => {
                Err(Error::Invalid(format!("device \"{name}\": there is one cpu device")))
            }
            (kind, index) => Ok(Self { kind, index }),
        }
    }
}

/// Turns `auto`, `cpu`, `wgpu[:i]` or `cuda[:i]` into a device, or says why not.
pub fn select(name: &str) -> Result<Device, Error> {
    select_for(name, 0)
}

/// The device of one of several workers on a host. A name without a number spreads them: worker `i` takes device `i`
/// modulo the number of devices present. With a number all take that one.
pub fn select_for(name: &str, worker: usize) -> Result<Device, Error> {
    let Choice { kind, index } = name.parse()?;
    let Some(kind) = kind else { return Ok(best(worker)) };
    let unusable = |reason: String| Error::Invalid(format!("device {name} {reason}"));
    let mut present = kind.present().map_err(unusable)?;
    let count = present.len();
    let at = index.unwrap_or(worker % count);
    if at >= count {
        let there =
            format!("is not there: {count} found, the last is {}:{}", kind.name(), count - 1);
        return Err(unusable(there));
    }
    let device = present.swap_remove(at);
    check(&device).map_err(unusable)?;
    Ok(device)
}

/// The fastest kind that is compiled in, present and working. A software renderer is a GPU by name only: the CPU
/// backend is faster.
fn best(worker: usize) -> Device {
    for kind in [DeviceKind::Cuda, DeviceKind::Wgpu] {
        let mut hardware = kind.present().unwrap_or_default();
        hardware.retain(|device| !gpu::is_software(device));
        if hardware.is_empty() {
            continue;
        }
        let device = hardware.swap_remove(worker % hardware.len());
        match check(&device) {
            Ok(()) => return device,
            Err(reason) => tracing::warn!(device = kind.name(), reason, "is passed over"),
        }
    }
    Device::flex()
}

/// Whether a device computes: drivers fail at first use, some of them by answering with zeros.
fn check(device: &Device) -> Result<(), String> {
    if !is_gpu(device) {
        return Ok(());
    }
    if !gpu::guarded(|| device.supports_dtype(DType::F32))? {
        return Err("cannot compute in f32".to_string());
    }
    gpu::try_out(device)
}

/// What a GPU is, down to what its kernels are compiled for; nothing for the CPU.
pub(crate) fn model(device: &Device) -> String {
    let identity = gpu::identity(device).filter(|_| is_gpu(device));
    identity.map_or_else(String::new, |(name, compiled_for)| format!("{name} ({compiled_for})"))
}

/// The names of the kinds compiled into this program.
pub fn compiled() -> Vec<&'static str> {
    DeviceKind::ALL.into_iter().filter(|kind| kind.is_compiled()).map(DeviceKind::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(select("cpu").is_ok());
        assert!(select("cpu:0").is_ok());
        assert!(select("auto").is_ok());
        for wrong in ["gpu", "cpu:1", "cuda:x", "auto:0", "wgpu:", ""] {
            assert!(select(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_is_kept_and_none_is_none() {
        let check = |name: &str, kind, index| {
            assert_eq!(name.parse::<Choice>().expect("known"), Choice { kind, index }, "{name}");
        };
        check("auto", None, None);
        check("wgpu", Some(DeviceKind::Wgpu), None);
        check("cuda:3", Some(DeviceKind::Cuda), Some(3));
    }

    #[test]
    fn what_is_not_compiled_in_says_so() {
        for kind in DeviceKind::ALL.into_iter().filter(|kind| !kind.is_compiled()) {
            let error = select(kind.name()).expect_err("not compiled in").to_string();
            let expected =
                format!("device {0} is not compiled in: build with `--features {0}`", kind.name());
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        for kind in
            [DeviceKind::Wgpu, DeviceKind::Cuda].into_iter().filter(|kind| kind.is_compiled())
        {
            let name = format!("{}:4096", kind.name());
            let error = select(&name).expect_err("no machine has so many").to_string();
            assert!(error.starts_with(&format!("device {name} ")), "{error}");
        }
    }

    #[test]
    fn every_worker_gets_a_device_on_the_cpu() {
        assert_eq!(select_for("cpu", 7).expect("the cpu"), Device::flex());
    }
}
