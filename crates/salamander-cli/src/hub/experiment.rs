//! `salamander experiment ...`: all that can be asked of experiments.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use salamander_hub::store::experiments::Experiment;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{Error, ExperimentId, HubClient};
use serde_json::json;

use super::connect::{Connected, HubCommand};
use super::follow::{Followed, compared, follow, is_over, outcome, patiently, to_json, trials};
use super::table::{ago, number, table};
use super::{checkpoint, create, gc, model, trial};
use crate::out::{self, Out};
use crate::signals::Signals;
use crate::ui::hparams_line;

/// The command, and the hub that it is asked of.
pub(crate) type Args = HubCommand<Command>;

#[derive(clap::Args)]
pub(crate) struct One {
    /// The experiment's number
    id: ExperimentId,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Put an experiment into the queue, and follow it to its end
    Create(create::Args),
    /// List experiments, the newest first
    List {
        /// Archived ones as well
        #[arg(long)]
        all: bool,
        /// Only those in these states, with commas between
        #[arg(long)]
        state: Option<String>,
        /// Only those with this label
        #[arg(long)]
        label: Option<String>,
        /// What to sort by; `-` in front: the largest first
        #[arg(long, allow_hyphen_values = true)]
        sort: Option<String>,
        /// How many
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Show everything about one
    Describe(One),
    /// List its trials, the best first
    Trials(One),
    /// List its checkpoints, the best first
    Checkpoints(One),
    /// Print its file
    Config(One),
    /// Print what its command printed
    Logs(trial::LogsArgs),
    /// Let it wait with a checkpoint, and give its slots to others
    Pause(One),
    /// Let it go on
    Activate(One),
    /// End it with a checkpoint
    Cancel(One),
    /// End it at once
    Kill(One),
    /// Leave it out of lists
    Archive(One),
    /// Show it in lists again
    Unarchive(One),
    /// Remove it with its folder; it must be over
    Delete(One),
    /// Remove its checkpoints that `checkpoint_storage` does not keep; registered ones stay, and sources of warm starts
    Gc {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        gc: gc::GcArgs,
    },
    /// Add or remove labels
    Label {
        #[command(flatten)]
        one: One,
        /// A label to add
        #[arg(long, value_name = "LABEL")]
        add: Vec<String>,
        /// A label to remove
        #[arg(long, value_name = "LABEL")]
        remove: Vec<String>,
    },
    /// Wait for its end; the exit code is 0 if it completed
    Wait(One),
    /// Fetch its best checkpoints
    Download {
        #[command(flatten)]
        one: One,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1)]
        top_n: usize,
        /// The folder to put them into, each in one of its own
        #[arg(long, value_name = "DIR", default_value = "checkpoints")]
        out: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Command::Create(create) = &args.command {
        return create::run(create, &args.hub);
    }
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::Create(_) => {}
        Command::List { all, state, label, sort, limit, json } => {
            let query = ListQuery {
                archived: Some(*all),
                state: state.clone(),
                label: label.clone(),
                sort: sort.clone(),
                limit: Some(*limit),
                ..ListQuery::default()
            };
            list(client, &query, *json)?;
        }
        Command::Describe(one) => describe(client, one)?,
        Command::Trials(one) => list_trials(client, one)?,
        Command::Checkpoints(one) => {
            checkpoint::show(&client.experiment_checkpoints(one.id)?, one.json)?;
        }
        Command::Config(one) => {
            let config = client.config(one.id)?;
            match one.json {
                true => outln!("{}", json!({"experiment": one.id, "config": config}))?,
                false => out::text(&config)?,
            }
        }
        Command::Logs(logs) => {
            let id: ExperimentId = logs.id.parse()?;
            return trial::logs(
                logs,
                |query| client.experiment_logs(id, query),
                || Ok(is_over(&client.experiment(id)?)),
            );
        }
        Command::Pause(one) => act(&connected, one, "pause")?,
        Command::Activate(one) => act(&connected, one, "activate")?,
        Command::Cancel(one) => act(&connected, one, "cancel")?,
        Command::Kill(one) => act(&connected, one, "kill")?,
        Command::Archive(one) => act(&connected, one, "archive")?,
        Command::Unarchive(one) => act(&connected, one, "unarchive")?,
        Command::Delete(one) => delete(client, one)?,
        Command::Gc { one, gc } => gc::one(client, one.id, gc, one.json)?,
        Command::Label { one, add, remove } => {
            let changes = json!({"add_labels": add, "remove_labels": remove});
            let experiment = client.change(one.id, &changes)?;
            told(&experiment, one.json, &experiment.labels.join(", "))?;
        }
        Command::Wait(one) => return wait(client, one),
        Command::Download { one, top_n, out } => download(client, one, *top_n, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(client: &HubClient, query: &ListQuery, json: bool) -> Result<()> {
    let page = client.experiments(query)?;
    if json {
        return Ok(outln!("{}", json!(page.items))?);
    }
    let row = |e: &Experiment| {
        [
            e.id.to_string(),
            e.name.clone(),
            e.state.clone(),
            e.progress.map_or("-".into(), |done| format!("{:.0} %", done * 100.0)),
            e.trials.to_string(),
            e.metric.as_ref().map_or("-".into(), |metric| format!("{metric} {}", number(e.best))),
            ago(e.started.or(Some(e.created))),
            e.labels.join(", "),
        ]
    };
    let header = ["id", "name", "state", "done", "trials", "best", "started", "labels"];
    for line in table(header, page.items.iter().map(row).collect()) {
        outln!("{line}")?;
    }
    if page.total > page.items.len() as u64 {
        outln!("and {} more (--limit)", page.total - page.items.len() as u64)?;
    }
    Ok(())
}

fn describe(client: &HubClient, one: &One) -> Result<()> {
    let experiment = client.experiment(one.id)?;
    let trials = trials(client, one.id)?;
    if one.json {
        let mut all = json!(experiment);
        all["experiment"] = json!(experiment.id);
        all["lineage"] = json!(client.lineage(one.id)?);
        all["usage"] = json!(client.usage(one.id)?);
        all["trial_list"] = to_json(&experiment, &trials)["trials"].clone();
        return Ok(outln!("{all}")?);
    }
    let reason = experiment.reason.as_ref().map_or(String::new(), |r| format!(" ({r})"));
    outln!("experiment {}: {}", experiment.id, experiment.name)?;
    if !experiment.description.is_empty() {
        outln!("{}", experiment.description)?;
    }
    outln!("state     {}{reason}", experiment.state)?;
    outln!("model     {}", experiment.model.as_deref().unwrap_or("-"))?;
    outln!("folder    {}", experiment.folder)?;
    outln!("started   {}", ago(experiment.started))?;
    if let (Some(metric), Some(run)) = (&experiment.metric, experiment.best_run) {
        outln!("best      {metric} {} in trial {run}", number(experiment.best))?;
    }
    outln!("trials    {}", experiment.trials)?;
    if !experiment.labels.is_empty() {
        outln!("labels    {}", experiment.labels.join(", "))?;
    }
    let lineage = client.lineage(one.id)?;
    outln!("program   {}", model::program(&lineage))?;
    for line in model::data_lines(&lineage) {
        outln!("data      {line}")?;
    }
    if let Some(source) = &lineage.source {
        outln!("begins    with {} of trial {}", source.checkpoint, source.run)?;
    }
    if !lineage.started.is_empty() {
        let started: Vec<String> = lineage.started.iter().map(ToString::to_string).collect();
        outln!("used by   experiment {}", started.join(", "))?;
    }
    if experiment.origin == "hub" {
        let (least, most) = (experiment.slots, experiment.max_slots);
        outln!("queue     priority {}, {least} to {most} slots", experiment.priority)?;
        outln!("restarts  {}", experiment.restarts)?;
        outln!("budget    {}", super::job::shown(&client.usage(one.id)?))?;
    }
    Ok(())
}

fn list_trials(client: &HubClient, one: &One) -> Result<()> {
    let experiment = client.experiment(one.id)?;
    let mut all = trials(client, one.id)?;
    let score = |value: Option<f64>| match (value, experiment.smaller_is_better) {
        (Some(value), true) => value,
        (Some(value), false) => -value,
        (None, _) => f64::INFINITY,
    };
    all.sort_by(|a, b| score(compared(a)).total_cmp(&score(compared(b))));
    if one.json {
        return Ok(outln!("{}", to_json(&experiment, &all)["trials"])?);
    }
    let rows = all.iter().map(|run| {
        [
            run.id.to_string(),
            run.state.clone(),
            run.steps.to_string(),
            number(compared(run)),
            hparams_line(&run.hparams),
        ]
    });
    let metric = experiment.metric.as_deref().unwrap_or("metric");
    let header = ["trial", "state", "steps", metric, "hyperparameters"];
    for line in table(header, rows.collect()) {
        outln!("{line}")?;
    }
    Ok(())
}

/// Asks for something, and where the hub is within this command, waits until it is done.
fn act(connected: &Connected, one: &One, action: &str) -> Result<()> {
    let client = &connected.client;
    let mut experiment = client.act(one.id, action)?;
    let is_under_way =
        |state: &str| matches!(state, "running" | "pausing") || state.starts_with("stopping");
    let waits = connected.own.is_some() && matches!(action, "pause" | "cancel" | "kill");
    while waits && is_under_way(&experiment.state) {
        std::thread::sleep(Duration::from_millis(50));
        experiment = client.experiment(one.id)?;
    }
    told(&experiment, one.json, &experiment.state)
}

fn told(experiment: &Experiment, json: bool, what: &str) -> Result<()> {
    match json {
        true => outln!("{}", json!(experiment))?,
        false => outln!("experiment {}: {what}", experiment.id)?,
    }
    Ok(())
}

fn delete(client: &HubClient, one: &One) -> Result<()> {
    client.delete_experiment(one.id)?;
    // It is in the journal: whoever dies now, it goes. Told is what is done.
    let mut hindrance = None;
    loop {
        match patiently(|| client.experiment(one.id), || false) {
            Err(Error::NotFound(_)) => break,
            Err(error) => return Err(error.into()),
            Ok(experiment) => {
                if experiment.state == "deleting" && experiment.reason != hindrance {
                    let reason = experiment.reason.as_deref().unwrap_or_default();
                    errln!("it cannot be deleted yet, and is tried again: {reason}");
                    hindrance = experiment.reason;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    match one.json {
        true => outln!("{}", json!({"experiment": one.id, "state": "deleted"}))?,
        false => outln!("experiment {} is deleted", one.id)?,
    }
    Ok(())
}

fn wait(client: &HubClient, one: &One) -> Result<ExitCode> {
    let signals = Signals::install()?;
    let out = if one.json { Out::Stderr } else { Out::Stdout };
    match follow(client, one.id, out, &signals)? {
        Followed::Over(experiment) => {
            if one.json {
                outln!("{}", to_json(&experiment, &trials(client, one.id)?))?;
            }
            outcome(&experiment)
        }
        Followed::Left => Ok(ExitCode::from(signals.exit_code())),
    }
}

fn download(client: &HubClient, one: &One, top_n: usize, out: &std::path::Path) -> Result<()> {
    let all = client.experiment_checkpoints(one.id)?;
    let there: Vec<_> = all.iter().filter(|checkpoint| checkpoint.state == "completed").collect();
    if there.is_empty() {
        bail!("experiment {} has no checkpoint", one.id);
    }
    let mut fetched = Vec::new();
    for checkpoint in there.into_iter().take(top_n) {
        fetched.push(checkpoint::fetch(client, checkpoint, out)?);
    }
    if one.json {
        outln!("{}", json!({"experiment": one.id, "checkpoints": fetched}))?;
    }
    Ok(())
}
