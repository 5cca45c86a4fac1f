//! The same work on every device that is compiled in and present, beside PyTorch: where a model should compute.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench backends`; `--features wgpu` or `cuda` for GPUs.
//! Words behind `--` choose areas and devices: `-- matmul wgpu`. A software renderer gets tiny sizes and few rounds; it
//! shows that the work is done, not how fast a GPU is.
//!
//! Exchange and data have benches of their own: `cargo bench -p salamander-net` and `--bench data`.

mod steps;
mod work;

use std::time::{Duration, Instant};

use benches::{PythonPeer, Record, median};
use burn::tensor::Device;
use salamander_train::device::{FoundDevice, select, survey};
use work::{AREAS, Area, Sizes};

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long an area is measured on a device.
const TIME: Duration = Duration::from_secs(3);

fn main() {
    model_zoo::memory::keep();
    salamander_train::threads::join(None);
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let asked = |name: &str| {
        let kind = name.split(':').next().unwrap_or(name);
        let about = |word: &String| is_area(word) == is_area(kind);
        !words.iter().any(about) || words.iter().any(|word| word == kind || word == name)
    };
    let mut devices = Vec::new();
    for kind in survey() {
        match kind.devices {
            Ok(found) => devices.extend(found.into_iter().filter_map(|one| match one {
                Ok(found) => Some(found),
                Err(reason) => {
                    println!("{reason}");
                    None
                }
            })),
            Err(reason) => println!("{} {reason}", kind.kind.name()),
        }
    }
    let peer = PythonPeer::find("backends.py", "torch");
    let record = Record::begin("backends");
    println!("{:<22} {:<8} {:>12} {:>12} {:>8}  unit", "area", "device", "ours", "torch", "ratio");
    for device in devices.iter().filter(|device| asked(&device.name)) {
        println!("{} is {}", device.name, device.model);
        for area in AREAS.iter().filter(|area| asked(area.name)) {
            report(area, device, peer.as_ref(), &record);
        }
    }
}

fn is_area(word: &str) -> bool {
    AREAS.iter().any(|area| area.name == word)
}

fn report(area: &Area, found: &FoundDevice, peer: Option<&PythonPeer>, record: &Record) {
    let device = match select(&found.name) {
        Ok(device) => device,
        Err(error) => return println!("{:<22} {:<8} {error}", area.name, found.name),
    };
    let sizes = if found.software { Sizes::TINY } else { Sizes::USUAL };
    let mut step = (area.prepare)(&device, &sizes);
    let ours = rate((area.items)(&sizes), &device, found.software, step.as_mut());
    // PyTorch has no such device as wgpu: its processor is what there is to compare with.
    let place = if found.name.starts_with("cuda") { "cuda" } else { "cpu" };
    let seconds = TIME.as_secs().to_string();
    let theirs = peer
        .and_then(|peer| peer.measure(&[area.name, &sizes.to_string(), &seconds, place]))
        .unwrap_or(f64::NAN);
    let what = format!("{}, {}, sizes {sizes}", area.name, found.name);
    record.figure(&what, (area.unit, "more"), ours, Some(theirs));
    println!(
        "{:<22} {:<8} {ours:>12.2} {theirs:>12.2} {:>8.2}  {}",
        area.name,
        found.name,
        ours / theirs,
        area.unit
    );
}

/// The median rate. The first round compiles kernels on a GPU and does not count.
fn rate(items: f64, device: &Device, software: bool, step: &mut dyn FnMut()) -> f64 {
    let least = if software { 1 } else { 5 };
    let mut rates = Vec::new();
    let begun = Instant::now();
    let mut first = true;
    while rates.len() < least || (begun.elapsed() < TIME && rates.len() < 1000) {
        let start = Instant::now();
        step();
        if let Err(error) = device.sync() {
            println!("the device gave up: {error:?}");
            return f64::NAN;
        }
        if !std::mem::take(&mut first) {
            rates.push(items / start.elapsed().as_secs_f64());
        }
    }
    median(&mut rates)
}
