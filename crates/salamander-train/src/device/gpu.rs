//! The side of devices that panics: everything that touches a driver for the first time goes through here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};

use super::DeviceKind;
use crate::threads::panic_text;

/// The GPUs of a kind, or why there are none.
pub(super) fn present(kind: DeviceKind) -> Result<Vec<Device>, String> {
    let found = guarded(|| enumerate(kind))?;
    if found.is_empty() { Err(missing(kind)) } else { Ok(found) }
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn enumerate(kind: DeviceKind) -> Vec<Device> {
    use burn::tensor::DeviceType;
    match kind {
        #[cfg(feature = "wgpu")]
        DeviceKind::Wgpu => Device::enumerate(DeviceType::Wgpu).into_vec(),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda => Device::enumerate(DeviceType::Cuda).into_vec(),
        _ => Vec::new(),
    }
}

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
fn enumerate(_kind: DeviceKind) -> Vec<Device> {
    Vec::new()
}

/// Why a kind that is compiled in has no device here, as far as can be told from outside.
fn missing(kind: DeviceKind) -> String {
    let there = |path: &str| std::path::Path::new(path).exists();
    let linux = cfg!(target_os = "linux");
    let reason = match kind {
        DeviceKind::Cuda if linux && !there("/proc/driver/nvidia/version") => {
            "has no driver: the NVIDIA driver is not installed or not loaded"
        }
        DeviceKind::Cuda => {
            "has no device: the driver shows none (is CUDA_VISIBLE_DEVICES set, and the driver's \
             library libcuda installed?)"
        }
        DeviceKind::Wgpu if linux && !VULKAN_DRIVERS.into_iter().any(there) => {
            "has no driver: no Vulkan driver is installed (the GPU's own, or mesa-vulkan-drivers \
             and libvulkan1)"
        }
        _ => "has no adapter: the graphics drivers of this machine show no device",
    };
    reason.to_string()
}

/// Where the manifests of Vulkan drivers are.
const VULKAN_DRIVERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// A GPU's own name, and what its kernels are compiled for. Two devices of the same model compute the same bits.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub(super) fn identity(device: &Device) -> Option<(String, String)> {
    device.identity().map(|identity| (identity.name, identity.fingerprint))
}

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
pub(super) fn identity(_device: &Device) -> Option<(String, String)> {
    None
}

/// How many bytes a GPU holds, if it says so.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub(super) fn memory(device: &Device) -> Option<u64> {
    match device.as_dispatch().clone().inner() {
        burn::backend::DispatchDevice::Cube(device) => {
            device.client().properties().memory.max_memory()
        }
        _ => None,
    }
}

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
pub(super) fn memory(_device: &Device) -> Option<u64> {
    None
}

/// Whether a device only looks like a GPU.
#[cfg(feature = "wgpu")]
pub(super) fn is_software(device: &Device) -> bool {
    use burn::backend::{CubeDevice, DispatchDevice, WgpuDeviceKind};
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(CubeDevice::Wgpu(device)) => device.kind == WgpuDeviceKind::Cpu,
        _ => false,
    }
}

#[cfg(not(feature = "wgpu"))]
pub(super) fn is_software(_device: &Device) -> bool {
    false
}

/// Computes something small and compares it.
pub(super) fn try_out(device: &Device) -> Result<(), String> {
    let given = [1.5f32, -2.0, 0.25];
    let result = guarded(|| {
        let tensor = Tensor::<1>::from_data(given, device);
        (tensor.clone() * tensor).into_data().iter::<f32>().collect::<Vec<f32>>()
    })?;
    match result == given.map(|value| value * value) {
        true => Ok(()),
        false => Err(format!("computes wrongly: the squares of {given:?} came back as {result:?}")),
    }
}

/// Runs what a driver may panic in, and gives the panic's words back as a reason.
pub(super) fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        format!("does not start: {}", panic_text(&*panic).unwrap_or("it gave no reason"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_reason() {
        let number = 3;
        let formatted: Result<(), String> = guarded(|| panic!("no adapter {number}"));
        assert_eq!(formatted, Err("does not start: no adapter 3".to_string()));
        assert_eq!(guarded(|| number), Ok(3));
    }

    #[test]
    fn the_trial_passes_where_numbers_are_right() {
        assert_eq!(try_out(&Device::flex()), Ok(()));
    }
}
