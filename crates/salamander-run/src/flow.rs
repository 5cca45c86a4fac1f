//! Flows that several processes share: the tasks of each stage are leased, so that whoever is killed costs its task
//! alone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::layout::RunLayout;
use salamander_core::report::TaskResult;
use salamander_files::{Durability, raise_open_files, replace};
use salamander_flow::flow::{Error as FlowError, FlowStage, Flows, TaskReport, TaskRunner};
use salamander_master::TaskPlan;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::roles::{Duty, Exit};
use crate::tasks::worker::TaskService;
use crate::tasks::{Leading, Scratch, Sharing, part_name};

/// How long a worker may take for a task. Only the last resort: who dies or falls silent is noticed at once.
const DEADLINE: Duration = Duration::from_secs(3600);
/// How often workers are replaced before the flow is given up.
const MAX_RESTARTS: u64 = 100;

/// What workers are told.
#[derive(Serialize, Deserialize)]
struct StageFile {
    /// Of which program this is: another one may have other functions of the same names.
    program: ProgramFile,
    stage: FlowStage,
    /// Where the files of tasks go.
    staging: PathBuf,
}

/// The file that a process runs, which a new build replaces.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramFile {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Of its last change, in seconds and nanoseconds.
    changed: (i64, i64),
}

impl ProgramFile {
    fn of_this_process() -> Result<Self, Error> {
        // Still the one that was started when another has got its name.
        let path = Path::new("/proc/self/exe");
        let file = fs::metadata(path).map_err(Error::io(path))?;
        let changed = (file.mtime(), file.mtime_nsec());
        Ok(Self { device: file.dev(), inode: file.ino(), bytes: file.len(), changed })
    }
}

/// Does the tasks of flows by processes of this program.
pub struct FlowWorkers<'a> {
    sharing: Sharing<'a>,
}

impl<'a> FlowWorkers<'a> {
    /// By so many.
    pub fn new(sharing: Sharing<'a>) -> Self {
        Self { sharing }
    }

    fn lead(
        &mut self,
        stage: &FlowStage,
        folder: &Path,
        each: &mut dyn FnMut(&TaskReport) -> Result<(), FlowError>,
    ) -> Result<Vec<TaskReport>, Error> {
        let scratch = Scratch::create(folder)?;
        let (stage_told, staging) = (stage.clone(), folder.to_path_buf());
        let program = ProgramFile::of_this_process()?;
        let told = StageFile { program, stage: stage_told, staging };
        let path = scratch.layout().job();
        let text = serde_json::to_vec(&told).map_err(Error::broken(&path))?;
        replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path))?;
        let leading = Leading {
            scratch: &scratch,
            folder,
            plan: TaskPlan { records: stage.tasks(), size: 1, deadline: DEADLINE },
            max_restarts: MAX_RESTARTS,
            duty: |master, slot, scratch| Duty::Flow { master, slot, scratch },
        };
        let mut reports = Vec::new();
        leading.run(&mut self.sharing, &mut |part| {
            let text = fs::read(part).map_err(Error::io(part))?;
            let report = serde_json::from_slice(&text).map_err(Error::broken(part))?;
            each(&report).map_err(|error| Error::Failed(error.to_string()))?;
            reports.push(report);
            Ok(())
        })?;
        Ok(reports)
    }
}

impl TaskRunner for FlowWorkers<'_> {
    fn is_shared(&self) -> bool {
        true
    }

    fn run(&mut self, stage: &FlowStage, folder: &Path) -> Result<Vec<TaskReport>, FlowError> {
        self.run_each(stage, folder, &mut |_| Ok(()))
    }

    fn run_each(
        &mut self,
        stage: &FlowStage,
        folder: &Path,
        each: &mut dyn FnMut(&TaskReport) -> Result<(), FlowError>,
    ) -> Result<Vec<TaskReport>, FlowError> {
        self.lead(stage, folder, each).map_err(|error| match error {
            Error::Interrupted => FlowError::Interrupted,
            error => FlowError::Invalid(error.to_string()),
        })
    }
}

/// A worker: does tasks as long as there are any.
pub(crate) fn worker(
    scratch: &RunLayout,
    master: &str,
    slot: u32,
    flows: &Flows,
) -> Result<Exit, Error> {
    let path = scratch.job();
    let text = fs::read(&path).map_err(Error::io(&path))?;
    let told: StageFile = serde_json::from_slice(&text).map_err(Error::broken(&path))?;
    let StageFile { program, stage, staging } = told;
    if program != ProgramFile::of_this_process()? {
        return Err(Error::Failed(
            "the program was replaced while the flow ran: run the flow again".to_string(),
        ));
    }
    // Each shard that rows go to is an open file.
    raise_open_files();
    let serving = TaskService { scratch, master, slot, records: stage.tasks(), fingerprint: 0 };
    serving.run(
        || Ok(stage),
        |stage, _session, task| {
            // Named by the lease too: who has lost a task cannot spoil the files of who got it.
            let name = format!("{}-{:06}-{}", stage.word(), task.id, task.fence);
            let report = stage.run(flows, task.id, &staging, &name);
            let report = report.map_err(|error| Error::Failed(error.to_string()))?;
            let file = part_name(task.id, task.fence);
            let path = scratch.file(&file);
            let text = serde_json::to_vec(&report).map_err(Error::broken(&path))?;
            replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path))?;
            Ok(TaskResult { file, skipped: report.bad })
        },
    )
}
