//! `salamander status`: where a run stands, once or until it is over.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use salamander_core::status::TableStats;
use salamander_core::words::count;
use salamander_run::{FolderStatus, Report, RunLayout, RunStatus, SearchStatus, Status};

use crate::args::{PlacedRun, PlacedRunArgs};
use crate::out;
use crate::runs::best;
use crate::ui::clock;

/// How often `--watch` looks.
const LOOK: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: PlacedRunArgs,
    /// Print a JSON object instead; with --watch, one per line
    #[arg(long)]
    json: bool,
    /// Show it again whenever it has changed, until the run is over
    #[arg(long, short)]
    watch: bool,
}

/// Shows where a run stands.
#[cfg_attr(
    not(feature = "kube"),
    expect(clippy::infallible_destructuring_match, reason = "with kube there are two places")
)]
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let run = match args.run.find()? {
        PlacedRun::Here(run) => run,
        #[cfg(feature = "kube")]
        PlacedRun::Cluster(cluster, job) => {
            let advice =
                "--watch is for runs of this machine: `salamander logs --follow` follows a job";
            anyhow::ensure!(!args.watch, advice);
            return crate::kube::status(&cluster, &job, args.json);
        }
    };
    let mut screen = Screen::new(std::io::stdout().is_terminal() && !args.json);
    loop {
        let status = salamander_run::status(&run)?;
        let lines = match args.json {
            true => vec![as_json(&run, &status).to_string()],
            false => lines(&run, &status),
        };
        screen.show(lines)?;
        if !args.watch || !status.is_running() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// What is shown now: on a terminal it is replaced by what comes next, elsewhere that is appended.
struct Screen {
    redraws: bool,
    shown: Vec<String>,
}

impl Screen {
    fn new(redraws: bool) -> Self {
        Self { redraws, shown: Vec::new() }
    }

    fn show(&mut self, lines: Vec<String>) -> Result<(), out::Error> {
        if lines == self.shown {
            return Ok(());
        }
        if self.redraws && !self.shown.is_empty() {
            // Up to the first line, and everything below it away.
            out::text(&format!("\x1b[{}A\x1b[J", self.shown.len()))?;
        } else if !self.redraws && self.shown.len() > 1 {
            outln!()?;
        }
        lines.iter().try_for_each(|line| outln!("{line}"))?;
        self.shown = lines;
        Ok(())
    }
}

fn lines(run: &RunLayout, status: &RunStatus) -> Vec<String> {
    match status {
        RunStatus::Running(status) => of_master(run, status),
        RunStatus::InFolder(status) => of_folder(status),
        RunStatus::Ended(_) => of_folder(&FolderStatus::read(run)),
    }
}

/// What programs get. A master does not read checkpoints, so that what is in the newest one is added here.
fn as_json(run: &RunLayout, status: &RunStatus) -> serde_json::Value {
    let mut json = status.to_json();
    if let (RunStatus::Running(_), Some(fields)) = (status, json.as_object_mut()) {
        let hash = FolderStatus::read(run).weights_hash;
        fields.insert("weights_hash".to_string(), hash.into());
    }
    json
}

/// A name and what it is, in two columns.
fn line(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<12}{value}")
}

/// What a run's folder tells.
fn of_folder(status: &FolderStatus) -> Vec<String> {
    let by = status.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    let mut lines = vec![line("run", status.dir.display())];
    lines.push(line("state", format!("{}{by}", status.state.as_str())));
    lines.extend(status.error.as_ref().map(|error| line("reason", error)));
    if let Some(search) = &status.search {
        lines.extend(of_search(status, search));
        return lines;
    }
    lines.push(line("progress", progress(status)));
    lines.extend(status.loss.map(|loss| line("loss", format!("{loss:.4}"))));
    let values = status.validation.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let values: Vec<String> = values.map(|(name, value)| format!("{name} {value:.4}")).collect();
    if !values.is_empty() {
        lines.push(line("validation", values.join(", ")));
    }
    let found = status.best.as_ref();
    lines.extend(found.map(|found| line("best", format!("{}, step {}", best(found), found.steps))));
    lines.push(line("checkpoint", status.checkpoint.as_deref().unwrap_or("none yet")));
    lines.extend(status.weights_hash.as_ref().map(|hash| line("weights", hash)));
    lines
}

