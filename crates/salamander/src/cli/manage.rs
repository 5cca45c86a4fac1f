//! `salamander status | logs | scale | stop`: a distributed run, seen and steered from outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::roles::ask;
use crate::run::find;

/// How often `logs --follow` looks for new lines.
const LOOK: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// The run, by its folder or id
    run: String,
    /// Print a JSON object instead
    #[arg(long)]
    json: bool,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    place: super::kube::PlaceArgs,
    #[command(flatten)]
    folder: super::RunsFolder,
}

/// Shows where a run stands.
pub(super) fn status(args: &RunArgs) -> Result<ExitCode> {
    #[cfg(feature = "kube")]
    if args.place.is_cluster() {
        return super::kube::status(&args.run, &args.place, args.json);
    }
    let folder = find(&args.run, &args.folder.runs)?;
    let status = match ask(&folder).and_then(|mut admin| Ok(admin.status()?)) {
        Ok(status) => status,
        Err(error) => ended(&folder).ok_or(error)?,
    };
    if args.json {
        println!("{status}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    };
    for key in ["state", "generation", "generations", "version", "wanted", "restarts", "checkpoint"]
    {
        if let Some(value) = status.get(key) {
            println!("{key:<12}{}", text(value));
        }
    }
    if let Some(step) = status["last_report"].get("step") {
        let (steps, loss) = (text(&step["steps"]), text(&step["loss"]));
        println!("{:<12}step {steps}, loss {loss}", "training");
    }
    for worker in status["workers"].as_array().into_iter().flatten() {
        let rank = match worker["member"].as_u64() {
            Some(rank) => format!("rank {rank}"),
            None => "waits".to_string(),
        };
        let beat = &worker["beat"];
        println!(
            "worker {:<5}{rank}, pid {}, {} records, {}",
            text(&worker["slot"]),
            text(&worker["pid"]),
            text(&beat["records"]),
            text(&beat["work"]),
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A run that is over says so in its folder.
fn ended(folder: &std::path::Path) -> Option<Value> {
    let text = fs::read_to_string(folder.join("summary.json")).ok()?;
    serde_json::from_str(&text).ok()
}

#[derive(clap::Args)]
pub(super) struct LogsArgs {
    /// The run, by its folder or id
    run: String,
    /// Only this process, for example worker-0, ps-0 or master
    #[arg(long)]
    role: Option<String>,
    /// Wait for more
    #[arg(long, short)]
    follow: bool,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    place: super::kube::PlaceArgs,
    #[command(flatten)]
    folder: super::RunsFolder,
}

/// Prints the logs of a run's processes.
pub(super) fn logs(args: &LogsArgs) -> Result<ExitCode> {
    #[cfg(feature = "kube")]
    if args.place.is_cluster() {
        return super::kube::logs(&args.run, &args.place, args.role.as_deref(), args.follow);
    }
    let folder = find(&args.run, &args.folder.runs)?.join("logs");
    let mut seen: BTreeMap<PathBuf, u64> = BTreeMap::new();
    loop {
        let entries = fs::read_dir(&folder)
            .with_context(|| format!("{}: this run has no logs", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for path in files {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if args.role.as_ref().is_none_or(|role| *role == name) {
                let from = seen.entry(path.clone()).or_default();
                *from += show(&path, &name, *from)?;
            }
        }
        if seen.is_empty() {
            bail!("there is no log of {}", args.role.as_deref().unwrap_or("any process"));
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// Prints whole lines from a place on, and says how many bytes they were.
fn show(path: &std::path::Path, name: &str, from: u64) -> Result<u64> {
    let mut file = fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut out = std::io::stdout().lock();
    for line in String::from_utf8_lossy(&bytes[..whole]).lines() {
        writeln!(out, "{name:<10} {line}")?;
    }
    Ok(whole as u64)
}

#[derive(clap::Args)]
pub(super) struct ScaleArgs {
    /// The run, by its folder or id
    run: String,
    /// How many workers
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    #[arg(required_unless_present = "ps")]
    workers: Option<u32>,
    /// How many parameter servers; partitions move between them while the run goes on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ps: Option<u32>,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    place: super::kube::PlaceArgs,
    #[command(flatten)]
    folder: super::RunsFolder,
}

/// Changes the number of workers or parameter servers of a run that is going on.
pub(super) fn scale(args: &ScaleArgs) -> Result<ExitCode> {
    #[cfg(feature = "kube")]
    if args.place.is_cluster() {
        super::kube::scale(&args.run, &args.place, (args.workers, args.ps))?;
        return Ok(wanted(args));
    }
    let folder = find(&args.run, &args.folder.runs)?;
    ask(&folder)?.scale(args.workers, args.ps)?;
    Ok(wanted(args))
}

fn wanted(args: &ScaleArgs) -> ExitCode {
    for (number, what) in [(args.workers, "workers"), (args.ps, "parameter servers")] {
        if let Some(number) = number {
            println!("{number} {what} are wanted");
        }
    }
    ExitCode::SUCCESS
}

/// Ends a run at a step that all workers agree on; it can be resumed.
pub(super) fn stop(args: &RunArgs) -> Result<ExitCode> {
    #[cfg(feature = "kube")]
    if args.place.is_cluster() {
        return super::kube::stop(&args.run, &args.place);
    }
    let folder = find(&args.run, &args.folder.runs)?;
    ask(&folder)?.stop()?;
    println!("asked to stop; `salamander train --resume {}` goes on with it", folder.display());
    Ok(ExitCode::SUCCESS)
}
