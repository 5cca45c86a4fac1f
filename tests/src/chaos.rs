//! A run under fire: workers, parameter servers and masters are killed and stopped at seeded moments while a model with
//! one weight per record trains, and then every record is counted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::Plan;
use salamander_core::seed::Rng;
use serde_json::Value;

/// A run that faults are still to come for is so much slower: on a fast machine, too, it does not end before them.
const SLOWER: u64 = 8;

/// What is done to which run.
#[derive(Clone, Debug)]
pub struct Fire {
    /// Draws the moments and the victims.
    pub seed: u64,
    /// Workers to begin with.
    pub workers: u32,
    /// Parameter servers to begin with: the weights are rows of a table on them. None: a parameter of the model.
    pub servers: u32,
    /// Whether workers push to the servers without waiting for each other.
    pub asynchronous: bool,
    /// Records of an epoch.
    pub records: u64,
    /// Records of a step.
    pub batch: u64,
    /// Epochs.
    pub epochs: u64,
    /// How many times something is done to the run.
    pub faults: usize,
    /// How many of these hit an exchange at least: more is done until they have, at most twice as much.
    pub in_exchange: usize,
    /// How long a micro-batch takes, times `SLOWER`, until everything was done to the run; nothing after that.
    pub delay_ms: u64,
    /// How gradients travel.
    pub transport: &'static str,
    /// Says aloud what happens.
    pub loud: bool,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Story {
    /// What was done, and what its victim was doing.
    pub faults: Vec<(String, String)>,
    /// The run's summary.
    pub summary: Value,
}

impl Story {
    /// How many were hit between the begin and the end of an exchange.
    pub fn in_exchange(&self) -> usize {
        self.faults.iter().filter(|(_, at)| at == "exchanging").count()
    }
}

/// A process of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    role: String,
}

/// Trains under fire in a folder of its own; the error says what went wrong.
pub fn run(program: &Path, folder: &Path, fire: &Fire) -> Result<Story, String> {
    prepare(folder, fire);
    let slow = folder.join("slow");
    fs::write(&slow, "").map_err(|error| error.to_string())?;
    let mut parent = start(program, folder, fire, &slow).map_err(|error| error.to_string())?;
    let mut story = Story::default();
    let shot = shoot(program, folder, &mut parent, fire, &mut story);
    let _ = fs::remove_file(&slow);
    let ended = shot.and_then(|()| wait(&mut parent, folder));
    if ended.is_err() {
        let _ = parent.kill();
        let _ = parent.wait();
    }
    ended?;
    let out = fs::read_to_string(folder.join("out.txt")).map_err(|error| error.to_string())?;
    let last = out.lines().last().unwrap_or_default();
    story.summary = serde_json::from_str(last).map_err(|error| format!("{error}: {last:?}"))?;
    prove(program, folder, fire, &story.summary)?;
    leaves_nothing(fire, &story.summary)?;
    match children(parent.id()).as_slice() {
        [] => Ok(story),
        left => Err(format!("processes are left behind: {left:?}")),
    }
}

/// A run that is over has the checkpoints that count, and nothing that killed writers left. Servers that wait for
/// nobody begin with rows that they keep beside them.
fn leaves_nothing(fire: &Fire, summary: &Value) -> Result<(), String> {
    let run = summary["dir"].as_str().filter(|_| !fire.asynchronous);
    match run.map(|run| left_behind(Path::new(run))).unwrap_or_default().as_slice() {
        [] => Ok(()),
        left => Err(format!("files are left behind: {left:?}")),
    }
}

/// Every record counted once per epoch, and in synchronous training the weights have the bits of an undisturbed run.
pub fn prove(program: &Path, folder: &Path, fire: &Fire, summary: &Value) -> Result<(), String> {
    count(summary, fire)?;
    if fire.asynchronous { Ok(()) } else { same_bits(program, folder, summary) }
}

