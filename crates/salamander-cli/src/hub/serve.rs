//! `salamander hub`: a hub that stays.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_core::environment;
use salamander_core::words::count;
use salamander_hub::ingest::Ingester;
use salamander_hub::queue::QueuePlatform;
use salamander_hub::server::Listen;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::users::{User, UserRole};
use salamander_hub::{Daemon, DaemonOptions, Hub, Store, StoreAccess, StoreUrl, now};

use salamander_run::bring_runs;
use serde_json::json;

use super::table::table;
use crate::args::RunsFolder;
use crate::signals::Signals;

const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    place: StorePlaceArgs,
    /// Where to listen; on any other address than this machine's own a login is asked for, over TLS
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Slots of this machine: a trial takes one for each of its workers [default: one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    slots: Option<u32>,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    jobs: crate::kube::JobKindArgs,
    /// A program of yours that experiments may be started with, beside this one
    #[arg(long = "program", value_name = "FILE")]
    programs: Vec<PathBuf>,
    /// Remove logs so many days after an experiment of the queue has ended, where its file says nothing of it
    /// [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=36_500))]
    log_retention_days: Option<u32>,
    /// The certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The proxy that speaks TLS for this hub: nobody else may connect
    #[arg(long, value_name = "IP", conflicts_with = "tls_cert")]
    proxy: Option<IpAddr>,
    /// Ask for a login on this machine, too
    #[arg(long)]
    login: bool,
}

