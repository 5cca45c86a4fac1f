//! Two single-threaded workers with AllReduce, as `train --workers 2` starts them, beside PyTorch's DDP with two
//! processes
//! over Gloo.
//!
//! Ours read digits from a file; PyTorch's are in memory. `SALAMANDER_PEERS=/path/to/python cargo bench -p benches
//! --bench workers`

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use benches::{Peer, median};

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
    // The roles of a run are started as this program.
    let role = std::env::args().nth(1).unwrap_or_default();
    if matches!(role.as_str(), "train" | "master" | "worker") {
        model_zoo::memory::keep();
        return salamander::main(model_zoo::models());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let peer = Peer::find("ddp.py", "torch");
    println!("two workers of one thread, batch {BATCH}, f32, steps/s (median of {ROUNDS} rounds)");
    println!("{:<8} {:>12} {:>12} {:>8}", "model", "salamander", "ddp (gloo)", "ratio");
    for (name, entrypoint, steps) in MODELS {
        write_experiment(folder.path(), entrypoint);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // In turns, so that both see the same weather on the machine.
        for _ in 0..ROUNDS {
            ours.push(rate(folder.path(), steps));
            theirs.extend(peer.as_ref().and_then(|peer| peer.measure(&[name, SECONDS])));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        println!("{name:<8} {ours:>12.1} {theirs:>12.1} {:>8.2}", ours / theirs);
    }
    ExitCode::SUCCESS
}

fn write_experiment(folder: &Path, entrypoint: &str) {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let digits = digits.join("mnist-train.recordio").canonicalize().expect("the zoo's data");
    let text = format!(
        "entrypoint: {entrypoint}\ndata: {{training: \"{}\"}}\n\
         hyperparameters: {{global_batch_size: {BATCH}}}\ncheckpoint_policy: none\n\
         searcher: {{metric: loss}}\nreproducibility: {{experiment_seed: 1}}\n",
        digits.display()
    );
    std::fs::write(folder.join("experiment.yaml"), text).expect("written");
}

fn rate(folder: &Path, steps: [u64; 2]) -> f64 {
    let seconds = steps.map(|steps| {
        let started = Instant::now();
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(["train", "experiment.yaml", "--workers", "2", "--threads", "1", "--set"])
            .arg(format!("searcher.max_length={{batches: {steps}}}"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("the program starts").success(), "the run failed");
        started.elapsed().as_secs_f64()
    });
    (steps[1] - steps[0]) as f64 / (seconds[1] - seconds[0])
}
