//! What it costs to tell others of a run beside training it: TensorBoard's files, an MLflow server and a hub, all at
//! once; with the servers there, and with both away.
//!
//! Each sink is a thread of the run's process. Its time on the processor is compared with that of the whole process,
//! so that what else the machine does counts for neither.
//!
//! `cargo bench -p benches --bench sinks`; `SALAMANDER_PROGRAM` names another program to measure than this one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use benches::{Record, as_program};

const BATCH: u64 = 64;
/// The part of a run's seconds that all sinks may take.
const GOAL: f64 = 0.01;
/// Threads that are sinks.
const SINKS: [&str; 3] = ["tensorboard", "mlflow", "hub"];
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// A model, its name in the zoo, and steps of about ten seconds.
const MODELS: [(&str, &str, u64); 2] =
    [("mlp", "mnist_mlp", 10_000), ("conv16", "mnist_conv16", 1500)];

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
    let record = Record::begin("sinks");
    let folder = tempfile::tempdir().expect("a folder");
    for (name, entrypoint, steps) in MODELS {
        for there in [true, false] {
            let hub = there.then(|| Hub::start(folder.path()));
            let address = hub.as_ref().map_or_else(nobody, |hub| hub.address.clone());
            let file = write_experiment(folder.path(), entrypoint, steps, &address);
            let spent = train(folder.path(), &file);
            let servers = if there { "servers there" } else { "servers away" };
            let sinks: f64 = spent.sinks.values().sum();
            let each = spent.sinks.iter().map(|(sink, seconds)| format!("{sink} {seconds:.3} s"));
            println!(
                "{name:<8} {servers}: {:.2} % of {:.2} s for {steps} steps ({})",
                100.0 * sinks / spent.whole,
                spent.whole,
                each.collect::<Vec<_>>().join(", ")
            );
            let figure = format!("all sinks, {name}, {servers}");
            record.figure(
                &figure,
                ("of the run's own time", "less"),
                sinks / spent.whole,
                Some(GOAL),
            );
        }
    }
    ExitCode::SUCCESS
}

fn program() -> PathBuf {
    let named = std::env::var_os("SALAMANDER_PROGRAM").map(PathBuf::from);
    named.unwrap_or_else(|| std::env::current_exe().expect("this program"))
}

/// Where nobody listens.
fn nobody() -> String {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    closed.local_addr().expect("an address").to_string()
}

/// A hub, which is an MLflow server as well. It ends with this.
struct Hub {
    process: Child,
    address: String,
}

impl Hub {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(program());
        command.args(["hub", "--listen", "127.0.0.1:0", "--runs"]).arg(folder.join("hub"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the program starts");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.to_string();
        Self { process, address }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_experiment(folder: &Path, entrypoint: &str, steps: u64, address: &str) -> PathBuf {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let digits = digits.join("mnist-train.recordio").canonicalize().expect("the zoo's data");
    let text = format!(
        "entrypoint: {entrypoint}\ndata: {{training: \"{}\"}}\n\
         hyperparameters: {{global_batch_size: {BATCH}}}\ncheckpoint_policy: none\n\
         searcher: {{metric: loss, max_length: {{batches: {steps}}}}}\n\
         reproducibility: {{experiment_seed: 1}}\n\
         tracking: {{tensorboard: true, hub: \"http://{address}\", mlflow: {{uri: \"http://{address}\"}}}}\n",
        digits.display()
    );
    let file = folder.join("experiment.yaml");
    fs::write(&file, text).expect("written");
    file
}

/// Seconds on processors.
#[derive(Default)]
struct Spent {
    /// Of the whole process.
    whole: f64,
    /// Of each of its sinks.
    sinks: BTreeMap<String, f64>,
}

/// Trains, and looks at the process until it ends.
fn train(folder: &Path, file: &Path) -> Spent {
    let mut command = Command::new(program());
    command.arg("train").arg(file).arg("--out").arg(folder.join("runs"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let mut spent = Spent::default();
    loop {
        spent.look(&process);
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "the run failed");
            return spent;
        }
        std::thread::sleep(LOOK);
    }
}

impl Spent {
    /// Takes in how much it is by now; what has ended keeps what it had.
    fn look(&mut self, process: &Path) {
        let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        for task in tasks {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let name = name.trim();
            if !SINKS.contains(&name) {
                continue;
            }
            // Nanoseconds on a processor come first.
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let first = text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
            let known = self.sinks.entry(name.to_string()).or_default();
            *known = known.max(first.unwrap_or(0.0) / 1e9);
        }
        // Behind the program's name in brackets, which may have spaces: 12th and 13th, in hundredths.
        let text = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
        let ticks = behind.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        self.whole = self.whole.max(ticks / 100.0);
    }
}
