//! Two single-threaded workers with AllReduce, as `train --workers 2` starts them, beside PyTorch's DDP with two
//! processes over Gloo.
//!
//! Ours read digits from a file; PyTorch's are in memory. `SALAMANDER_PEERS=/path/to/python cargo bench -p benches
//! --bench workers`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::{PythonPeer, as_program, median, steps_per_second};

const BATCH: u64 = 64;
const ROUNDS: usize = 3;
const SECONDS: &str = "6";

/// A model, its name in the zoo, and two lengths: a run's start does not count, their difference does.
const MODELS: [(&str, &str, [u64; 2]); 2] =
    [("mlp", "mnist_mlp", [200, 2200]), ("conv32", "mnist_conv32", [20, 220])];

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let peer = PythonPeer::find("ddp.py", "torch");
    println!("two workers of one thread, batch {BATCH}, f32, steps/s (median of {ROUNDS} rounds)");
    println!("{:<8} {:>12} {:>12} {:>8}", "model", "salamander", "ddp (gloo)", "ratio");
    for (name, entrypoint, steps) in MODELS {
        let file = write_experiment(folder.path(), entrypoint);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // In turns, so that both see the same weather on the machine.
        for _ in 0..ROUNDS {
            ours.push(steps_per_second(&file, steps, &["--workers", "2", "--threads", "1"]));
            theirs.extend(peer.as_ref().and_then(|peer| peer.measure(&[name, SECONDS])));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        println!("{name:<8} {ours:>12.1} {theirs:>12.1} {:>8.2}", ours / theirs);
    }
    ExitCode::SUCCESS
}

/// The file.
fn write_experiment(folder: &Path, entrypoint: &str) -> PathBuf {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let digits = digits.join("mnist-train.recordio").canonicalize().expect("the zoo's data");
    let text = format!(
        "entrypoint: {entrypoint}\ndata: {{training: \"{}\"}}\n\
         hyperparameters: {{global_batch_size: {BATCH}}}\ncheckpoint_policy: none\n\
         searcher: {{metric: loss}}\nreproducibility: {{experiment_seed: 1}}\n",
        digits.display()
    );
    let file = folder.join("experiment.yaml");
    std::fs::write(&file, text).expect("written");
    file
}