/// Whoever died, the weights are those of one process that nobody disturbed, to the last bit: also those that all
/// records move together.
fn same_bits(program: &Path, folder: &Path, summary: &Value) -> Result<(), String> {
    let alone = ["strategy=local", "workers=1", "hyperparameters.delay_ms=0"];
    let sets = alone.iter().flat_map(|set| ["--set", set]);
    let output = Command::new(program)
        .args(["train", "tally.yaml", "--json", "--out", "undisturbed"])
        .args(sets)
        .current_dir(folder)
        .output()
        .map_err(|error| error.to_string())?;
    let out = String::from_utf8_lossy(&output.stdout);
    let last = out.lines().last().unwrap_or_default();
    let alone: Value = serde_json::from_str(last)
        .map_err(|error| format!("{error}: {out}{}", String::from_utf8_lossy(&output.stderr)))?;
    let (found, expected) = (&summary["weights_hash"], &alone["weights_hash"]);
    if found != expected || !found.is_string() {
        return Err(format!("the weights are {found}, of an undisturbed run {expected}"));
    }
    Ok(())
}

/// Writes the records and the experiment.
pub fn prepare(folder: &Path, fire: &Fire) {
    let ids: String = (0..fire.records).map(|id| format!("{id}\n")).collect();
    fs::write(folder.join("ids.csv"), format!("id\n{ids}")).expect("written");
    let Fire { workers, servers, records, batch, epochs, delay_ms, transport, .. } = fire;
    let (model, strategy) = match (*servers, fire.asynchronous) {
        (0, _) => ("tally", "allreduce"),
        (_, false) => ("table_tally", "hybrid"),
        (_, true) => ("table_tally", "ps"),
    };
    let phases = folder.display();
    // The order of pushes is that of the workers' speed, and so are the last bits of what several of them move.
    let blend = !fire.asynchronous;
    // So that some are killed while they validate.
    let validation = if fire.asynchronous { ", validation: ids.csv" } else { "" };
    let experiment = format!(
        "entrypoint: {model}\n\
         data: {{training: ids.csv{validation}, shuffle: full, threads: 1}}\n\
         strategy: {strategy}\n\
         ps: {{servers: {servers}}}\n\
         workers: {{min: 1, max: {workers}}}\n\
         micro_batches: 8\n\
         min_checkpoint_period: {{batches: 40}}\n\
         searcher: {{name: single, metric: loss, max_length: {{epochs: {epochs}}}}}\n\
         reproducibility: {{experiment_seed: 7}}\n\
         elastic: {{silence: 1.0, transport: {transport}}}\n\
         hyperparameters: {{global_batch_size: {batch}, records: {records}, delay_ms: {delay_ms}, \
         blend: {blend}, phases: {phases}}}\n"
    );
    fs::write(folder.join("tally.yaml"), experiment).expect("written");
}

/// Starts a run that is slow as long as a file is there.
fn start(program: &Path, folder: &Path, fire: &Fire, slow: &Path) -> std::io::Result<Child> {
    let delay = format!("hyperparameters.delay_ms={}", SLOWER * fire.delay_ms);
    let slow = format!("hyperparameters.slow_file={}", slow.display());
    Command::new(program)
        .args(["train", "tally.yaml", "--json", "--set", &delay, "--set", &slow])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(File::create(folder.join("out.txt"))?)
        .stderr(File::create(folder.join("err.txt"))?)
        .spawn()
}

