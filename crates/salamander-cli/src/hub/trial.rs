//! `salamander trial ...`: runs by experiment and trial.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use salamander_hub::log_line::Level;
use salamander_hub::store::logs::{LogPage, LogQuery};
use salamander_hub::{Error, RunId};
use serde_json::json;

use super::checkpoint;
use super::connect::HubCommand;
use super::follow::patiently;
use super::table::{ago, number};

/// How often new lines are looked for.
const LOOK: Duration = Duration::from_millis(300);

/// The command, and the hub that it is asked of.
pub(crate) type Args = HubCommand<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show everything about one
    Describe {
        /// The trial, as EXPERIMENT.TRIAL
        id: RunId,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Print the logs of its processes
    Logs(LogsArgs),
    /// End it at once; the other trials of its search go on, and it counts as one that failed
    Kill {
        /// The trial, as EXPERIMENT.TRIAL
        id: RunId,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Fetch its best or newest checkpoint
    Download {
        /// The trial, as EXPERIMENT.TRIAL
        id: RunId,
        /// The newest instead of the best
        #[arg(long)]
        latest: bool,
        /// The folder to put it into
        #[arg(long, value_name = "DIR", default_value = "checkpoints")]
        out: PathBuf,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
}

/// Which lines of logs.
#[derive(clap::Args)]
pub(crate) struct LogsArgs {
    /// The experiment's number, or a trial's, as EXPERIMENT.TRIAL
    pub(super) id: String,
    /// Wait for more until it is over
    #[arg(long, short)]
    follow: bool,
    /// Only lines with these words; the last one may be a beginning
    #[arg(long)]
    search: Option<String>,
    /// Only this process, for example worker-0, or console; a number is that of a worker
    #[arg(long, visible_alias = "rank", value_parser = process)]
    process: Option<String>,
    /// Only lines of this level and graver ones: debug, info, warn, error
    #[arg(long, value_parser = level)]
    level: Option<Level>,
    /// Only lines since this time, as 2026-01-31T12:00:00Z
    #[arg(long, value_parser = time)]
    since: Option<i64>,
    /// Only lines until this time
    #[arg(long, value_parser = time)]
    until: Option<i64>,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Print each line as a JSON object
    #[arg(long)]
    json: bool,
}

fn level(text: &str) -> Result<Level, String> {
    let known = "one of trace, debug, info, warn, error";
    serde_json::from_value(json!(text.to_lowercase())).map_err(|_| known.to_string())
}

/// The name of a process; ranks are numbers.
fn process(text: &str) -> Result<String, String> {
    let is_rank = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Ok(if is_rank { format!("worker-{text}") } else { text.to_string() })
}

fn time(text: &str) -> Result<i64, String> {
    salamander_hub::log_line::parse_time(text)
        .ok_or_else(|| "a time looks like 2026-01-31T12:00:00Z".to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::Describe { id, json } => {
            let run = client.run(*id)?;
            if *json {
                let mut all = json!(run);
                all["summary"] = client.summary(*id)?;
                outln!("{all}")?;
                return Ok(ExitCode::SUCCESS);
            }
            let reason = run.reason.as_ref().map_or(String::new(), |r| format!(" ({r})"));
            outln!("trial {}: {}", run.id, run.name)?;
            outln!("state    {}{reason}", run.state)?;
            outln!("folder   {}", run.folder)?;
            let total = run.total_steps.map_or(String::new(), |total| format!(" of {total}"));
            outln!("steps    {}{total}", run.steps)?;
            outln!("started  {}", ago(run.started))?;
            outln!("hyperparameters  {}", run.hparams)?;
            for (name, value) in &run.metrics {
                outln!("{name:<24} {}", number(*value))?;
            }
        }
        Command::Logs(logs_args) => {
            let id: RunId = logs_args.id.parse()?;
            let is_over = || Ok(!matches!(client.run(id)?.state.as_str(), "running" | "queued"));
            return logs(logs_args, |query| client.logs(id, query), is_over);
        }
        Command::Kill { id, json } => {
            client.kill_run(*id)?;
            let mut run = client.run(*id)?;
            // Told is what is done.
            while matches!(run.state.as_str(), "running" | "queued") {
                std::thread::sleep(LOOK);
                run = client.run(*id)?;
            }
            match json {
                true => outln!("{}", json!(run))?,
                false => outln!("trial {id}: {}", run.state)?,
            }
        }
        Command::Download { id, latest, out, json } => {
            let chosen = checkpoint::chosen(client, *id, *latest)?;
            checkpoint::download(client, &chosen, out, *json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints lines, and waits for more if that is asked for.
pub(super) fn logs(
    args: &LogsArgs,
    read: impl Fn(&LogQuery) -> Result<LogPage, Error>,
    is_over: impl Fn() -> Result<bool, Error>,
) -> Result<ExitCode> {
    // A hub that is started anew meanwhile is waited for by whoever waits for lines.
    let is_tired = || !args.follow;
    let mut query = LogQuery {
        search: args.search.clone(),
        process: args.process.clone(),
        level: args.level,
        since: args.since,
        until: args.until,
        tail: args.tail.map(|_| true),
        limit: Some(args.tail.unwrap_or(1000)),
        after: None,
    };
    loop {
        // Looked at before the last lines are read.
        let over = !args.follow || patiently(&is_over, is_tired)?;
        loop {
            let page = patiently(|| read(&query), is_tired)?;
            for line in &page.lines {
                match args.json {
                    true => outln!("{}", json!(line))?,
                    false => outln!("{:<10} {}", line.process, line.text)?,
                }
            }
            let was_tail = query.tail.take().is_some();
            query.after = Some(page.after);
            query.limit = Some(1000);
            if page.lines.is_empty() || (was_tail && over) {
                break;
            }
        }
        if over {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_a_worker() {
        assert_eq!(process("0").as_deref(), Ok("worker-0"));
        for name in ["worker-1", "console", "ps-0", ""] {
            assert_eq!(process(name).as_deref(), Ok(name));
        }
    }
}
