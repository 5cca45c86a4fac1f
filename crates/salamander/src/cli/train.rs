//! `salamander train`: from an experiment file to a run's folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use salamander_core::experiment::Strategy;
use salamander_train::callback::Callback;
use salamander_train::checkpoint::{Checkpoint, Store, write_atomic};
use salamander_train::device;
use salamander_train::model::{Model, Models};
use salamander_train::trainer::{Outcome, Setup};

use super::distributed::{self, Launch};
use super::experiment::{in_file, load, strategy};
use super::keys::{ensure_certificates, ensure_keys};
use super::signals::Signals;
use crate::run::RunFolder;
use crate::ui::{
    Bar, EpochTable, Facts, Finished, MetricsLog, Out, State, cut_after, json_line, print_summary,
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The experiment file; not needed with --resume
    #[arg(required_unless_present = "resume")]
    experiment: Option<PathBuf>,
    /// Change a field: --set hyperparameters.learning_rate=0.1
    #[arg(long = "set", value_name = "A.B=V")]
    sets: Vec<String>,
    /// Where gradients meet; several workers meet in a ring unless told otherwise, with the tables of a model on
    /// parameter servers (hybrid), or on parameter servers without waiting for each other (ps)
    #[arg(long, value_parser = ["local", "allreduce", "ps", "hybrid"])]
    strategy: Option<String>,
    /// How many workers; training goes on with fewer while one is replaced
    #[arg(long, value_name = "N", conflicts_with_all = ["min_workers", "max_workers"])]
    workers: Option<u32>,
    /// How many parameter servers hold the model's tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ps: Option<u32>,
    /// The fewest workers to train with
    #[arg(long, value_name = "N", requires = "max_workers")]
    min_workers: Option<u32>,
    /// The most workers to use
    #[arg(long, value_name = "N")]
    max_workers: Option<u32>,
    /// Where to compute: auto, cpu, wgpu[:i] or cuda[:i]; without a number, workers take turns on the devices
    #[arg(long)]
    device: Option<String>,
    /// Threads that each worker computes with on the CPU [default: its share of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// The folder that runs live in
    #[arg(long, visible_alias = "runs", value_name = "DIR", default_value = "runs")]
    out: PathBuf,
    /// Go on with a run, by its folder or id; one that is not on this machine, by its place in a store
    /// (s3://bucket/prefix/RUN)
    #[arg(long, value_name = "RUN", conflicts_with = "experiment")]
    resume: Option<String>,
    /// Put checkpoints into an object store as well: s3://bucket/prefix, gs://.. or az://..; credentials come from the
    /// environment
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// End with one line of JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print the configuration in force and stop
    #[arg(long)]
    dump_config: bool,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    job: super::kube::JobArgs,
    /// Only make the run's folder with its secrets, for a master and workers that are started by hand
    #[arg(long, conflicts_with = "resume")]
    prepare: bool,
}

impl Args {
    /// All changes to the experiment file, the short ways of saying them included.
    fn sets(&self, file: &Path) -> Result<Vec<String>> {
        let mut sets = self.sets.clone();
        sets.extend(self.device.iter().map(|device| format!("device={device}")));
        sets.extend(self.threads.iter().map(|threads| format!("threads={threads}")));
        let most = self.workers.or(self.max_workers);
        if let Some(most) = most {
            let least = self.min_workers.unwrap_or(1);
            sets.push(format!("workers={{min: {least}, max: {most}}}"));
        }
        sets.extend(self.strategy.iter().map(|strategy| format!("strategy={strategy}")));
        sets.extend(self.ps.iter().map(|servers| format!("ps.servers={servers}")));
        sets.extend(self.store.iter().map(|url| format!("checkpoint_storage.store={url}")));
        let implied = self.implied(strategy(file, &sets)?);
        sets.extend(implied.map(|strategy| format!("strategy={strategy}")));
        Ok(sets)
    }

    /// What follows from the numbers of workers and servers for a file that says something else.
    fn implied(&self, strategy: Strategy) -> Option<&'static str> {
        let workers = self.workers.or(self.max_workers);
        match strategy {
            _ if self.strategy.is_some() => None,
            Strategy::Local | Strategy::Allreduce if self.ps.is_some() => Some("hybrid"),
            Strategy::Local if workers.is_some() => Some("allreduce"),
            _ => None,
        }
    }
}

