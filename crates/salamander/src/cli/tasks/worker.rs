//! `salamander worker --tasks`: loads the model once and does tasks as long as there are any. Each part is in its file
//! before it is reported.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use salamander_core::elastic::{Beat, Ending, ToMember, WorkerId};
use salamander_data::Dataset;
use salamander_proto::client::{self, Admin, Handler, Lease, Session, SessionOptions};
use salamander_proto::v1;
use salamander_train::Error;
use salamander_train::checkpoint::Which;
use salamander_train::evaluate::Over;
use salamander_train::model::{Instance, Models};
use salamander_train::worker::fresh_id;

use super::super::keys::keys;
use super::super::trained::open_trained;
use super::job::{Finished, Job, Work, part_name};

/// How long a call to the master may take,
const CALL: Duration = Duration::from_secs(5);
/// how long it is tried again,
const PATIENCE: Duration = Duration::from_secs(30);
/// and the wait in between.
const AGAIN: Duration = Duration::from_millis(100);
/// How long to wait for the end once there is nothing left to do, or for a last word to be heard.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs to the end of the job. A signal may end this process at any moment: there is nothing to save.
pub(in crate::cli) fn run(
    scratch: &Path,
    master: &str,
    slot: u32,
    models: &Models,
) -> Result<ExitCode> {
    let job = Job::read(scratch)?;
    let options = SessionOptions::of(master, &keys(scratch)?);
    let id = fresh_id()?;
    let (said, over) = channel();
    let voice = Voice { id, slot, records: job.records, fingerprint: job.fingerprint, said };
    let session = Session::open(&options, voice)?;
    let mut desk = Desk { admin: Admin::connect(&options, CALL)?, id, over, ending: None };
    let worked = work(&job, (scratch, slot), models, &mut desk);
    match (desk.ending, worked) {
        (Some(_), _) | (None, Ok(())) => Ok(ExitCode::SUCCESS),
        (None, Err(error)) => {
            // No other worker can do better: the job ends with these words.
            session.failed(format!("{error:#}"));
            session.close(FAREWELL);
            Err(error)
        }
    }
}

fn work(job: &Job, (scratch, slot): (&Path, u32), models: &Models, desk: &mut Desk) -> Result<()> {
    let found = open_trained(&job.folder, &Which::Id(job.checkpoint.clone()), (&job.device, slot))?;
    let model = models.find(found.experiment.model())?.load(found.trained())?;
    let dataset = job.files.open(&found.experiment)?;
    job.check(&dataset)?;
    let over = Over::new(&found.experiment, job.work == Work::Evaluate);
    let bench = Bench { job, scratch, model, dataset, over };
    while !desk.is_over() {
        match desk.call(|admin, id| admin.lease(id))? {
            Lease::Task { task, records, fence, .. } => {
                tracing::info!(task, fence, ?records, "begins");
                let finished = bench.do_task(desk, records, part_name(task, fence))?;
                let json = serde_json::to_string(&finished)?;
                let result = || Ok(json.clone());
                let counted = desk.call(|admin, id| admin.finish(id, (task, fence), result()))?;
                tracing::info!(task, fence, counted, skipped = finished.skipped, "done");
            }
            Lease::Wait(wait) => desk.wait(wait),
            // The end is told to all in a moment.
            Lease::Done => desk.wait(FAREWELL),
        }
    }
    Ok(())
}

/// What tasks are done with.
struct Bench<'a> {
    job: &'a Job,
    scratch: &'a Path,
    model: Box<dyn Instance>,
    dataset: Arc<Dataset>,
    over: Over,
}

impl Bench<'_> {
    fn do_task(
        &self,
        desk: &mut Desk,
        batches: std::ops::Range<u64>,
        file: String,
    ) -> Result<Finished> {
        let path = self.scratch.join(&file);
        let mut out = BufWriter::new(File::create(&path).map_err(Error::io(&path))?);
        // One JSON value per line.
        let mut line = |text: serde_json::Result<String>| {
            let text = text.map_err(|error| Error::Invalid(error.to_string()))?;
            writeln!(out, "{text}").map_err(Error::io(&path))
        };
        let mut go_on = || if desk.is_over() { Err(Error::Leaving) } else { Ok(()) };
        let (dataset, over) = (&self.dataset, self.over);
        let skipped = match self.job.work {
            Work::Evaluate => {
                let part = self.model.evaluate(dataset, over, batches, &mut go_on)?;
                line(serde_json::to_string(&part))?;
                part.skipped
            }
            Work::Predict => self.model.predict(dataset, over, batches, &mut |batch| {
                line(serde_json::to_string(&batch))?;
                go_on()
            })?,
        };
        out.flush().map_err(Error::io(&path))?;
        Ok(Finished { file, skipped })
    }
}

/// What this worker asks the master, and whether the job is over.
struct Desk {
    admin: Admin,
    id: WorkerId,
    over: Receiver<Ending>,
    ending: Option<Ending>,
}

impl Desk {
    fn is_over(&mut self) -> bool {
        self.wait(Duration::ZERO);
        self.ending.is_some()
    }

    /// Waits, but not past the end.
    fn wait(&mut self, longest: Duration) {
        if self.ending.is_none() {
            self.ending = self.over.recv_timeout(longest).ok();
        }
    }

    /// Tries for a while: a machine with too much to do answers late.
    fn call<T>(
        &mut self,
        call: impl Fn(&mut Admin, WorkerId) -> Result<T, client::Error>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            let error = match call(&mut self.admin, self.id) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.wait(AGAIN);
            if self.ending.is_some() {
                bail!("the job is over");
            }
            if begun.elapsed() > PATIENCE {
                return Err(error).context("a worker cannot reach the master");
            }
        }
    }
}

/// The session's side: signs of life, and word of the end.
struct Voice {
    id: WorkerId,
    slot: u32,
    records: u64,
    fingerprint: u64,
    said: Sender<Ending>,
}

impl Handler for Voice {
    fn hello(&mut self) -> v1::Hello {
        v1::Hello {
            peer: Some(v1::Peer { id: self.id.0, endpoint: String::new() }),
            active: None,
            slot: self.slot,
            pid: std::process::id(),
            records: self.records,
            fingerprint: self.fingerprint,
            tasks_only: true,
            server: false,
        }
    }

    fn welcome(&mut self, _epoch: u32) -> Result<(), String> {
        // There is one master only, in the parent of this process.
        Ok(())
    }

    fn message(&mut self, message: ToMember) {
        if let ToMember::Ended(ending) = message {
            tracing::info!(?ending, "the job is over");
            // Nobody listens when this process is about to end anyway.
            let _ = self.said.send(ending);
        }
    }

    fn beat(&mut self) -> Beat {
        Beat::default()
    }

    fn refused(&mut self, reason: &str) {
        let _ = self.said.send(Ending::Failed(format!("the master refuses this worker: {reason}")));
    }
}
