//! `salamander master | worker | ps`: the processes of a distributed run, started by hand or in a pod. `train` starts
//! its own without these arguments.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use salamander_core::environment;
use salamander_run::roles::{Exit, MemberOptions, master, ps, worker};
use salamander_run::{Error, Program, Scale};
use tracing_subscriber::EnvFilter;

use crate::args::{MemberArgs, RoleArgs};
use crate::out::Out;

#[derive(clap::Args)]
pub(crate) struct MasterArgs {
    #[command(flatten)]
    role: RoleArgs,
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Another process starts and ends workers as this master says
    #[arg(long)]
    served: bool,
    /// Go on with a run that has ended
    #[arg(long)]
    resume: bool,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    pod: crate::kube::PodArgs,
}

/// Leads a distributed run; workers and commands talk to it.
pub(crate) fn master(args: &MasterArgs, program: &Program) -> Result<ExitCode> {
    log_to_stderr("master", 0);
    let run = match args.role.run() {
        Ok(run) => run,
        Err(error) => return told(Err(error)),
    };
    let options = master::MasterOptions {
        run,
        listen: args.listen,
        keys: args.role.keys(),
        served: args.served,
        resume: args.resume.then(Scale::default),
        #[cfg(feature = "kube")]
        pods: args.pod.options(),
    };
    told(master::run(&options, program.models(), listening))
}

#[derive(clap::Args)]
#[command(after_help = "\
On several hosts, with the run's folder on storage that all of them share:
  host1$ salamander master runs/mnist --listen 10.0.0.1:4455
  host1$ salamander worker runs/mnist --master 10.0.0.1:4455 --listen 10.0.0.1
  host2$ salamander worker runs/mnist --master 10.0.0.1:4455 --listen 10.0.0.2 --slot 1")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    role: RoleArgs,
    #[command(flatten)]
    member: MemberArgs,
    /// This worker's place among those of its platform
    #[arg(long, default_value_t = 0)]
    slot: u32,
    /// The checkpoint that a resumed run begins with
    #[arg(long, value_name = "ID")]
    start: Option<String>,
}

/// Trains together with others, as the master says.
pub(crate) fn worker(args: WorkerArgs, program: &Program) -> Result<ExitCode> {
    log_to_stderr("worker", args.slot);
    let options = member(&args.role, args.member, args.slot);
    told(options.and_then(|options| worker::run(&options, args.start, program.models())))
}

#[derive(clap::Args)]
#[command(after_help = "\
On several hosts, with the run's folder on storage that all of them share:
  host1$ salamander master runs/deepfm --listen 10.0.0.1:4455
  host2$ salamander ps runs/deepfm --master 10.0.0.1:4455 --listen 10.0.0.2 --seat 0")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    role: RoleArgs,
    #[command(flatten)]
    member: MemberArgs,
    /// This server's place among all, from 0
    #[arg(long, default_value_t = 0)]
    seat: u32,
}

/// Holds rows of tables for the workers of a run.
pub(crate) fn ps(args: ServerArgs) -> Result<ExitCode> {
    log_to_stderr("ps", args.seat);
    let options = member(&args.role, args.member, args.seat);
    told(options.and_then(|options| ps::run(&options, listening)))
}

fn member(role: &RoleArgs, member: MemberArgs, place: u32) -> Result<MemberOptions, Error> {
    let (run, keys) = (role.run()?, role.keys());
    let MemberArgs { master, listen, .. } = member;
    #[cfg(feature = "kube")]
    let health = member.health;
    Ok(MemberOptions {
        run,
        master,
        keys,
        listen,
        place,
        device: place,
        #[cfg(feature = "kube")]
        health,
    })
}

fn listening(address: SocketAddr) {
    Out::Stdout.line(&format!("listening on {address}"));
}

/// How a role ended: a platform of pods starts no other one for a mistake.
fn told(ended: Result<Exit, Error>) -> Result<ExitCode> {
    let exit = ended.or_else(|error| match error.is_mistake() {
        true => {
            errln!("error: {error:#}");
            Ok(Exit::Mistaken)
        }
        false => Err(error),
    })?;
    Ok(ExitCode::from(exit.code()))
}

/// Logs to standard error, which the supervisor keeps in the run's folder. [`environment::LOG`] sets what is logged.
pub(crate) fn log_to_stderr(role: &str, slot: u32) {
    log_some_to_stderr("info", role, slot);
}

/// The same, of what a filter names unless the environment has one.
pub(crate) fn log_some_to_stderr(usual: &str, role: &str, slot: u32) {
    let filter =
        EnvFilter::try_from_env(environment::LOG.name).unwrap_or_else(|_| EnvFilter::new(usual));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // A line that cannot be written (a full disk, a reader that has gone) is lost: telling so would be a panic.
    let log = log.log_internal_errors(false);
    // Only the first subscriber of a process counts, which is what is wanted.
    let _ = if std::env::var(environment::LOG_FORMAT.name).is_ok_and(|format| format == "json") {
        let job = std::env::var(environment::JOB.name).unwrap_or_default();
        let name = serde_json::json!({"job": job, "role": role, "index": slot}).to_string();
        let head = format!("{},", name.trim_end_matches('}'));
        log.json().with_writer(move || PrefixedStderr(head.clone())).try_init()
    } else {
        log.with_target(false).with_writer(std::io::stderr).try_init()
    };
    tracing::info!(role, slot, pid = std::process::id(), "starts");
}

/// Standard error, with the process's name in front of the fields of each line: logs of many pods end up in one place.
struct PrefixedStderr(String);

impl Write for PrefixedStderr {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let rest = line.strip_prefix(b"{");
        let mut whole = Vec::with_capacity(self.0.len() + line.len());
        whole.extend(rest.map_or(&b""[..], |_| self.0.as_bytes()));
        whole.extend(rest.unwrap_or(line));
        // At once, so that lines of several threads do not mix.
        std::io::stderr().lock().write_all(&whole)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}
