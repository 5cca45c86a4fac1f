//! `salamander logs | scale | stop`: a run, heard and steered from outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_core::words::{count, count_is, program_name};
use salamander_run::experiment::load;
use salamander_run::{RunLayout, Scale, Strategy, is_search, no_single_run};

use crate::args::{PlacedRun, PlacedRunArgs};

/// How often `logs --follow` looks for new lines.
const LOOK: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    run: PlacedRunArgs,
    /// Only this process, for example worker-0, ps-0 or master
    #[arg(long)]
    role: Option<String>,
    /// Wait for more
    #[arg(long, short)]
    follow: bool,
}

/// Prints the logs of a run's processes.
pub(crate) fn logs(args: &LogsArgs) -> Result<ExitCode> {
    let folder = match args.run.find()? {
        // What its own process wrote is told; trials have their own.
        PlacedRun::Here(run) if is_search(run.folder()) && !run.logs().is_dir() => {
            return Err(no_single_run(run.folder()).into());
        }
        PlacedRun::Here(run) => run.logs(),
        #[cfg(feature = "kube")]
        PlacedRun::Cluster(cluster, job) => {
            return crate::kube::logs(&cluster, &job, args.role.as_deref(), args.follow);
        }
    };
    let mut seen: BTreeMap<PathBuf, u64> = BTreeMap::new();
    loop {
        let entries = fs::read_dir(&folder).with_context(|| {
            format!("{}: this run has no logs, as none in one process has", folder.display())
        })?;
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
    for line in String::from_utf8_lossy(&bytes[..whole]).lines() {
        outln!("{name:<10} {line}")?;
    }
    Ok(whole as u64)
}

#[derive(clap::Args)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    run: PlacedRunArgs,
    /// How many workers
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    #[arg(required_unless_present = "ps")]
    workers: Option<u32>,
    /// How many parameter servers; partitions move between them while the run goes on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ps: Option<u32>,
}

/// Changes the number of workers or parameter servers of a run that is going on.
pub(crate) fn scale(args: &ScaleArgs) -> Result<ExitCode> {
    let to = Scale { workers: args.workers, servers: args.ps };
    match args.run.find()? {
        PlacedRun::Here(run) => {
            salamander_run::scale(&run, to)?;
            warn_of_surplus(&run, args.workers);
        }
        #[cfg(feature = "kube")]
        PlacedRun::Cluster(cluster, job) => cluster.scale(&job, to)?,
    }
    for (number, what) in [(args.workers, "worker"), (args.ps, "parameter server")] {
        if let Some(number) = number {
            outln!("{} wanted", count_is(number.into(), what))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how many workers will have nothing to do: members of a step share its micro-batches, and none is divided.
fn warn_of_surplus(run: &RunLayout, workers: Option<u32>) {
    let (Some(workers), Ok(experiment)) = (workers, load(&run.experiment(), &[])) else { return };
    let shared = match experiment.strategy {
        Strategy::Allreduce | Strategy::Hybrid => {
            u64::from(experiment.slices()) * experiment.optimizations.aggregation_frequency
        }
        // Each worker leases what is next, from more than one step.
        Strategy::Local | Strategy::Ps => return,
    };
    let surplus = u64::from(workers).saturating_sub(shared);
    if surplus > 0 {
        let (parts, idle) = (count(shared, "micro-batch"), count(surplus, "worker"));
        errln!(
            "warning: a step of this run has {parts}, so {idle} will have nothing to do; the number is fixed when a \
             run begins (micro_batches, or else workers.max)"
        );
    }
}

#[derive(clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    run: PlacedRunArgs,
}

/// Ends a run or a search after its step; it can be resumed.
pub(crate) fn stop(args: &StopArgs) -> Result<ExitCode> {
    let resume = match args.run.find()? {
        PlacedRun::Here(run) => {
            salamander_run::stop(&run)?;
            format!("--resume {}", run.folder().display())
        }
        #[cfg(feature = "kube")]
        PlacedRun::Cluster(cluster, job) => {
            cluster.stop(&job)?;
            format!("--platform kube --resume {job}")
        }
    };
    outln!("asked to stop; `{} train {resume}` goes on with it", program_name())?;
    Ok(ExitCode::SUCCESS)
}
