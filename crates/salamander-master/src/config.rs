//! What a master is told when it starts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use salamander_core::elastic::Timeouts;
use salamander_core::plan::MicroBatch;
use salamander_core::push::{Checkpoint, Settings};
use salamander_net::Tls;
use serde_json::Value;

/// Who starts the processes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlatformKind {
    /// A person, or something that the master does not talk to.
    #[default]
    ByHand,
    /// Whoever attaches with the call `Serve`: the supervisor on one machine.
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

/// Where the program keeps what the master is told. Called on the master's thread, which it must not hold up.
pub trait Sink: Send {
    /// Something of a version, each once and in order. In a run of tasks: a task and its result, each once; those of
    /// earlier masters come again when a master takes over.
    fn report(&mut self, version: u64, json: &serde_json::Value);
    /// Something that people may want to know.
    fn note(&mut self, text: &str);
    /// The checkpoint with this id counts: it is in the journal. Told again when a master takes over.
    fn kept(&mut self, _id: &str) {}
    /// The journal says that this master leads, and nobody has heard of it yet. Here, waiting is allowed.
    fn opened(&mut self) {}
}

/// Keeps nothing.
impl Sink for () {
    fn report(&mut self, _version: u64, _json: &serde_json::Value) {}
    fn note(&mut self, _text: &str) {}
}

/// Asynchronous training on parameter servers: workers lease names of micro-batches instead of being members.
pub struct NamesPlan {
    /// The names and how far workers may run apart.
    pub settings: Settings,
    /// Batches of the validation after each epoch; 0: there is none.
    pub validation: u64,
    /// The file with the rows that a run begins with.
    pub initial: PathBuf,
    /// The folder of the run's checkpoints.
    pub checkpoints: PathBuf,
    /// What the program knows about the model.
    pub books: Box<dyn Books>,
}

/// The folder of a checkpoint being made, on a thread of its own; returns its name.
pub type Keeping = Box<dyn FnOnce() -> Result<String, String> + Send>;

/// What the program adds to asynchronous training: the master knows names, the program what they mean. Called on the
/// master's thread, which it must not hold up.
pub trait Books: Send {
    /// Training begins or goes on with so many workers.
    fn begin(&mut self, workers: u64) -> Notes;
    /// What workers are told with each lease.
    fn brief(&self) -> Value;
    /// A name is done, and this was measured; the same name may be told again.
    fn measured(&mut self, name: MicroBatch, measured: &Value) -> Notes;
    /// Whether the end of an epoch was entered: a lost server can reopen an epoch whose end is in the books.
    fn is_closed(&self, epoch: u64) -> bool;
    /// All names of an epoch are done; these are the parts of its validation. An error ends the run.
    fn close(&mut self, epoch: u64, parts: &[Value]) -> Result<Notes, String>;
    /// A checkpoint counts, whose rows are in these files: what makes a folder of it.
    fn keep(&mut self, checkpoint: &Checkpoint, files: Vec<PathBuf>) -> Keeping;
    /// The run ends.
    fn end(&mut self, interrupted: bool) -> Notes;
    /// Time has passed.
    fn tick(&mut self) {}
}

/// What is to be done about something that was entered.
#[derive(Debug, Default)]
pub struct Notes {
    /// To be told outside: versions with their parts, in growing order.
    pub reports: Vec<(u64, u32, Value)>,
    /// A checkpoint is due.
    pub save: bool,
    /// Training is to end here.
    pub stop: bool,
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
    /// How many crashes of their own making are borne.
    pub max_restarts: u64,
    /// How long to wait for whom.
    pub timeouts: Timeouts,
    /// A worker that the others have waited for so long hangs.
    pub hang: Duration,
    /// Who starts processes.
    pub platform: PlatformKind,
    /// Goes on with a run that has ended. Not for a master that is started again within a run.
    pub resume: bool,
    /// Work in tasks instead of training.
    pub tasks: Option<TaskPlan>,
    /// Asynchronous training instead of generations.
    pub names: Option<NamesPlan>,
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
            tasks: None,
            names: None,
            sink: Box::new(()),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token stays out of logs.
        f.debug_struct("Config")
            .field("folder", &self.folder)
            .field("workers", &(self.min_workers, self.workers))
            .field("platform", &self.platform)
            .finish_non_exhaustive()
    }
}
