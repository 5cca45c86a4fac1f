//! Goodput under kills: the time of a run whose workers are killed every ten seconds, beside the same run left alone.
//!
//! `cargo bench -p benches --bench elastic`
//!
//! What a lost worker would have done while it was away is not counted against the run: with n workers, a second
//! without one of them costs 1/n of a second in any case.

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use benches::as_program;

const WORKERS: usize = 2;
const EVERY: Duration = Duration::from_secs(10);
const EPOCHS: u64 = 800;

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Before and after, since other programs may come and go meanwhile.
    let before = run(folder.path(), "before", false);
    let shot_at = run(folder.path(), "killed", true);
    let after = run(folder.path(), "after", false);
    let alone = (before.seconds + after.seconds) / 2.0;
    println!("{WORKERS} workers, mnist_mlp, {EPOCHS} epochs of 2,000 digits");
    println!("{:<28} {:>8.2} s", "left alone", alone);
    println!("{:<28} {:>8.2} s, {} kills", "a kill every 10 s", shot_at.seconds, shot_at.kills);
    println!("{:<28} {:>8.2} s", "the lost workers' share", shot_at.lost);
    let goodput = (alone + shot_at.lost) / shot_at.seconds;
    println!("{:<28} {goodput:>8.3}", "goodput, less that share");
    let record = benches::Record::begin("elastic");
    record.figure("left alone", ("s", "less"), alone, None);
    record.figure("a kill every 10 s", ("s", "less"), shot_at.seconds, Some(alone));
    record.figure("goodput, less the lost workers' share", ("of 1", "more"), goodput, None);
    ExitCode::SUCCESS
}

struct MeasuredRun {
    seconds: f64,
    kills: usize,
    lost: f64,
}

fn run(folder: &Path, name: &str, kill: bool) -> MeasuredRun {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let digits = digits.join("mnist-valid.recordio").canonicalize().expect("the zoo's data");
    let experiment = folder.join("experiment.yaml");
    let text = format!(
        "entrypoint: mnist_mlp\ndata: {{training: \"{}\"}}\nmicro_batches: 8\n\
         hyperparameters: {{global_batch_size: 200}}\n\
         searcher: {{metric: loss, max_length: {{epochs: {EPOCHS}}}}}\n\
         checkpoint_policy: none\nreproducibility: {{experiment_seed: 1}}\n",
        digits.display()
    );
    std::fs::write(&experiment, text).expect("written");
    let runs = folder.join(name);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("train")
        .arg(&experiment)
        .args(["--workers", &WORKERS.to_string(), "--out"])
        .arg(&runs)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let kills = if kill { shoot(&mut child) } else { 0 };
    assert!(child.wait().expect("ended").success(), "the run failed");
    let run = std::fs::read_dir(&runs).expect("a run").flatten().next().expect("a run").path();
    let (seconds, lost) = times(&run.join("logs/master.log"));
    MeasuredRun { seconds, kills, lost }
}

fn shoot(child: &mut Child) -> usize {
    let mut kills = 0;
    let mut next = Instant::now() + EVERY;
    while child.try_wait().expect("a state").is_none() {
        if Instant::now() >= next {
            next += EVERY;
            if let Some(pid) = worker_of(child.id()) {
                let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
                kills += usize::from(killed.is_ok_and(|status| status.success()));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    kills
}

fn worker_of(parent: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut workers: Vec<u32> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let owner = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_string();
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_worker = line.split(|byte| *byte == 0).nth(1)? == b"worker";
            (owner == parent.to_string() && is_worker).then_some(pid)
        })
        .collect();
    workers.sort_unstable();
    workers.first().copied()
}

/// Seconds of training, and the seconds' worth of workers that were away, from the master's log.
fn times(log: &Path) -> (f64, f64) {
    let text = std::fs::read_to_string(log).expect("the master's log");
    let mut lost = 0.0;
    let mut first = None;
    let mut last = 0.0;
    let mut short: Option<(f64, usize)> = None;
    for line in text.lines() {
        let Some(at) = seconds_of(line) else { continue };
        last = at;
        let members = line.split("began: ").nth(1).and_then(|rest| rest.split(' ').next());
        let Some(members) = members.and_then(|text| text.parse::<usize>().ok()) else { continue };
        first.get_or_insert(at);
        if let Some((since, members)) = short.take() {
            lost += (at - since) * (WORKERS - members) as f64 / WORKERS as f64;
        }
        if members < WORKERS {
            short = Some((at, members));
        }
    }
    (last - first.expect("a generation"), lost)
}

/// `2026-11-16T07:23:19.507755Z ...` as seconds of the day.
fn seconds_of(line: &str) -> Option<f64> {
    let time = line.split('T').nth(1)?.split('Z').next()?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    Some(parts.next()?? * 3600.0 + parts.next()?? * 60.0 + parts.next()??)
}
