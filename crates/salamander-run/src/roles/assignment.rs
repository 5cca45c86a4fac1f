//! How a program of any kind becomes a process of a run: it is started again with an assignment among its arguments,
//! which it does before anything else.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use salamander_core::environment;
use salamander_core::layout::RunLayout;
use salamander_master::local::{LocalOptions, LocalRole, die_with_parent};
use salamander_proto::client::SessionOptions;
use serde::{Deserialize, Serialize};

use super::{Exit, MemberOptions, master, ps, worker};
use crate::connect::Scale;
use crate::keys::KeyFiles;
use crate::{Error, Program, TrainsOn};

/// Announces the assignment: `salamander worker FOLDER --assignment {..}`.
const OPTION: &str = "--assignment";

/// What this process was started for, if a run has started it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// It ends together with this process.
    parent: u32,
    folder: PathBuf,
    task: Duty,
}

/// What a process of a run does.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Duty {
    /// Lead the run.
    Master { listen: SocketAddr, resume: Option<Scale> },
    /// Train.
    Worker { master: String, slot: u32, device: u32, start: Option<String> },
    /// Hold tables.
    Server { master: String, seat: u32 },
    /// Train one trial of a search up to where it pauses.
    Trial { on: TrainsOn, slot: u32 },
    /// Do tasks of an evaluation or a prediction, which this folder describes.
    Tasks { master: String, slot: u32, scratch: PathBuf },
    /// Do tasks of a flow, which this folder describes.
    #[cfg(feature = "flow")]
    Flow { master: String, slot: u32, scratch: PathBuf },
}

impl Duty {
    fn name(&self) -> &'static str {
        match self {
            Duty::Master { .. } => "master",
            Duty::Worker { .. } | Duty::Tasks { .. } => "worker",
            #[cfg(feature = "flow")]
            Duty::Flow { .. } => "worker",
            Duty::Server { .. } => "ps",
            Duty::Trial { .. } => "trial",
        }
    }
}

impl Assignment {
    /// That of this process, by its arguments.
    pub fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args_os().skip(3);
        let option = arguments.next().filter(|option| option == OsStr::new(OPTION));
        let text = option.and_then(|_| arguments.next())?;
        serde_json::from_str(text.to_str()?).ok()
    }

    /// The role: master, worker, ps or trial.
    pub fn role(&self) -> &'static str {
        self.task.name()
    }

    /// Whether it trains a trial, which is a run of its own.
    pub(crate) fn is_trial(&self) -> bool {
        matches!(self.task, Duty::Trial { .. })
    }

    /// The process's number among those of its role.
    pub fn number(&self) -> u32 {
        match self.task {
            Duty::Master { .. } | Duty::Trial { .. } => 0,
            Duty::Worker { slot, .. } | Duty::Tasks { slot, .. } => slot,
            #[cfg(feature = "flow")]
            Duty::Flow { slot, .. } => slot,
            Duty::Server { seat, .. } => seat,
        }
    }

    /// Does it, to the end of the run.
    pub fn run(self, program: &Program) -> Result<Exit, Error> {
        die_with_parent(self.parent).map_err(|error| Error::Failed(error.to_string()))?;
        let models = program.models();
        let (run, keys) = (RunLayout::new(self.folder), KeyFiles::default());
        let listen = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let member = |master, place| {
            let (run, keys) = (run.clone(), keys.clone());
            MemberOptions {
                run,
                master,
                keys,
                listen,
                place,
                device: place,
                #[cfg(feature = "kube")]
                health: None,
            }
        };
        let listening = |address| tracing::info!(%address, "listening");
        match self.task {
            Duty::Master { listen, resume } => {
                let options = master::MasterOptions {
                    run,
                    listen,
                    keys,
                    served: true,
                    resume,
                    #[cfg(feature = "kube")]
                    pods: None,
                };
                master::run(&options, models, listening)
            }
            Duty::Worker { master, slot, device, start } => {
                worker::run(&MemberOptions { device, ..member(master, slot) }, start, models)
            }
            Duty::Server { master, seat } => ps::run(&member(master, seat), listening),
            Duty::Trial { on, slot } => crate::search::trial(program, &run, &on, slot),
            Duty::Tasks { master, slot, scratch } => {
                crate::tasks::worker::run(&RunLayout::new(scratch), &master, slot, models)
            }
            #[cfg(feature = "flow")]
            Duty::Flow { master, slot, scratch } => {
                crate::flow::worker(&RunLayout::new(scratch), &master, slot, program.flows())
            }
        }
    }
}

/// Starts this program again for the processes of a run, each with a log of its own.
#[derive(Clone)]
pub(crate) struct Processes {
    program: PathBuf,
    folder: PathBuf,
    logs: RunLayout,
    workers: u32,
}

impl Processes {
    /// For the run of a folder, with so many workers on this machine.
    pub(crate) fn new(folder: &Path, logs: &RunLayout, workers: u32) -> Result<Self, Error> {
        let program = std::env::current_exe();
        let program = program.map_err(Error::system("this program cannot be found"))?;
        let path = logs.logs();
        fs::create_dir_all(&path).map_err(Error::io(&path))?;
        Ok(Self { program, folder: folder.to_path_buf(), logs: logs.clone(), workers })
    }

    /// How a platform starts them.
    pub(crate) fn platform(
        &self,
        session: SessionOptions,
        task: impl Fn(LocalRole) -> Duty + Send + 'static,
    ) -> LocalOptions {
        let (own, logs) = (self.clone(), self.clone());
        let mut options = LocalOptions::new(session, move |role| own.command(role, task(role)));
        options.log = Box::new(move |role| Some(logs.log(role)));
        options
    }

    /// A process of the run, recognisable by its command line whatever the program is called.
    pub(crate) fn command(&self, role: LocalRole, task: Duty) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0("salamander").arg(task.name()).arg(&self.folder).arg(OPTION);
        let parent = std::process::id();
        let assignment = Assignment { parent, folder: self.folder.clone(), task };
        command.arg(serde_json::json!(assignment).to_string());
        if let LocalRole::Worker(_) = role {
            share_cores(&mut command, self.workers);
        }
        let file = OpenOptions::new().create(true).append(true).open(self.log(role));
        let streams = file.and_then(|file| Ok((file.try_clone()?, file)));
        command.stdin(Stdio::null());
        match streams {
            Ok((out, err)) => command.stdout(out).stderr(err),
            // Without a log the process is still of use.
            Err(_) => command.stdout(Stdio::null()).stderr(Stdio::null()),
        };
        command
    }

    fn log(&self, role: LocalRole) -> PathBuf {
        self.logs.log(&log_name(role))
    }
}

/// Several workers share the cores; whoever sets this knows better.
fn share_cores(command: &mut Command, workers: u32) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = (cores / workers.max(1) as usize).max(1);
    if std::env::var_os(environment::THREADS.name).is_none() {
        command.env(environment::THREADS.name, share.to_string());
    }
}

/// The name of a process's log.
fn log_name(role: LocalRole) -> String {
    match role {
        LocalRole::Master => "master".to_string(),
        LocalRole::Worker(slot) => format!("worker-{slot}"),
        LocalRole::Server(seat) => format!("ps-{seat}"),
    }
}
