//! A worker of shared work: makes ready once and does tasks as long as there are any. Each part is in its file before
//! it is reported.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use salamander_core::elastic::{Lease, Task, WorkerId};
use salamander_core::layout::RunLayout;
use salamander_core::report::TaskResult;
use salamander_data::Dataset;
use salamander_net::Cancel;
use salamander_proto::client::{
    self, Admin, CallError, NonMember, Registration, Role, SessionOptions, TrainedOn,
};
use salamander_train::Error as TrainError;
use salamander_train::checkpoint::Which;
use salamander_train::evaluate::{BatchRange, Over};
use salamander_train::model::{Instance, Models};
use salamander_train::worker::fresh_id;

use crate::Error;
use crate::keys::keys;
use crate::roles::Exit;
use crate::trained::TrainedFiles;

use super::job::{ModelUse, TaskJob, part_name};

/// How long a call to the master is tried again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for the end once there is nothing left to do.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a worker of any job is started with.
pub(crate) struct TaskService<'a> {
    pub(crate) scratch: &'a RunLayout,
    pub(crate) master: &'a str,
    pub(crate) slot: u32,
    /// What all workers must see.
    pub(crate) records: u64,
    pub(crate) fingerprint: u64,
}

/// Runs to the end of the job. A signal may end this process at any moment: there is nothing to save.
pub(crate) fn run(
    scratch: &RunLayout,
    master: &str,
    slot: u32,
    models: &Models,
) -> Result<Exit, Error> {
    let job = TaskJob::read(scratch)?;
    let (records, fingerprint) = (job.records, job.fingerprint);
    let serving = TaskService { scratch, master, slot, records, fingerprint };
    serving.run(
        || TaskWorker::load(&job, scratch, slot, models),
        |worker, session, task| {
            worker.do_task(session, task.range.clone(), part_name(task.id, task.fence))
        },
    )
}

impl TaskService<'_> {
    /// Makes what tasks are done with, and does them as long as there are any.
    pub(crate) fn run<W>(
        &self,
        prepare: impl FnOnce() -> Result<W, Error>,
        do_task: impl FnMut(&W, &NonMember, &Task) -> Result<TaskResult, Error>,
    ) -> Result<Exit, Error> {
        let options = SessionOptions::of(self.master, &keys(self.scratch)?);
        let registration = Registration {
            id: fresh_id()?,
            endpoint: String::new(),
            slot: self.slot,
            process: std::process::id(),
            role: Role::Tasks(TrainedOn {
                records: self.records,
                fingerprint: self.fingerprint,
                ..TrainedOn::default()
            }),
        };
        let mut session = NonMember::open(&options, registration, Cancel::new())?;
        let worked = prepare().and_then(|worker| work(&worker, &mut session, do_task));
        match (session.end(), worked) {
            (Some(_), _) | (None, Ok(())) => Ok(Exit::Done),
            (None, Err(error)) => {
                // No other worker can do better: the job ends with these words.
                session.failed(error.to_string());
                Err(error)
            }
        }
    }
}

/// Tries for a while: a machine with too much to do answers late.
fn call<T>(
    session: &mut NonMember,
    call: impl FnMut(&mut Admin, WorkerId) -> Result<T, client::Error>,
) -> Result<T, Error> {
    session.call(PATIENCE, || false, call).map_err(|error| match error {
        CallError::Over => Error::Interrupted,
        CallError::Unanswered(_) => Error::Failed(format!("a worker {error}")),
    })
}

fn work<W>(
    worker: &W,
    session: &mut NonMember,
    mut do_task: impl FnMut(&W, &NonMember, &Task) -> Result<TaskResult, Error>,
) -> Result<(), Error> {
    while session.end().is_none() {
        match call(session, |admin, id| admin.lease(id))? {
            Lease::Leased(leased) => {
                let Task { id: task, fence, range: ref records, .. } = leased;
                tracing::info!(task, fence, ?records, "begins");
                let finished = do_task(worker, session, &leased)?;
                let result = || Ok(finished.clone());
                let counted = call(session, |admin, id| admin.finish(id, &leased, result()))?;
                tracing::info!(task, fence, counted, skipped = finished.skipped, "done");
            }
            Lease::Wait(wait) => session.wait(Duration::from_millis(wait)),
            // The end is told to all in a moment.
            Lease::Done => session.wait(FAREWELL),
        }
    }
    Ok(())
}

/// What tasks are done with.
struct TaskWorker<'a> {
    job: &'a TaskJob,
    scratch: &'a RunLayout,
    model: Box<dyn Instance>,
    dataset: Arc<Dataset>,
    over: Over,
}

impl<'a> TaskWorker<'a> {
    fn load(
        job: &'a TaskJob,
        scratch: &'a RunLayout,
        slot: u32,
        models: &Models,
    ) -> Result<Self, Error> {
        let checkpoint = Which::Id(job.checkpoint.clone());
        let found = TrainedFiles::open(&job.folder, &checkpoint, &job.device, slot)?;
        let model = models.find(found.experiment.model())?.load(found.trained())?;
        let dataset = job.files.open(&found.experiment)?;
        job.check(&dataset)?;
        let over = job.work.over(&found.experiment);
        Ok(TaskWorker { job, scratch, model, dataset, over })
    }

    fn do_task(
        &self,
        session: &NonMember,
        batches: std::ops::Range<u64>,
        file: String,
    ) -> Result<TaskResult, Error> {
        let path = self.scratch.file(&file);
        let mut out = BufWriter::new(File::create(&path).map_err(Error::io(&path))?);
        // One JSON value per line.
        let mut line = |text: serde_json::Result<String>| {
            let text = text.map_err(|error| TrainError::Invalid(error.to_string()))?;
            writeln!(out, "{text}").map_err(TrainError::io(&path))
        };
        let mut go_on = || if session.end().is_some() { Err(TrainError::Leaving) } else { Ok(()) };
        let part = BatchRange { dataset: &self.dataset, over: self.over, batches };
        let skipped = match self.job.work {
            ModelUse::Evaluate => {
                let part = self.model.evaluate(part, &mut go_on)?;
                line(serde_json::to_string(&part))?;
                part.skipped
            }
            ModelUse::Predict => self.model.predict(part, &mut |batch| {
                line(serde_json::to_string(&batch))?;
                go_on()
            })?,
        };
        out.flush().map_err(Error::io(&path))?;
        Ok(TaskResult { file, skipped })
    }
}