#[derive(clap::Args)]
struct StorePlaceArgs {
    #[command(flatten)]
    folder: RunsFolder,
    /// The store: sqlite:PATH, or postgres://USER@HOST/DATABASE in a program built with it [default:
    /// SALAMANDER_STORE, or else sqlite:RUNS/.hub/hub.sqlite]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl StorePlaceArgs {
    fn store(&self) -> Result<Option<StoreUrl>> {
        let store = self.store.clone().or_else(|| env::var(environment::STORE.name).ok());
        let store = store.filter(|store| !store.is_empty());
        store.map(|store| store.parse()).transpose().context("--store")
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make the store again from the folders of runs and the hub's journal; users and tokens are not in these
    Rebuild {
        #[command(flatten)]
        place: StorePlaceArgs,
        /// Bring runs that are only in this object store first: s3://bucket/prefix, gs://.. or az://..; may be given
        /// several times. Credentials come from the environment
        #[arg(long = "from", value_name = "URL")]
        from: Vec<String>,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Tell others when experiments end
    Webhook(super::webhook::Args),
    /// Make a token for a user, who is made as well if need be; it is shown this once
    Token {
        /// The user's name
        user: String,
        /// viewer, editor or admin
        #[arg(long, default_value = "editor")]
        role: String,
        /// Days until it expires [default: never]
        #[arg(long)]
        days: Option<u32>,
        #[command(flatten)]
        place: StorePlaceArgs,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Show and remove users
    #[command(subcommand)]
    User(UserCommand),
}

#[derive(clap::Subcommand)]
enum UserCommand {
    /// List users and what they may do
    List {
        #[command(flatten)]
        place: StorePlaceArgs,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Remove a user with all tokens; a hub that runs lets nobody in by them any more
    Remove {
        /// The user's name
        user: String,
        #[command(flatten)]
        place: StorePlaceArgs,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        None => serve(args),
        Some(Command::Rebuild { place, from, json }) => rebuild(place, from, *json),
        Some(Command::Webhook(args)) => super::webhook::run(args),
        Some(Command::Token { user, role, days, place, json }) => {
            token(place, user, role, *days, *json)
        }
        Some(Command::User(UserCommand::List { place, json })) => users(place, *json),
        Some(Command::User(UserCommand::Remove { user, place, json })) => {
            remove_user(place, user, *json)
        }
    }
}

fn serve(args: &Args) -> Result<ExitCode> {
    let signals = Signals::install()?;
    let hub = open(&args.place)?;
    let listen = Listen {
        address: args.listen,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        proxy: args.proxy,
        login: args.login,
    };
    let scheme = if listen.tls.is_some() { "https" } else { "http" };
    let mut programs = vec![env::current_exe()?];
    programs.extend(args.programs.iter().cloned());
    let slots = args.slots.unwrap_or(1);
    let log_retention_days = args.log_retention_days;
    let platform = platform(args)?;
    let options =
        DaemonOptions { listen, slots, log_retention_days, programs, routes: None, platform };
    let place = match &options.platform {
        Some(_) => "jobs of a cluster".to_string(),
        None => format!("{} cores", available_parallelism().map_or(1, usize::from)),
    };
    let daemon = Daemon::start(hub, options)?;
    outln!("hub of {} on {scheme}://{}", daemon.hub().runs().display(), daemon.address())?;
    outln!("{slots} slots on {place}; Ctrl-C ends the hub, and what it has started goes on")?;
    while !signals.asked() {
        std::thread::sleep(LOOK);
    }
    drop(daemon);
    Ok(ExitCode::SUCCESS)
}

/// Where experiments train, if not on this machine.
#[cfg(feature = "kube")]
fn platform(args: &Args) -> Result<Option<Box<dyn QueuePlatform>>> {
    if !args.jobs.is_cluster() {
        return Ok(None);
    }
    let (jobs, arguments) = (args.jobs.jobs()?, args.jobs.to_arguments()?);
    Ok(Some(Box::new(JobPlatform { jobs, arguments })))
}

#[cfg(not(feature = "kube"))]
fn platform(_: &Args) -> Result<Option<Box<dyn QueuePlatform>>> {
    Ok(None)
}

/// Trials are jobs of a cluster, followed by a process of this machine.
#[cfg(feature = "kube")]
struct JobPlatform {
    jobs: salamander_run::cluster::ClusterJobs,
    arguments: Vec<String>,
}

#[cfg(feature = "kube")]
impl QueuePlatform for JobPlatform {
    fn arguments(&self) -> Vec<String> {
        self.arguments.clone()
    }

    fn end(&self, folder: &std::path::Path) -> Result<(), String> {
        self.jobs.end_all(folder).map_err(|error| error.to_string())
    }
}

fn open(place: &StorePlaceArgs) -> Result<Hub> {
    Ok(Hub::open(&place.folder.runs, place.store()?.as_ref())?)
}

fn rebuild(place: &StorePlaceArgs, from: &[String], json: bool) -> Result<ExitCode> {
    let runs = &place.folder.runs;
    if !from.is_empty() {
        std::fs::create_dir_all(runs).with_context(|| runs.display().to_string())?;
    }
    if !runs.is_dir() {
        bail!("there is no folder {}", runs.display());
    }
    let mut brought = 0;
    for url in from {
        let runs = bring_runs(url, runs, &mut |note| errln!("{note}"))?.len();
        brought += runs;
        if !json {
            outln!("{} brought from {url}", count(runs as u64, "run"))?;
        }
    }
    Hub::forget_store(&place.folder.runs, place.store()?.as_ref())?;
    let hub = open(place)?;
    Ingester::new(hub.clone()).look_at_all()?;
    let all = ListQuery { archived: Some(true), limit: Some(1), ..ListQuery::default() };
    let (experiments, runs) = (hub.store().experiments(&all)?.total, hub.store().runs(&all)?.total);
    match json {
        true => {
            outln!("{}", json!({"experiments": experiments, "runs": runs, "brought": brought}))?
        }
        false => outln!(
            "{experiments} experiments with {runs} runs; users and tokens have to be made again"
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn token(
    place: &StorePlaceArgs,
    user: &str,
    role: &str,
    days: Option<u32>,
    json: bool,
) -> Result<ExitCode> {
    let Some(role) = UserRole::parse(role) else {
        bail!("--role {role}: one of viewer, editor, admin");
    };
    if place.store()?.is_none() {
        std::fs::create_dir_all(place.folder.runs.join(salamander_hub::OWN_FOLDER))?;
    }
    let store = store(place)?;
    store.set_user(user, role, now())?;
    let expires = days.map(|days| now() + i64::from(days) * 86_400_000);
    let token = store.new_token(user, now(), expires)?;
    let done = json!({"do": "make_token", "name": user, "role": role, "expires": expires});
    // Shown first: it is valid, and nobody could see it later.
    match json {
        true => {
            let made = json!({"user": user, "role": role, "token": token, "expires": expires});
            outln!("{made}")?
        }
        false => outln!("{token}")?,
    }
    store.note_done("", now(), &done)?;
    Ok(ExitCode::SUCCESS)
}

/// The store, beside a hub that runs: several processes may write, one after the other.
fn store(place: &StorePlaceArgs) -> Result<Store> {
    Ok(match place.store()? {
        Some(url) => Store::at(&url, StoreAccess::Shared)?,
        None => Store::open(&own_store(place))?,
    })
}

fn own_store(place: &StorePlaceArgs) -> PathBuf {
    place.folder.runs.join(salamander_hub::OWN_FOLDER).join("hub.sqlite")
}

/// A store that is there already: who only asks makes none.
fn known_store(place: &StorePlaceArgs) -> Result<Store> {
    if place.store()?.is_none() && !own_store(place).is_file() {
        bail!("there is no hub's store in {}", place.folder.runs.display());
    }
    store(place)
}

fn users(place: &StorePlaceArgs, json: bool) -> Result<ExitCode> {
    let users = known_store(place)?.users()?;
    if json {
        outln!("{}", json!({"users": users}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |user: User| [user.name, user.role.as_str().to_string()];
    for line in table(["name", "role"], users.into_iter().map(row).collect()) {
        outln!("{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remove_user(place: &StorePlaceArgs, user: &str, json: bool) -> Result<ExitCode> {
    let store = known_store(place)?;
    store.remove_user(user)?;
    store.note_done("", now(), &json!({"do": "remove_user", "name": user}))?;
    match json {
        true => outln!("{}", json!({"user": user, "state": "removed"}))?,
        false => outln!("{user} is removed, with all tokens")?,
    }
    Ok(ExitCode::SUCCESS)
}