fn shoot(
    program: &Path,
    folder: &Path,
    parent: &mut Child,
    fire: &Fire,
    story: &mut Story,
) -> Result<(), String> {
    let mut rng = Rng::new(fire.seed);
    let trouble = |what: &str| format!("{what}\n{}", tail(&folder.join("err.txt")));
    let begun = Instant::now();
    while !steps_begun(folder) {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(trouble("the run did not begin within a minute"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_enough = |story: &Story| {
        let hits = story.in_exchange() >= fire.in_exchange;
        story.faults.len() >= fire.faults && (hits || story.faults.len() >= 2 * fire.faults)
    };
    while !is_enough(story) {
        std::thread::sleep(Duration::from_millis(100 + rng.below(300)));
        if parent.try_wait().map_err(|error| error.to_string())?.is_some() {
            let done = story.faults.len();
            return Err(trouble(&format!("the run ended after {done} faults: make it longer")));
        }
        let fault = match rng.below(20) {
            0..3 if fire.servers > 0 => kill_server(parent.id(), &mut rng),
            0..11 => hit(folder, parent.id(), &mut rng, Signal::KILL),
            11..15 => hit(folder, parent.id(), &mut rng, Signal::STOP),
            15..18 => kill_master(parent.id()),
            _ => scale(program, folder, fire, &mut rng),
        };
        if let Some((what, at)) = fault {
            if fire.loud {
                println!("{:>7.2} s  {what} ({at})", begun.elapsed().as_secs_f64());
            }
            story.faults.push((what, at));
        }
    }
    Ok(())
}

fn steps_begun(folder: &Path) -> bool {
    let runs = fs::read_dir(folder.join("runs")).into_iter().flatten().flatten();
    runs.into_iter()
        .any(|run| fs::metadata(run.path().join("metrics.jsonl")).is_ok_and(|file| file.len() > 0))
}

/// Kills a worker, or stops it for a while. Two of three are aimed at an exchange.
fn hit(folder: &Path, parent: u32, rng: &mut Rng, signal: Signal) -> Option<(String, String)> {
    let workers: Vec<Process> =
        children(parent).into_iter().filter(|process| process.role == "worker").collect();
    let first = rng.below(workers.len() as u64) as usize;
    let mut victim = workers.get(first)?.pid;
    let aimed = rng.below(3) > 0;
    let deadline = Instant::now() + Duration::from_secs(1);
    // The first that exchanges, beginning with the one that was drawn: it may be starting for long.
    let mut exchanging = workers[first..].iter().chain(&workers[..first]).cycle();
    while aimed
        && Instant::now() < deadline
        && let Some(worker) = exchanging.next()
    {
        if phase(folder, worker.pid) == "exchanging" {
            victim = worker.pid;
            break;
        }
    }
    // Stopped first, so that what it was doing can be read before it is gone.
    send(victim, Signal::STOP)?;
    let at = phase(folder, victim);
    if signal == Signal::KILL {
        send(victim, Signal::KILL)?;
        return Some((format!("killed worker {victim}"), at));
    }
    let pause = 200 + rng.below(2500);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(pause));
        send(victim, Signal::CONT)
    });
    Some((format!("stopped worker {victim} for {pause} ms"), at))
}

fn kill_master(parent: u32) -> Option<(String, String)> {
    let master = children(parent).into_iter().find(|process| process.role == "master")?;
    send(master.pid, Signal::KILL)?;
    Some((format!("killed master {}", master.pid), "master".to_string()))
}

fn kill_server(parent: u32, rng: &mut Rng) -> Option<(String, String)> {
    let servers: Vec<Process> =
        children(parent).into_iter().filter(|process| process.role == "ps").collect();
    let victim = servers.get(rng.below(servers.len() as u64) as usize)?.pid;
    send(victim, Signal::KILL)?;
    Some((format!("killed parameter server {victim}"), "ps".to_string()))
}

fn scale(program: &Path, folder: &Path, fire: &Fire, rng: &mut Rng) -> Option<(String, String)> {
    let run = fs::read_dir(folder.join("runs")).ok()?.flatten().next()?.path();
    let servers = fire.servers > 0 && rng.below(3) == 0;
    let (flag, what, most) = match servers {
        true => ("--ps", "parameter servers", fire.servers),
        false => ("--workers", "workers", fire.workers),
    };
    let number = 1 + rng.below(u64::from(most) + 1);
    let mut command = Command::new(program);
    command.arg("scale").arg(&run).args([flag, &number.to_string()]);
    // A master that is just down cannot be asked; then nothing was done.
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    done.success().then(|| (format!("scaled to {number} {what}"), "scale".to_string()))
}

/// What a worker's model says that it is doing.
fn phase(folder: &Path, pid: u32) -> String {
    let text = fs::read_to_string(folder.join(format!("phase-{pid}"))).unwrap_or_default();
    if text.is_empty() { "starting".to_string() } else { text.trim().to_string() }
}

fn send(pid: u32, signal: Signal) -> Option<()> {
    kill_process(Pid::from_raw(pid as i32)?, signal).ok()
}

/// The processes that a run has started.
pub fn children_of(parent: u32) -> Vec<u32> {
    children(parent).into_iter().map(|process| process.pid).collect()
}

/// The processes of a role that a run has started.
pub fn processes_of(parent: u32, role: &str) -> Vec<u32> {
    let of_role = children(parent).into_iter().filter(|process| process.role == role);
    of_role.map(|process| process.pid).collect()
}

