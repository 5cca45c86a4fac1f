//! `salamander devices`: what can compute here, and why the rest cannot.

use anyhow::Result;
use salamander_train::device::{self, FoundDevice};

pub(crate) fn run() -> Result<()> {
    for kind in device::survey() {
        let name = kind.kind.name();
        match kind.devices {
            Err(reason) => outln!("{name:<7} not usable: {name} {reason}")?,
            Ok(devices) => {
                for device in devices {
                    match device {
                        Ok(found) => outln!("{:<7} usable: {}", found.name, facts(&found))?,
                        Err(reason) => outln!("{name:<7} not usable: {reason}")?,
                    }
                }
            }
        }
    }
    Ok(())
}

/// What it is, how much it holds and what it computes in.
fn facts(found: &FoundDevice) -> String {
    let gigabytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let mut facts = vec![found.model.clone()];
    facts.extend(found.software.then(|| "a software renderer".to_string()));
    facts.push(found.memory.map_or_else(|| "memory not told".to_string(), gigabytes));
    format!("{}; {}", facts.join(", "), found.types.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_told_in_one_line() {
        let mut found = FoundDevice {
            name: "wgpu:0".to_string(),
            model: "llvmpipe".to_string(),
            memory: Some(3 << 29),
            types: vec!["f32", "i32"],
            software: true,
        };
        assert_eq!(facts(&found), "llvmpipe, a software renderer, 1.5 GiB; f32, i32");
        (found.memory, found.software) = (None, false);
        assert_eq!(facts(&found), "llvmpipe, memory not told; f32, i32");
    }
}
