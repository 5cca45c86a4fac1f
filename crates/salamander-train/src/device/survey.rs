//! What `salamander devices` shows: each kind, what is present of it, and why the rest is not usable.

use burn::tensor::{DType, Device};
use salamander_kernels::ops::is_gpu;

use super::{DeviceKind, check, gpu};

/// Types that a model may compute in, or keep its numbers in.
const TYPES: [(&str, DType); 6] = [
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("f64", DType::F64),
    ("i32", DType::I32),
    ("i64", DType::I64),
];

/// A device that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDevice {
    /// The name that `--device` takes.
    pub name: String,
    /// What it calls itself.
    pub model: String,
    /// How many bytes it holds, if it says so.
    pub memory: Option<u64>,
    /// The types it computes in.
    pub types: Vec<&'static str>,
    /// Whether it is a program that stands for a GPU.
    pub software: bool,
}

/// One kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The kind.
    pub kind: DeviceKind,
    /// Its devices, each with what is known of it or with why it does not work; or why there are none.
    pub devices: Result<Vec<Result<FoundDevice, String>>, String>,
}

/// Looks at all kinds. Devices that are present are opened and tried.
pub fn survey() -> Vec<Survey> {
    let look = |kind: DeviceKind| {
        let devices = kind.present().map(|present| {
            let count = present.len();
            let named = present.iter().enumerate().map(|(at, device)| {
                let name = match (kind, count) {
                    (DeviceKind::Cpu, _) => kind.name().to_string(),
                    _ => format!("{}:{at}", kind.name()),
                };
                describe(name, device)
            });
            named.collect()
        });
        Survey { kind, devices }
    };
    DeviceKind::ALL.into_iter().map(look).collect()
}

fn describe(name: String, device: &Device) -> Result<FoundDevice, String> {
    let unusable = |reason: String| format!("{name} {reason}");
    check(device).map_err(unusable)?;
    let (model, memory) = match is_gpu(device) {
        true => gpu::guarded(|| card(device)).map_err(unusable)?,
        false => processor(),
    };
    let supported = |dtype: DType| gpu::guarded(|| device.supports_dtype(dtype)).unwrap_or(false);
    let types = TYPES.into_iter().filter(|(_, dtype)| supported(*dtype)).map(|(name, _)| name);
    let software = gpu::is_software(device);
    Ok(FoundDevice { name, model, memory, types: types.collect(), software })
}

/// A GPU's own name and its memory.
fn card(device: &Device) -> (String, Option<u64>) {
    let name = gpu::identity(device).map_or_else(|| "a GPU".to_string(), |(name, _)| name);
    (name, gpu::memory(device))
}

fn processor() -> (String, Option<u64>) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let model = field(&read("/proc/cpuinfo"), "model name");
    let model = model.unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let kilobytes = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|size| size.split_whitespace().next()?.parse::<u64>().ok());
    (format!("{model}, {cores} cores"), kilobytes.map(|kilobytes| kilobytes << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there() {
        let all = survey();
        assert_eq!(all.iter().map(|one| one.kind).collect::<Vec<_>>(), DeviceKind::ALL);
        let cpu = all[0].devices.as_ref().expect("compiled in")[0].as_ref().expect("works");
        assert_eq!(cpu.name, "cpu");
        assert!(cpu.types.contains(&"f32"), "{cpu:?}");
        assert!(!cpu.software);
    }

    #[test]
    fn every_kind_answers_with_devices_or_a_reason() {
        for one in survey() {
            match one.devices {
                Ok(devices) => assert!(!devices.is_empty(), "{:?}", one.kind),
                Err(reason) => assert!(!reason.is_empty(), "{:?}", one.kind),
            }
        }
    }
}
