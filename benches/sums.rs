//! What a step costs whose gradients are added up in the fixed tree, beside one that adds them in the order of ranks:
//! whole runs of single-threaded workers, in shared memory and over TCP.
//!
//! Each pair of runs takes turns, and a figure is the median of the pairs' ratios. A run's start and end do not count:
//! steps and seconds are those of its profile, between the first line that has steps and the last one.
//!
//! `cargo bench -p benches --bench sums`; words behind `--` choose models, and `4` or `tcp` among what they are
//! trained with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use benches::{Record, as_program, median};
use salamander_core::environment::SUMS_BY_RANK;
use serde_json::Value;

const BATCH: u64 = 64;
const ROUNDS: usize = 5;
/// What a step may take of the time of one in the order of ranks.
const GOAL: f64 = 1.05;

/// A network of the zoo.
struct Model {
    name: &'static str,
    entrypoint: &'static str,
    hyperparameters: &'static str,
    /// About four seconds of two workers.
    steps: u64,
}

/// 2.7, 4.8 and 23 MB of gradients.
const MODELS: [Model; 3] = [
    Model { name: "mlp", entrypoint: "mnist_mlp", hyperparameters: "", steps: 2500 },
    Model { name: "conv32", entrypoint: "mnist_conv32", hyperparameters: "", steps: 300 },
    Model { name: "wide", entrypoint: "mnist_mlp", hyperparameters: ", hidden: 2048", steps: 120 },
];

/// Workers, and slices of a batch. Three workers have no whole nodes of the tree over eight.
const SIZES: [(u64, u64); 4] = [(2, 2), (3, 3), (3, 8), (4, 4)];
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with("--")).collect();
    let asked = |among: &[&str], name: &str| {
        let mut named = words.iter().filter(|word| among.contains(&word.as_str())).peekable();
        named.peek().is_none() || named.any(|word| word == name)
    };
    let names = MODELS.map(|model| model.name);
    let record = Record::begin("sums");
    println!(
        "a step in the fixed tree to one in the order of ranks, batch {BATCH}, one thread each"
    );
    println!("(medians of {ROUNDS} pairs of runs; the goal with 2 and 4 workers is {GOAL})");
    println!(
        "{:<8} {:>7} {:>6} {:>9} {:>10} {:>10} {:>6} {:>6}",
        "model", "workers", "slices", "transport", "tree ms", "ranks ms", "time", "CPU"
    );
    for model in MODELS.iter().filter(|model| asked(&names, model.name)) {
        for (workers, slices) in SIZES {
            if !asked(&["2", "3", "4"], &workers.to_string()) {
                continue;
            }
            for transport in TRANSPORTS.into_iter().filter(|name| asked(&TRANSPORTS, name)) {
                compare(model, &Training { workers, slices, transport }, &record);
            }
        }
    }
    ExitCode::SUCCESS
}

/// How a model is trained.
struct Training {
    workers: u64,
    slices: u64,
    transport: &'static str,
}

/// Milliseconds of a step.
#[derive(Clone, Copy)]
struct StepTime {
    clock: f64,
    /// Of all workers on processors.
    processor: f64,
}

fn compare(model: &Model, training: &Training, record: &Record) {
    let Training { workers, slices, transport } = training;
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_experiment(folder.path(), model, training);
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        // Whoever is second may find another machine.
        let tree_first = round % 2 == 0;
        let first = run(folder.path(), &file, !tree_first);
        let second = run(folder.path(), &file, tree_first);
        pairs.push(if tree_first { (first, second) } else { (second, first) });
    }
    let middle = |of: &dyn Fn(&(StepTime, StepTime)) -> f64| {
        median(&mut pairs.iter().map(of).collect::<Vec<_>>())
    };
    let (tree, ranks) = (middle(&|pair| pair.0.clock), middle(&|pair| pair.1.clock));
    let time = middle(&|(tree, ranks)| tree.clock / ranks.clock);
    let processor = middle(&|(tree, ranks)| tree.processor / ranks.processor);
    println!(
        "{:<8} {workers:>7} {slices:>6} {transport:>9} {tree:>10.3} {ranks:>10.3} {time:>6.3} {processor:>6.3}",
        model.name
    );
    let what = format!("{}, {workers} workers, {slices} slices, {transport}", model.name);
    record.figure(&what, ("of rank order's step", "less"), time, Some(GOAL));
    let what = format!("{what}, processor");
    record.figure(&what, ("of rank order's step", "less"), processor, Some(GOAL));
}

fn write_experiment(folder: &Path, model: &Model, training: &Training) -> PathBuf {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let digits = digits.join("mnist-train.recordio").canonicalize().expect("the zoo's data");
    let Model { entrypoint, hyperparameters, steps, .. } = model;
    let Training { workers, slices, transport } = training;
    let transport = if *transport == "shm" { "auto" } else { transport };
    let text = format!(
        "entrypoint: {entrypoint}\ndata: {{training: \"{}\"}}\nstrategy: allreduce\n\
         hyperparameters: {{global_batch_size: {BATCH}{hyperparameters}}}\n\
         workers: {{min: {workers}, max: {workers}}}\nmicro_batches: {slices}\nthreads: 1\n\
         elastic: {{transport: {transport}}}\ncheckpoint_policy: none\n\
         searcher: {{metric: loss, max_length: {{batches: {steps}}}}}\n\
         reproducibility: {{experiment_seed: 1}}\n",
        digits.display()
    );
    let file = folder.join("experiment.yaml");
    fs::write(&file, text).expect("written");
    file
}

fn run(folder: &Path, file: &Path, by_rank: bool) -> StepTime {
    let runs = folder.join("runs");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("train").arg(file).arg("--out").arg(&runs);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if by_rank {
        command.env(SUMS_BY_RANK, "1");
    }
    assert!(command.status().expect("the program starts").success(), "the run failed");
    let run = fs::read_dir(&runs).expect("a run").flatten().next().expect("a run").path();
    let profiles = fs::read_dir(run.join("profile")).expect("profiles").flatten();
    let workers: Vec<StepTime> = profiles.map(|profile| steady(&profile.path())).collect();
    fs::remove_dir_all(&runs).expect("removed");
    let clocks = workers.iter().map(|worker| worker.clock);
    StepTime {
        clock: clocks.fold(0.0, f64::max),
        processor: workers.iter().map(|worker| worker.processor).sum(),
    }
}

/// A worker's step, without what came before the first and after the last.
fn steady(profile: &Path) -> StepTime {
    let text = fs::read_to_string(profile).expect("a profile");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let number = |line: &Value, name: &str| line[name].as_f64().unwrap_or_default();
    let trained: Vec<Value> = lines.skip_while(|line| number(line, "steps") == 0.0).collect();
    // The first of them has a part of the start in it, and the last one the end.
    let [first, between @ .., _] = trained.as_slice() else {
        panic!("{}: the run is too short", profile.display());
    };
    let last = between.last().unwrap_or_else(|| panic!("{}: too short", profile.display()));
    let steps = number(last, "steps") - number(first, "steps");
    let all = |name: &str| between.iter().map(|line| number(line, name)).sum::<f64>();
    StepTime { clock: 1e3 * all("seconds") / steps, processor: 1e3 * all("cpu") / steps }
}