pub(super) fn run(args: Args, models: &Models) -> Result<ExitCode> {
    #[cfg(feature = "kube")]
    if args.job.is_cluster() {
        let Some(file) = &args.experiment else {
            bail!(
                "on a cluster a job that was stopped goes on with `spec.suspend: false`, not with --resume"
            );
        };
        return super::kube::train(file, &args.sets(file)?, &args.job, models, args.json);
    }
    let find = |run: &String| super::stored::find(run, &args.out, args.store.as_deref());
    let resumed = args.resume.as_ref().map(find).transpose()?;
    let file = match (&resumed, &args.experiment) {
        (Some(folder), _) => folder.join("experiment.yaml"),
        (None, Some(file)) => file.clone(),
        (None, None) => bail!("name an experiment file"),
    };
    let mut experiment = load(&file, &args.sets(&file)?)?;
    if resumed.is_some() {
        let was = strategy(&file, &[])?;
        if (was == Strategy::Ps) != (experiment.strategy == Strategy::Ps) {
            bail!("a run of strategy ps goes on as one, and no other run does");
        }
    }
    let seed = &mut experiment.settings_mut().reproducibility.experiment_seed;
    seed.get_or_insert_with(chosen_seed);
    let model = models.find(experiment.model()).map_err(|error| in_file(&file, error))?;
    experiment.settings_mut().entrypoint = Some(model.name().to_string());
    let hparams = model.hparams_in_force(&experiment).map_err(|error| in_file(&file, error))?;
    let in_force = experiment.to_yaml(&hparams);
    if args.dump_config {
        print!("{in_force}");
        return Ok(ExitCode::SUCCESS);
    }
    let device = device::select(&experiment.device.0)?;
    super::stored::check(&experiment)?;
    let folder = match &resumed {
        Some(folder) => {
            let folder = RunFolder::open(folder)?;
            write_atomic(&folder.experiment(), in_force.as_bytes())?;
            folder
        }
        None => {
            let name = experiment.name.as_deref().unwrap_or(model.name());
            RunFolder::create(&args.out, name, &in_force)?
        }
    };
    let out = if args.json { Out::Stderr } else { Out::Stdout };
    if args.prepare {
        // For roles on several hosts.
        ensure_keys(folder.path())?;
        ensure_certificates(folder.path())?;
        println!("{}", folder.path().display());
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::install()?;
    let result = if experiment.strategy == Strategy::Local {
        let checkpoint = resumed.map(|_| newest(folder.path())).transpose()?.flatten();
        let setup = Setup {
            experiment,
            folder: folder.path().to_path_buf(),
            device,
            stop: Arc::clone(&signals.stop),
        };
        let outcome = train(model, setup, checkpoint, &folder, out);
        outcome.map(|outcome| (outcome, Facts::LOCAL)).map_err(|error| in_file(&file, error))
    } else {
        let newest = || Store::list(&folder.path().join("checkpoints")).pop().map(|last| last.id);
        let resume = resumed.map(|_| newest());
        let (folder, experiment, signals) = (&folder, &experiment, &signals);
        distributed::train(&Launch { folder, experiment, resume, signals, out, demo: None })
    };
    finish(result, model, &folder, &signals, out)
}

/// The seed of a run whose experiment names none; shown in the configuration in force.
fn chosen_seed() -> u32 {
    let time = jiff::Timestamp::now().as_nanosecond() as u64;
    let mixed = salamander_core::seed::derive(time, &[u64::from(std::process::id())]);
    (mixed >> 33) as u32
}

/// The newest checkpoint that is intact; broken ones are named and passed over.
fn newest(folder: &Path) -> Result<Option<Checkpoint>> {
    let checkpoints = folder.join("checkpoints");
    let checkpoint = Store::newest_intact(&checkpoints, &mut |error| {
        eprintln!("warning: {error}; trying the one before it");
    });
    let metrics = folder.join("metrics.jsonl");
    cut_after(
        &metrics,
        checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.state.progress.steps),
    )?;
    match &checkpoint {
        Some(found) => eprintln!("resuming from {}", found.path.display()),
        None => eprintln!("no usable checkpoint: starting from the beginning"),
    }
    Ok(checkpoint)
}

fn train(
    model: &dyn Model,
    setup: Setup,
    checkpoint: Option<Checkpoint>,
    folder: &RunFolder,
    out: Out,
) -> Result<Outcome, salamander_train::Error> {
    let log = MetricsLog::open(&folder.path().join("metrics.jsonl"))
        .map_err(|error| salamander_train::Error::Invalid(format!("{error:#}")))?;
    let bar = Bar::new();
    let table = EpochTable::new(out, bar.handle());
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(table), Box::new(bar), Box::new(log)];
    model.train(setup, checkpoint, callbacks)
}

fn finish(
    result: Result<(Outcome, Facts)>,
    model: &dyn Model,
    folder: &RunFolder,
    signals: &Signals,
    out: Out,
) -> Result<ExitCode> {
    let state = match &result {
        Ok((outcome, _)) if outcome.interrupted => State::Interrupted,
        Ok(_) => State::Completed,
        Err(_) => State::Failed,
    };
    let finished = Finished {
        id: &folder.id(),
        folder: folder.path(),
        state,
        outcome: result.as_ref().ok().map(|(outcome, _)| outcome),
        facts: result.as_ref().map_or(Facts::LOCAL, |(_, facts)| *facts),
        class_names: model.class_names(),
        error: result.as_ref().err().map(|error| format!("{error:#}")),
    };
    print_summary(&finished, out);
    let line = json_line(&finished);
    // A disk so full that this fails is reported by the run's own error.
    let _ = fs::write(folder.path().join("summary.json"), format!("{line:#}\n"));
    if state == State::Interrupted {
        eprintln!("interrupted; go on with: salamander train --resume {}", folder.path().display());
    }
    if out == Out::Stderr {
        println!("{line}");
    }
    result.map_err(|error| anyhow!("{error:#} (the run is in {})", folder.path().display()))?;
    Ok(match state {
        State::Completed => ExitCode::SUCCESS,
        _ => ExitCode::from(signals.exit_code()),
    })
}
