//! What a master is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use salamander_core::course::LeasePlan;
use salamander_core::elastic::{Timeouts, Version};
use salamander_core::report::{Report, TaskResult};
use salamander_net::Tls;

use crate::journal::Problem;

/// Who starts the processes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlatformKind {
    /// A person, or something that the master does not talk to.
    #[default]
    ByHand,
    /// Whoever opens a session with an inventory: the supervisor on one machine.
    Served,
}

/// Records to be worked through in tasks, without membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPlan {
    /// How many records there are.
    pub records: u64,
    /// How many are in a task.
    pub size: u64,
    /// How long a worker may hold one.
    pub deadline: Duration,
}

/// How work is given out.
#[derive(Default)]
pub enum ModePlan {
    /// Workers are members of generations and train in step.
    #[default]
    Members,
    /// Asynchronous training: workers lease names of micro-batches.
    Leases(Box<LeasePlan>),
    /// Records are worked through in tasks.
    Tasks(TaskPlan),
}

/// Where the program keeps what the master is told. Called on the master's thread, which it must not hold up.
pub trait Sink: Send {
    /// Something of a version, each once and in order.
    fn report(&mut self, _version: Version, _report: &Report) {}
    /// A task and its result, each once; those of earlier masters come again when a master takes over.
    fn result(&mut self, _task: u64, _result: &TaskResult) {}
    /// Something that people may want to know.
    fn note(&mut self, text: &str);
    /// The checkpoint with this id counts: it is in the journal. Told again when a master takes over.
    fn kept(&mut self, _id: &str) {}
    /// Why this master does not lead any more, if it does not.
    fn deposed(&mut self) -> Option<Problem> {
        None
    }
    /// The journal says that this master leads, and nobody has heard of it yet. Here, waiting is allowed; one that
    /// fails does not lead.
    fn opened(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps nothing.
impl Sink for () {
    fn note(&mut self, _text: &str) {}
}

/// The folder of a checkpoint being made, on a thread of its own; returns its name.
pub(crate) type Keeping = Box<dyn FnOnce() -> Result<String, String> + Send>;

/// Numbers of processes that go before those that a run was scaled to; what is not named stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskedProcesses {
    /// Workers.
    pub workers: Option<usize>,
    /// Parameter servers.
    pub servers: Option<usize>,
}

/// A master's configuration.
pub struct Config {
    /// The run's folder, which has the journal.
    pub folder: PathBuf,
    /// The run's token as hexadecimal text.
    pub token: String,
    /// With it every connection is encrypted, and callers present certificates too.
    pub tls: Option<Tls>,
    /// Fewer workers than this do not train.
    pub min_workers: usize,
    /// How many workers are wanted.
    pub workers: usize,
    /// How many parameter servers are part of the run.
    pub servers: usize,
    /// How many crashes of their own making are tolerated.
    pub max_restarts: u64,
    /// How long to wait for whom.
    pub timeouts: Timeouts,
    /// A worker that the others have waited for so long hangs.
    pub hang: Duration,
    /// Who starts processes.
    pub platform: PlatformKind,
    /// Goes on with a run that has ended. Not for a master that is started again within a run.
    pub resume: bool,
    /// How many processes whoever resumes it asks for.
    pub asked: AskedProcesses,
    /// How work is given out.
    pub mode: ModePlan,
    /// Where reports and notes go.
    pub sink: Box<dyn Sink>,
}

impl Config {
    /// A run of so many workers that are started by hand.
    pub fn new(folder: impl Into<PathBuf>, token: impl Into<String>, workers: usize) -> Self {
        Self {
            folder: folder.into(),
            token: token.into(),
            tls: None,
            min_workers: 1,
            workers,
            servers: 0,
            max_restarts: 5,
            timeouts: Timeouts::default(),
            hang: Duration::from_secs(60),
            platform: PlatformKind::ByHand,
            resume: false,
            asked: AskedProcesses::default(),
            mode: ModePlan::Members,
            sink: Box::new(()),
        }
    }
}