/// What a search has found so far, and which command tells more.
fn of_search(status: &FolderStatus, search: &SearchStatus) -> Vec<String> {
    let mut lines = vec![line("trials", search.trials)];
    if let (Some(found), Some(folder)) = (&status.best, &search.best) {
        lines.push(line("best", format!("{}, {}", best(found), folder.display())));
    }
    lines.push(line("table", format!("salamander search table {}", status.dir.display())));
    lines
}

/// `step 30 of 400 (7 %), epoch 2 of 10, 01:03 left`.
fn progress(status: &FolderStatus) -> String {
    let steps = status.steps.0;
    let Some(total) = status.total_steps.map(|total| total.0).filter(|total| *total > 0) else {
        return match steps {
            0 => "no step yet".to_string(),
            steps => count(steps, "step"),
        };
    };
    let percent = 100 * steps / total;
    let mut text = format!("step {steps} of {total} ({percent} %)");
    if let Some(epochs) = status.epochs {
        text += &format!(", epoch {} of {epochs}", status.epoch + 1);
    }
    if let Some(left) = status.seconds_left {
        text += &format!(", about {} left", clock(left));
    }
    text
}

/// What a master says, and how long the run will be.
fn of_master(run: &RunLayout, status: &Status) -> Vec<String> {
    let mut lines = vec![line("run", run.folder().display())];
    lines.push(line("state", status.state.as_str()));
    lines.extend(status.reason.as_ref().map(|reason| line("reason", reason)));
    let told = FolderStatus::read(run);
    lines.push(line("progress", progress(&told)));
    if let Some(Report::Step(step)) = &status.last_report {
        lines.push(line("loss", format!("{:.4}", step.loss)));
    }
    lines.extend(told.best.as_ref().map(|found| line("best", best(found))));
    if let Some(generation) = status.generation {
        let began = count(status.generations, "generation");
        lines.push(line("generation", format!("{generation} ({began} so far)")));
    }
    if let Some(names) = status.names {
        let left = count(names.left, "micro-batch");
        lines.push(line(
            "leases",
            format!("{left} left of the open epochs, {} leased", names.leased),
        ));
    }
    if let Some(tasks) = status.tasks {
        let (done, leased, left) = (tasks.done, tasks.leased, tasks.left);
        lines.push(line("tasks", format!("{done} done, {leased} leased, {left} left")));
    }
    let mut wanted = count(status.wanted as u64, "worker");
    if status.wanted_servers > 0 {
        wanted += &format!(", {}", count(status.wanted_servers as u64, "parameter server"));
    }
    lines.push(line("wanted", wanted));
    lines.push(line("restarts", restarts(status)));
    let checkpoint = status.checkpoint.as_ref().map(|mark| mark.id.clone()).or(told.checkpoint);
    lines.push(line("checkpoint", checkpoint.as_deref().unwrap_or("none yet")));
    lines.extend(told.weights_hash.map(|hash| line("weights", hash)));
    lines.extend(processes(status));
    lines
}

fn restarts(status: &Status) -> String {
    let counts = status.restarts;
    let all = [
        (counts.workers, "worker"),
        (counts.servers, "parameter server"),
        (counts.masters, "master"),
    ];
    let some = all.into_iter().filter(|(number, _)| *number > 0);
    let some: Vec<String> = some.map(|(number, what)| count(number, what)).collect();
    if some.is_empty() { "none".to_string() } else { some.join(", ") }
}

