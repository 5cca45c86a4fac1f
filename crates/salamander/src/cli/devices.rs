//! `salamander devices`: what can compute here, and why the rest cannot.

use anyhow::Result;
use burn::tensor::FloatDType;
use salamander_train::device;

pub(super) fn run() -> Result<()> {
    for name in ["cpu", "wgpu", "cuda"] {
        match device::select(name) {
            Ok(device) => {
                let types = [("bf16", FloatDType::BF16), ("f16", FloatDType::F16)]
                    .into_iter()
                    .filter(|(_, dtype)| device.supports_dtype(*dtype))
                    .map(|(name, _)| name);
                let types: Vec<&str> = std::iter::once("f32").chain(types).collect();
                println!("{name:<6} usable ({})", types.join(", "));
            }
            Err(error) => println!("{name:<6} not usable: {error}"),
        }
    }
    Ok(())
}
