//! `salamander train`: from an experiment file to a run's folder.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use salamander_core::environment;
use salamander_core::words::program_name;
use salamander_run::roles::Exit;
use salamander_run::{
    Overrides, Program, Run, SearchDraft, SearchOptions, SearchRun, State, Summary, TrainsOn, find,
    is_search,
};
#[cfg(feature = "kube")]
use salamander_search::SearchFile;

use crate::args::OverrideArgs;
use crate::out::{self, Out};
use crate::signals::Signals;
use crate::ui::{RunDisplay, print_summary};

/// How often signals are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment file; not needed with --resume
    #[arg(required_unless_present = "resume")]
    experiment: Option<PathBuf>,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// The folder that runs live in
    #[arg(long, visible_alias = "runs", value_name = "DIR", default_value = "runs")]
    out: PathBuf,
    /// Go on with a run, by its folder or id, or `latest`; one that is not on this machine, by its place in a store
    /// (s3://bucket/prefix/RUN); one of a cluster, by its job
    #[arg(long, value_name = "RUN", conflicts_with = "experiment")]
    resume: Option<String>,
    /// The id of the run, instead of one made from its name and the time; where such a run is there already, it is gone
    /// on with
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    id: Option<String>,
    /// End with one line of JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print the configuration in force and stop
    #[arg(long)]
    dump_config: bool,
    /// Search over the ranges that the file and the model's hyperparameters have, with so many trials; a file without a
    /// searcher gets tpe with async_halving. What is --set stays fixed
    #[arg(long, value_name = "N", conflicts_with = "resume", value_parser = clap::value_parser!(u64).range(1..))]
    search: Option<u64>,
    /// Trials of a search at a time, each in a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Tell a hub of the run while it trains, such as http://host:7070; one that sees the run's folder needs no more.
    /// The token comes from SALAMANDER_HUB_TOKEN [default: SALAMANDER_HUB]
    #[arg(long, value_name = "URL")]
    hub: Option<String>,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    job: crate::kube::JobArgs,
    #[cfg(not(feature = "kube"))]
    #[command(flatten)]
    _job: crate::without_kube::JobArgs,
    /// With --platform kube: keep the run's folder on this machine as well, with its curves, its logs and, where it has
    /// an object store, its last checkpoint. Searches always do
    #[cfg(feature = "kube")]
    #[arg(long)]
    mirror: bool,
    /// Only make the run's folder with its secrets, for a master and workers that are started by hand
    #[arg(long, conflicts_with = "resume")]
    prepare: bool,
}

impl Args {
    /// Where the run, or its trials, train.
    fn trains_on(&self) -> Result<TrainsOn> {
        #[cfg(feature = "kube")]
        return self.job.trains_on();
        #[cfg(not(feature = "kube"))]
        Ok(TrainsOn::ThisMachine)
    }

    /// Whether this is about a search: a new one, or one that has a folder here.
    #[cfg(feature = "kube")]
    fn is_of_search(&self, overrides: &Overrides) -> bool {
        let there = self.resumed().and_then(|run| find(&run, &self.out).ok());
        let text = self.experiment.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let file = text.and_then(|text| SearchFile::parse(&text, &overrides.sets).ok());
        self.search.is_some()
            || there.is_some_and(|folder| is_search(&folder))
            || file.is_some_and(|file| file.is_search())
    }

    /// The run to go on with: the one that was named, or the one that has the wanted id already.
    fn resumed(&self) -> Option<String> {
        let folder = self.id.as_ref().map(|id| self.out.join(id)).filter(|folder| folder.is_dir());
        self.resume.clone().or_else(|| folder.map(|folder| folder.to_string_lossy().into_owned()))
    }
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let trained = train(args, program);
    trained.or_else(|error| match error.downcast_ref::<salamander_run::Error>() {
        Some(cause) if cause.is_disk_full() => {
            errln!("error: {error:#}");
            Ok(failure(cause))
        }
        _ => Err(error),
    })
}

/// How the command ends: whoever has started it, such as a hub, does so again where only room on a disk is missing.
fn failure(error: &salamander_run::Error) -> ExitCode {
    match error.is_disk_full() {
        true => ExitCode::from(Exit::DiskFull.code()),
        false => ExitCode::FAILURE,
    }
}

