//! What the bits of this process's arithmetic depend on beside the model and its data. Members that differ in it would
//! come to other last digits, so a run keeps those of its first worker and refuses who differs.
//!
//! Matrix products are cut into blocks by the instruction set *and* the shape of the caches, and sums in another cut
//! have other bits. A probe product shows what both come to; the program's hash stands for everything compiled in.

use std::fs::File;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use salamander_core::seed::mix;
use salamander_kernels::ops::is_gpu;

use crate::exchange::TrainedOn;
use crate::gradients::host;

/// Where the system tells the shape of the caches.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
/// What it tells of each of them.
const CACHE_FACTS: [&str; 5] =
    ["level", "type", "size", "ways_of_associativity", "coherency_line_size"];
/// The probe's product: its inner length is beyond any block, and the others are no multiples of a vector.
const PROBE: [usize; 3] = [37, 5003, 29];

/// Adds what the bits of this process depend on. GPUs are left out: workers with different ones may train together,
/// which the summary does not promise equal bits for.
pub(crate) fn stamped(data: TrainedOn, device: &Device) -> TrainedOn {
    if is_gpu(device) {
        return data;
    }
    let (instructions, caches) = (instructions(), caches(Path::new(CACHES)));
    let (program, probe) = (program(), probe(&device.clone().without_autodiff()));
    let blocking = number(caches.as_bytes());
    tracing::info!(instructions, caches, program, probe, "arithmetic");
    TrainedOn { instructions: number(instructions.as_bytes()), blocking, program, probe, ..data }
}

/// The instructions that kernels choose between.
fn instructions() -> String {
    let mut found = vec![std::env::consts::ARCH];
    #[cfg(target_arch = "x86_64")]
    {
        let known = [
            ("sse4.2", is_x86_feature_detected!("sse4.2")),
            ("avx", is_x86_feature_detected!("avx")),
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512bw", is_x86_feature_detected!("avx512bw")),
            ("avx512dq", is_x86_feature_detected!("avx512dq")),
            ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ];
        found.extend(known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name));
    }
    found.join(" ")
}

/// The shape of the caches, as far as the system tells it.
fn caches(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| {
            let fact = |name: &&str| std::fs::read_to_string(entry.path().join(name)).ok();
            let facts: Option<Vec<String>> = CACHE_FACTS.iter().map(fact).collect();
            Some(facts?.iter().map(|fact| fact.trim()).collect::<Vec<_>>().join(" "))
        })
        .collect();
    found.sort();
    found.join(", ")
}

/// A hash of this program's file; 0 if it cannot be read, which is compared with nobody's.
fn program() -> u64 {
    let mut hasher = blake3::Hasher::new();
    let read = File::open("/proc/self/exe").and_then(|file| hasher.update_reader(file).map(drop));
    read.map_or(0, |()| first(&hasher.finalize()))
}

/// The bits of a product on this device.
fn probe(device: &Device) -> u64 {
    let [rows, inner, columns] = PROBE;
    let values = |len: usize, seed: u64| {
        let value = |at: usize| (mix(seed ^ at as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        Tensor::<1>::from_data((0..len).map(value).collect::<Vec<_>>().as_slice(), device)
    };
    let left = values(rows * inner, 1).reshape([rows, inner]);
    let right = values(inner * columns, 2).reshape([inner, columns]);
    let product = host(left.matmul(right));
    number(&product.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

/// A hash that is never 0.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    first(&blake3::hash(bytes))
}

/// Never 0, which stands for "not known".
fn first(hash: &blake3::Hash) -> u64 {
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    u64::from_le_bytes(words[0]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_has_one_arithmetic() {
        let stamp = || stamped(TrainedOn { records: 3, ..TrainedOn::default() }, &Device::flex());
        let found = stamp();
        assert_eq!(found, stamp());
        assert_eq!(found.records, 3);
        assert!(
            [found.instructions, found.blocking, found.program, found.probe].iter().all(|n| *n > 0)
        );
    }

    #[test]
    fn other_caches_are_another_blocking() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(caches(folder.path()), "");
        for (index, size) in [("index1", "1024K"), ("index0", "32K")] {
            let cache = folder.path().join(index);
            std::fs::create_dir(&cache).expect("made");
            for (fact, value) in CACHE_FACTS.iter().zip(["1", "Data", size, "8", "64"]) {
                std::fs::write(cache.join(fact), format!("{value}\n")).expect("written");
            }
        }
        assert_eq!(caches(folder.path()), "1 Data 1024K 8 64, 1 Data 32K 8 64");
    }
}
