//! `salamander flow`: pre-processing by functions of this program or by SQL. In a program without DataFusion the
//! commands say how to build one that has it.
#![cfg_attr(
    not(feature = "flow"),
    allow(dead_code, reason = "every program knows the arguments, to say what it lacks")
)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use salamander_run::Program;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run a flow of this program and write its rows as shards
    Run(RunArgs),
    /// Run SQL: print the first rows, or write all of them as shards
    Sql(SqlArgs),
    /// List the flows of this program
    List,
}

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The flow, by the name of its function
    #[arg(value_name = "NAME")]
    flow: String,
    #[command(flatten)]
    input: InputArgs,
    /// Give the flow a parameter: --set classes=10
    #[arg(long = "set", value_name = "NAME=V")]
    sets: Vec<String>,
    /// The folder to write to, which must not be there
    #[arg(long, value_name = "DIR", required_unless_present = "explain")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sink: SinkArgs,
    /// Show how it would be run, and end
    #[arg(long)]
    explain: bool,
}

#[derive(clap::Args)]
pub(crate) struct SqlArgs {
    /// The query; `input` is the table of --in, and files are tables by their quoted paths: from 'a.parquet'
    query: String,
    #[command(flatten)]
    input: InputArgs,
    /// Write all rows to this folder, which must not be there, instead of printing some
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sink: SinkArgs,
    /// Rows to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Show how it would be run, and end
    #[arg(long)]
    explain: bool,
}

#[derive(clap::Args)]
pub(crate) struct InputArgs {
    /// Files, folders, patterns or addresses of records
    #[arg(long = "in", value_name = "DATA", num_args = 1..)]
    inputs: Vec<String>,
    /// Their format, where names do not tell it
    #[arg(long = "in-format", value_name = "FORMAT")]
    format: Option<String>,
    /// Files that the flow reads besides, such as a tokenizer: in a pipeline their content counts
    #[arg(long, value_name = "FILE")]
    reads: Vec<PathBuf>,
    /// Megabytes that sorts, groups and joins may take in each process before they go to disk [default: no bound]
    #[arg(long, value_name = "MB")]
    memory: Option<usize>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct SinkArgs {
    /// The format of the shards: parquet, recordio or another that can be written
    #[arg(long, value_name = "FORMAT", default_value = "parquet")]
    to: String,
    /// Write so many shards
    #[arg(long, value_name = "N")]
    shards: Option<u64>,
    /// The most records of a shard [default: 50000 where --shards is not given]
    #[arg(long, value_name = "N")]
    shard_records: Option<u64>,
    /// About the most megabytes of a shard
    #[arg(long, value_name = "MB")]
    shard_megabytes: Option<u64>,
    /// Shuffle rows by this seed [default: the order of the input]
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Divide rows into train, validation and test: --split 0.8,0.1,0.1
    #[arg(long, value_name = "SHARES", value_delimiter = ',')]
    split: Vec<f64>,
    /// Divide each class of this column alike
    #[arg(long, value_name = "COLUMN")]
    stratify: Option<String>,
    /// Measure columns for `normalise`: stats.json
    #[arg(long)]
    statistics: bool,
    /// Count the words of a column for `vocabulary`: vocabulary/COLUMN.txt
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    vocabulary: Vec<String>,
    /// Name each shard as soon as it is there, for `train` with data.stream; a folder that a killed flow has begun is
    /// gone on with
    #[arg(long)]
    stream: bool,
    #[command(flatten)]
    sharing: crate::sharing::SharingArgs,
    /// Print one JSON object on standard output
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "flow"))]
pub(crate) fn run(command: &Command, _program: &Program) -> Result<ExitCode> {
    let name = match command {
        Command::Run(args) => format!("flow {}", args.flow),
        Command::Sql(_) => "SQL".to_string(),
        Command::List => "flows".to_string(),
    };
    anyhow::bail!(
        "{name}: this program was built without flows, which take some minutes more: build it with \
         `cargo build --release --features flow`"
    )
}

#[cfg(feature = "flow")]
pub(crate) use with_flows::run;

#[cfg(feature = "flow")]
mod with_flows {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use anyhow::Context;
    use salamander_core::words::count;
    use salamander_flow::flow::{
        EngineSettings, Error, FlowCall, FlowJob, FlowShape, FlowSummary, SinkSettings, TSet,
        TaskRunner, TaskThreads,
    };
    use salamander_run::flow::FlowWorkers;
    use serde_json::json;

    use super::*;
    use crate::signals::Signals;
    use crate::ui::TaskBar;