fn train(args: &Args, program: &Program) -> Result<ExitCode> {
    let mut overrides = args.overrides.overrides();
    overrides.id.clone_from(&args.id);
    overrides.hub.clone_from(&args.hub);
    #[cfg(feature = "kube")]
    if args.job.is_cluster() && !args.mirror && !args.is_of_search(&overrides) {
        return match (&args.experiment, &args.resume) {
            (Some(file), _) => crate::kube::train(file, &overrides, &args.job, program, args.json),
            (None, Some(job)) => crate::kube::resume(job, &args.job, args.json),
            (None, None) => bail!("name an experiment file"),
        };
    }
    let named = || env::var(environment::HUB.name).ok().filter(|url| !url.is_empty());
    overrides.hub = overrides.hub.or_else(named);
    match find_search(args, &overrides, program)? {
        TrialOrSearch::OneTrial => {}
        TrialOrSearch::New(draft) if args.dump_config => {
            out::text(&draft.in_force())?;
            return Ok(ExitCode::SUCCESS);
        }
        TrialOrSearch::New(_) if args.prepare => {
            bail!("--prepare makes the folder of one run, and this is a search")
        }
        TrialOrSearch::New(draft) => {
            let search = draft.on(args.trains_on()?)?.create(&args.out)?;
            return crate::search::run(search, args.slots, args.json);
        }
        TrialOrSearch::Search(search) => {
            return crate::search::run(search.on(args.trains_on()?), args.slots, args.json);
        }
    }
    let draft = match (args.resumed(), &args.experiment) {
        (Some(run), _) => {
            program.resume(&run, &overrides, &args.out, &mut |note| errln!("{note}"))?
        }
        (None, Some(file)) => program.experiment(file, &overrides, &args.out)?,
        (None, None) => bail!("name an experiment file"),
    };
    if args.dump_config {
        out::text(draft.in_force())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.prepare {
        // For roles on several hosts.
        outln!("{}", draft.prepare()?.folder().display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = if args.json { Out::Stderr } else { Out::Stdout };
    let signals = Signals::install()?;
    let class_names = draft.class_names()?;
    let run = draft.on(args.trains_on()?).start()?;
    let layout = run.layout().clone();
    follow(&run, &mut RunDisplay::new(out), &signals, &mut |_| {});
    let ended = run.wait();
    let summary = Summary::new(&layout, &ended, class_names);
    print_summary(&summary, out);
    if args.json {
        // A reader that has gone away must not hide how the run ended; a full disk must be told.
        match outln!("{}", summary.to_json()) {
            Ok(()) | Err(out::Error::Closed) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let folder = layout.folder().display();
    match (&ended, summary.state) {
        (Err(error), _) => {
            errln!("error: {error} (the run is in {folder})");
            Ok(failure(error))
        }
        (Ok(_), State::Interrupted) => {
            errln!("interrupted; go on with: {} train --resume {folder}", program_name());
            Ok(ExitCode::from(signals.exit_code()))
        }
        (Ok(_), _) => Ok(ExitCode::SUCCESS),
    }
}

/// What is asked for.
enum TrialOrSearch {
    OneTrial,
    New(Box<SearchDraft>),
    Search(Box<SearchRun>),
}

fn find_search(args: &Args, overrides: &Overrides, program: &Program) -> Result<TrialOrSearch> {
    let options = SearchOptions { trials: args.search, slots: args.slots };
    match (args.resumed(), &args.experiment) {
        (Some(run), _) => match find(&run, &args.out) {
            Ok(folder) if is_search(&folder) => {
                if let Some(file) = &args.experiment
                    && let Some(difference) =
                        program.search_differs(&folder, file, overrides, options)
                {
                    let folder = folder.display();
                    errln!(
                        "{folder} has this id and is gone on with, as it was begun: {difference}"
                    );
                }
                Ok(TrialOrSearch::Search(Box::new(program.resume_search(&folder)?)))
            }
            _ => Ok(TrialOrSearch::OneTrial),
        },
        (None, Some(file)) => Ok(match program.search(file, overrides, options)? {
            Some(draft) => TrialOrSearch::New(Box::new(draft)),
            None => TrialOrSearch::OneTrial,
        }),
        (None, None) => Ok(TrialOrSearch::OneTrial),
    }
}

/// Shows a run to its end; `tick` is called now and then, and told whether training has begun.
pub(crate) fn follow(
    run: &Run,
    follower: &mut RunDisplay,
    signals: &Signals,
    tick: &mut dyn FnMut(bool),
) {
    while !run.is_over() {
        if let Some(event) = run.next_event(LOOK) {
            follower.take(&event);
        }
        if signals.asked() {
            run.stop();
        }
        tick(follower.begun());
    }
    run.events().for_each(|event| follower.take(&event));
    follower.finish();
}