/// What those who train do.
fn processes(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let mut workers: Vec<_> = status.workers.iter().collect();
    workers.sort_by_key(|worker| (worker.slot, worker.member));
    for worker in workers {
        let rank = match worker.member {
            Some(rank) => format!("rank {rank}"),
            None => "waits".to_string(),
        };
        let (records, work) = match worker.beat {
            Some(beat) => (count(beat.records, "record"), beat.work.as_str()),
            None => ("no record".to_string(), "-"),
        };
        let what = format!("{rank}, pid {}, {records}, {work}", worker.pid);
        lines.push(line(&format!("worker {}", worker.slot), what));
    }
    for server in &status.servers {
        let pid = server.pid.map_or_else(String::new, |pid| format!("pid {pid}, "));
        lines.push(line(&format!("ps {}", server.seat), format!("{pid}{}", server.endpoint)));
    }
    for table in status.tables() {
        let TableStats { name, rows, bytes, waiting, expired, evicted, .. } = table;
        let rows = count(rows, "row");
        let what = format!(
            "{name}, {rows}, {} MB, {waiting} waiting, {expired} expired, {evicted} evicted",
            bytes / 1_000_000
        );
        lines.push(line("table", what));
    }
    lines
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::{Generation, Term, Version};
    use salamander_core::progress::StepCount;
    use salamander_core::status::{CheckpointStatus, RestartCounts, ServerStatus};
    use salamander_run::{BestValidation, State};

    use super::*;

    fn running() -> FolderStatus {
        let (metric, steps) = ("accuracy".into(), StepCount(20));
        let best = BestValidation { metric, value: Some(0.75), steps };
        FolderStatus {
            run: "x".into(),
            dir: "runs/x".into(),
            model: Some("net".into()),
            state: State::Running,
            error: None,
            pid: Some(44),
            started: None,
            steps: StepCount(30),
            total_steps: Some(StepCount(400)),
            epoch: 1,
            epochs: Some(10),
            loss: Some(0.25),
            validation: [("accuracy".to_string(), Some(0.5))].into(),
            best: Some(best),
            checkpoint: Some("step-20".into()),
            weights_hash: Some("ab12".into()),
            seconds_left: Some(63.0),
            search: None,
        }
    }

    #[test]
    fn a_search_tells_of_its_trials() {
        let search = SearchStatus { trials: 5, best: Some("runs/x/trials/00003".into()) };
        let status = FolderStatus { search: Some(search), ..running() };
        let expected = [
            "run         runs/x",
            "state       running, process 44",
            "trials      5",
            "best        accuracy 0.7500, runs/x/trials/00003",
            "table       salamander search table runs/x",
        ];
        assert_eq!(of_folder(&status), expected);
    }

    #[test]
    fn a_local_run_tells_how_far_it_is() {
        let expected = [
            "run         runs/x",
            "state       running, process 44",
            "progress    step 30 of 400 (7 %), epoch 2 of 10, about 01:03 left",
            "loss        0.2500",
            "validation  accuracy 0.5000",
            "best        accuracy 0.7500, step 20",
            "checkpoint  step-20",
            "weights     ab12",
        ];
        assert_eq!(of_folder(&running()), expected);
    }

    #[test]
    fn a_failed_run_tells_why() {
        let status = FolderStatus {
            state: State::Failed,
            error: Some("there is no file a.csv".into()),
            pid: None,
            steps: StepCount(0),
            total_steps: None,
            loss: None,
            validation: Default::default(),
            best: None,
            checkpoint: None,
            weights_hash: None,
            ..running()
        };
        let expected = [
            "run         runs/x",
            "state       failed",
            "reason      there is no file a.csv",
            "progress    no step yet",
            "checkpoint  none yet",
        ];
        assert_eq!(of_folder(&status), expected);
    }

    fn server(evicted: u64) -> ServerStatus {
        let item = TableStats { name: "item".into(), rows: 5, evicted, ..TableStats::default() };
        ServerStatus { tables: vec![item], ..ServerStatus::default() }
    }

    #[test]
    fn a_distributed_run_is_told_in_words() {
        let generation = Generation { term: Term(1), number: 2 };
        let mark = CheckpointStatus { id: "step-4".into(), version: Version(4), generation };
        let status = Status {
            state: State::Running,
            generation: Some(generation),
            generations: 1,
            wanted: 1,
            restarts: RestartCounts { workers: 1, servers: 0, masters: 2 },
            checkpoint: Some(mark),
            servers: [3, 4].map(server).to_vec(),
            ..Status::default()
        };
        let lines = of_master(&RunLayout::new("nowhere/x"), &status);
        for expected in [
            "generation  1.2 (1 generation so far)",
            "wanted      1 worker",
            "restarts    1 worker, 2 masters",
            "checkpoint  step-4",
            "table       item, 10 rows, 0 MB, 0 waiting, 0 expired, 7 evicted",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} in {lines:#?}");
        }
        assert!(lines.iter().all(|line| !line.contains(['{', '}'])), "{lines:#?}");
    }
}