/// The processes that a run has started, from the system's own list.
fn children(parent: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, ppid) = (fields.next()?, fields.next()?);
        if ppid != parent.to_string() || state == "Z" {
            return None;
        }
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let role = line.split(|byte| *byte == 0).nth(1)?;
        Some(Process { pid, role: String::from_utf8_lossy(role).into_owned() })
    });
    found.collect()
}

fn wait(parent: &mut Child, folder: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        match parent.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{status}\n{}", tail(&folder.join("err.txt")))),
            None if Instant::now() > deadline => {
                return Err(format!("the run hangs\n{}", tail(&folder.join("err.txt"))));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Every record was applied exactly once per epoch: by the weights and by the ledger, each on its own.
pub fn count(summary: &Value, fire: &Fire) -> Result<(), String> {
    for line in summary["ledger"].as_array().ok_or("there is no ledger")? {
        let clean = line["applied"] == fire.records
            && line["missing"] == 0
            && line["duplicated"] == 0
            && line["intact"] == true;
        if !clean {
            return Err(format!("the ledger is not clean: {line}"));
        }
    }
    let checkpoint = PathBuf::from(summary["checkpoint"].as_str().ok_or("no checkpoint")?);
    let weights = match fire.servers {
        0 => parameter(&checkpoint)?,
        _ => rows(&checkpoint, fire.records)?,
    };
    let expected = expected(fire);
    let wrong: Vec<String> = weights
        .iter()
        .zip(&expected)
        .enumerate()
        // A record that is missing or repeated is off by one over the batch.
        .filter(|(_, (found, expected))| (**found - **expected).abs() > 0.2 / fire.batch as f32)
        .map(|(id, (found, expected))| {
            format!("record {id} was applied {:.2} times", found / expected * fire.epochs as f32)
        })
        .take(5)
        .collect();
    if weights.len() as u64 != fire.records || !wrong.is_empty() {
        return Err(format!("{} weights; {}", weights.len(), wrong.join("; ")));
    }
    Ok(())
}

/// Files and folders of these names.
pub fn names(folder: &Path, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| is_one(name)).collect()
}

/// What a run that is over must not have: files of writers that were killed, and checkpoints that never counted.
pub fn left_behind(run: &Path) -> Vec<String> {
    let checkpoints = run.join("checkpoints");
    let list = fs::read_to_string(checkpoints.join("counted")).unwrap_or_default();
    let is_counted = |name: &str| name == "counted" || list.lines().any(|line| line == name);
    let mut left = names(&checkpoints, |name| !is_counted(name));
    let is_unfinished = |name: &str| name.ends_with(".tmp") || name == "master.address";
    left.extend(names(run, is_unfinished));
    left
}

fn parameter(checkpoint: &Path) -> Result<Vec<f32>, String> {
    let bytes = fs::read(checkpoint.join("model.safetensors")).map_err(|e| e.to_string())?;
    let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|e| e.to_string())?;
    let weights = tensors.tensor("weights.weight").map_err(|e| e.to_string())?;
    let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(weights.data().chunks_exact(4).map(number).collect())
}

fn rows(checkpoint: &Path, records: u64) -> Result<Vec<f32>, String> {
    let files = fs::read_dir(checkpoint).map_err(|error| error.to_string())?.flatten();
    let files: Vec<PathBuf> = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rows"))
        .collect();
    let mut weights = vec![0.0; records as usize];
    let mut strangers = 0;
    salamander_ps::checkpoint::for_each_row(&files, "weights", |id, row| {
        match weights.get_mut(id as usize) {
            Some(weight) => *weight += row[0],
            None => strangers += 1,
        }
    })
    .map_err(|error| error.to_string())?;
    match strangers {
        0 => Ok(weights),
        _ => Err(format!("{strangers} rows that no record has")),
    }
}

/// What each weight is when each record is applied once per epoch: the sum of one over the records of its steps.
fn expected(fire: &Fire) -> Vec<f32> {
    let plan = Plan { records: fire.records, batch: fire.batch, aggregation: 1, slices: 8 };
    let mut weights = vec![0.0; fire.records as usize];
    for epoch in 0..fire.epochs {
        let order = Order::new(fire.records, Shuffle::Full, 7, epoch);
        for position in 0..fire.records {
            let step = position / fire.batch;
            let size = (plan.records - step * fire.batch).min(fire.batch);
            weights[order.record(position) as usize] += 1.0 / size as f32;
        }
    }
    weights
}