    pub(crate) fn run(command: &Command, program: &Program) -> Result<ExitCode> {
        let reads = match command {
            Command::Run(args) => &args.input.reads[..],
            Command::Sql(args) => &args.input.reads[..],
            Command::List => &[],
        };
        for file in reads {
            std::fs::metadata(file).with_context(|| file.display().to_string())?;
        }
        match command {
            Command::List => {
                program.flows().names().try_for_each(|name| outln!("{name}"))?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Run(args) => {
                let call = FlowCall::Named(args.flow.clone());
                let mut job = job(call, &args.input, &args.sink);
                job.parameters = parameters(&args.sets)?;
                match (&args.out, args.explain) {
                    (Some(out), false) => write(&job, out, &args.sink, program),
                    _ => explain(&job, program),
                }
            }
            Command::Sql(args) => {
                let job = job(FlowCall::Sql(args.query.clone()), &args.input, &args.sink);
                match (&args.out, args.explain) {
                    (_, true) => explain(&job, program),
                    (Some(out), false) => write(&job, out, &args.sink, program),
                    (None, false) => {
                        outln!("{}", built(&job, program)?.show(args.rows)?)?;
                        Ok(ExitCode::SUCCESS)
                    }
                }
            }
        }
    }

    fn job(call: FlowCall, input: &InputArgs, sink: &SinkArgs) -> FlowJob {
        FlowJob {
            call,
            inputs: input.inputs.clone(),
            format: input.format.clone(),
            parameters: BTreeMap::new(),
            sink: SinkSettings {
                format: sink.to.clone(),
                shards: sink.shards,
                shard_records: sink.shard_records,
                shard_bytes: sink.shard_megabytes.map(|megabytes| megabytes << 20),
                shuffle: sink.shuffle,
                split: sink.split.clone(),
                stratify: sink.stratify.clone(),
                statistics: sink.statistics,
                vocabularies: sink.vocabulary.clone(),
            },
            memory: input.memory.map(|megabytes| megabytes << 20),
            partitions: None,
        }
    }

    fn parameters(sets: &[String]) -> Result<BTreeMap<String, String>> {
        let pair = |set: &String| {
            let pair =
                set.split_once('=').with_context(|| format!("--set {set}: write NAME=VALUE"))?;
            // A pipeline writes texts as JSON.
            let text =
                serde_json::from_str::<String>(pair.1).unwrap_or_else(|_| pair.1.to_string());
            Ok((pair.0.to_string(), text))
        };
        sets.iter().map(pair).collect()
    }

    fn built(job: &FlowJob, program: &Program) -> Result<TSet> {
        let engine = EngineSettings { memory: job.memory, ..EngineSettings::default() };
        let cx = job.context(job.records()?.as_ref(), &engine)?;
        Ok(job.build(program.flows(), &cx)?)
    }

    fn explain(job: &FlowJob, program: &Program) -> Result<ExitCode> {
        let rows = built(job, program)?;
        outln!("{}", rows.explain()?)?;
        match FlowShape::of(&rows)? {
            FlowShape::Map => outln!("rows go their way one by one: each task has some of them")?,
            FlowShape::Whole(why) => outln!(
                "it has {why}: with --workers it runs in stages, which leave files for the next"
            )?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn write(job: &FlowJob, out: &Path, sink: &SinkArgs, program: &Program) -> Result<ExitCode> {
        let shared = sink.sharing.is_shared();
        let write = |runner: &mut dyn TaskRunner| match sink.stream {
            true => job.stream(program.flows(), out, runner),
            false => job.run(program.flows(), out, runner),
        };
        let summary = if shared {
            let done = sink.sharing.with("flow", |by| match by {
                Some(by) => Ok(write(&mut FlowWorkers::new(by))),
                None => Ok(Err(Error::Interrupted)),
            })?;
            match done {
                Ok(done) => done,
                Err(stopped) => return Ok(stopped),
            }
        } else {
            here(program, &write)
        };
        match summary {
            Ok(summary) => told(&summary, sink.json),
            Err(Error::Interrupted) if sink.stream => {
                errln!("interrupted: the same command goes on with {}", out.display());
                Ok(ExitCode::from(130))
            }
            Err(Error::Interrupted) => {
                errln!("interrupted: nothing was written");
                Ok(ExitCode::from(130))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// On threads of this process.
    fn here(
        program: &Program,
        write: &dyn Fn(&mut dyn TaskRunner) -> Result<FlowSummary, Error>,
    ) -> Result<FlowSummary, Error> {
        let signals = Signals::install().map_err(|error| Error::Invalid(error.to_string()))?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let bar = std::sync::Mutex::new(None);
        let shown = AtomicU64::new(0);
        let progress = |done: u64, of: u64| {
            let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if shown.swap(done, Ordering::Relaxed) >= done {
                *bar = None;
            }
            bar.get_or_insert_with(|| TaskBar::new("flow", of)).done();
        };
        let flows = program.flows();
        let mut runner = TaskThreads { flows, threads, stop: &signals.stop, progress: &progress };
        let summary = write(&mut runner);
        if let Some(bar) = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_ref() {
            bar.finish();
        }
        summary
    }

    fn told(summary: &FlowSummary, as_json: bool) -> Result<ExitCode> {
        if as_json {
            outln!("{}", json!(summary))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (rows, shards) = (count(summary.rows, "row"), count(summary.shards, "shard"));
        outln!("{rows} in {shards}: {}", summary.dir.display())?;
        if summary.parts.len() > 1 {
            let parts: Vec<String> =
                summary.parts.iter().map(|(part, rows)| format!("{part} {rows}")).collect();
            outln!("{}", parts.join(", "))?;
        }
        if summary.bad_rows > 0 {
            let bad = count(summary.bad_rows, "row");
            outln!(
                "{bad} kept aside, with the reasons: {}",
                summary.dir.join("bad_rows.jsonl").display()
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
