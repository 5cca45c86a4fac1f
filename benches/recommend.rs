//! Steps per second of DeepFM on data like Criteo's: in one process, with tables on parameter servers, and the same
//! network in PyTorch with sparse embeddings in one process.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench recommend`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::{PythonPeer, Record, as_program, median, steps_per_second};
use salamander_data::generate::{Criteo, World};
use salamander_data::sink;

const BATCH: u64 = 512;
/// Two lengths, whose difference counts.
const STEPS: [u64; 2] = [60, 360];
const ROUNDS: usize = 3;

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = generate(folder.path());
    let peer = PythonPeer::find("deepfm.py", "torch");
    let ways: [(&str, &[&str]); 3] = [
        ("one process", &[]),
        ("2 ps, 1 worker", &["--ps", "2", "--workers", "1"]),
        ("2 ps, 4 workers", &["--ps", "2", "--workers", "4"]),
    ];
    let mut rates = vec![Vec::new(); ways.len()];
    let mut theirs = [Vec::new(), Vec::new()];
    // In turns, so that all see the same weather on the machine.
    for _ in 0..ROUNDS {
        for ((_, flags), rates) in ways.iter().zip(&mut rates) {
            rates.push(steps_per_second(&file, STEPS, flags));
        }
        for (threads, rates) in ["1", "2"].into_iter().zip(&mut theirs) {
            rates.extend(peer.as_ref().and_then(|peer| peer.measure(&["5", threads])));
        }
    }
    // With the number of threads that serves it best: on few and busy cores its threads wait for each other.
    let theirs = theirs.iter_mut().map(|rates| median(rates)).fold(f64::NAN, f64::max);
    println!("DeepFM, batch {BATCH}, steps/s (median of {ROUNDS})");
    let record = Record::begin("recommend");
    for ((name, _), rates) in ways.iter().zip(&mut rates) {
        let ours = median(rates);
        record.figure(name, ("steps/s", "more"), ours, Some(theirs));
        println!("{name:<18} {ours:>8.1} {:>8.2} of torch's {theirs:.1}", ours / theirs);
    }
    ExitCode::SUCCESS
}

/// Data, and the experiment's file.
fn generate(folder: &Path) -> PathBuf {
    let world = Criteo::new(1, 20_000);
    let path = folder.join("train.txt");
    let mut file = sink::create(&path, world.format()).expect("a file");
    for record in 0..BATCH * 100 {
        file.write(&world.draw(record).row(&world)).expect("written");
    }
    file.finish().expect("written");
    let text = format!(
        "entrypoint: deepfm\ndata: {{training: train.txt, format: {}}}\n\
         hyperparameters: {{global_batch_size: {BATCH}}}\ncheckpoint_policy: none\n\
         searcher: {{metric: loss}}\nreproducibility: {{experiment_seed: 1}}\n",
        world.format()
    );
    let file = folder.join("deepfm.yaml");
    std::fs::write(&file, text).expect("written");
    file
}
