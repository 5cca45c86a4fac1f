//! A worker's loop: take a lease, and for each name pull what changed, compute, push, and report when all servers have
//! it.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use salamander_core::asynchronous::{
    Consistency, LeaseAnswer, LeaseAsk, MapVersion, Process, Task, Work,
};
use salamander_core::elastic::Work as Doing;
use salamander_core::experiment::{Ps, Settings};
use salamander_core::plan::{MicroBatch, Slice};
use salamander_core::progress::StepCount;
use salamander_core::report::{Brief, Measured};
use salamander_net::Cancel;
use salamander_ps::LedgerPage;
use salamander_ps::client::{Ack, Sent};

use super::dense::{BLOCK, Dense};
use super::servers::{Gradients, Servers};
use super::session::LeaseSession;
use super::{PreparedTrial, check_running, prepare};
use crate::Error;
use crate::evaluate::{BatchRange, Over, evaluate_part};
use crate::loader::{Loaded, Loader};
use crate::params;
use crate::profile::{Profiler, WorkTimes};
use crate::step::{Destination, Staging, StepSum, compute};
use crate::tables::Opened;
use crate::trainer::{Setup, Timings};
use crate::trial::{BatchOf, Trial};
use crate::worker::{Meter, WorkerConnection};

/// Names of a lease at most: enough to load ahead, few enough to be done again cheaply.
const NAMES: u64 = 4;
/// How long to wait when there is nothing left to do.
const FAREWELL: Duration = Duration::from_millis(200);

/// Works to the end of the run.
pub(crate) fn work<T: Trial>(setup: Setup, connection: WorkerConnection) -> Result<(), Error> {
    crate::threads::join(setup.experiment.threads);
    let (job, _) = prepare::<T>(setup)?;
    let dense = Dense::of(&job.model);
    let cancel = Cancel::new();
    let spec = dense.spec(job.pass.optimizer);
    let Ps { local_steps, scale_by_staleness, .. } = job.prepared.setup.experiment.ps;
    let servers = Servers::new(&connection, cancel.clone(), spec, scale_by_staleness);
    if !job.tables.is_empty() {
        let rows = Opened::Source(Box::new(servers.clone()));
        job.prepared.open_tables(&job.tables, rows)?;
    }
    let data = job.prepared.trained_on(&job.course);
    let blocks = vec![0.0; dense.blocks() * BLOCK];
    let (meter, profile) = (connection.meter.clone(), OwnWork::default());
    let folder = &job.prepared.setup.folder;
    let _profiler = Profiler::start(folder, &connection.process(), Arc::clone(&profile.work));
    let mut worker = BatchComputer {
        job,
        dense,
        servers,
        blocks,
        local_steps,
        since_pull: 0,
        stale: true,
        meter,
        profile,
    };
    let mut session = LeaseSession::open(connection, data, cancel)?;
    let worked = worker.work(&mut session);
    session.close(worked)
}

struct BatchComputer<T> {
    job: PreparedTrial<T>,
    dense: Dense,
    servers: Servers,
    /// The dense parameters as they were pulled last.
    blocks: Vec<f32>,
    /// Names that are computed without a pull in between.
    local_steps: u64,
    since_pull: u64,
    /// The dense parameters must be pulled before they are used.
    stale: bool,
    /// What this worker shows of itself.
    meter: Meter,
    profile: OwnWork,
}

/// What this worker has done, for whoever looks meanwhile.
#[derive(Default)]
struct OwnWork {
    names: u64,
    timings: Timings,
    work: Arc<WorkTimes>,
}

impl OwnWork {
    fn add(&mut self, names: u64, timings: &Timings) {
        self.names += names;
        self.timings.add(timings);
        self.work.note(self.names, &self.timings, Duration::ZERO);
    }
}

/// Names that this worker holds for a while, and what was found for those that all servers have.
struct HeldLease {
    map: MapVersion,
    work: Work,
    measured: Vec<Measured>,
}

/// A part of a validation that this worker holds for a while.
struct ValidationLease {
    task: u64,
    fence: u64,
}

/// A micro-batch as a part of its step: the pushes of all of them together are to be what the step would be.
struct StepPart {
    /// What its gradients are multiplied by.
    divisor: f32,
    /// Its part of the step's records, above 0: what it may have of a bound.
    share: f64,
}

/// A micro-batch on its way to the servers.
struct Pushed {
    name: MicroBatch,
    sent: Sent<'static>,
    measured: Measured,
}

/// Never inlined: compiled with this crate, at its level of optimisation, and not with the model.
#[inline(never)]
fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}

impl<T: Trial> BatchComputer<T> {
    fn work(&mut self, session: &mut LeaseSession) -> Result<(), Error> {
        // There are no groups: each trains by itself.
        self.meter.begins(1);
        while !session.is_over() {
            session.session.working(Doing::Idle, 0);
            match session.ask(&LeaseAsk::Work { most: self.lease() })? {
                LeaseAnswer::Leased { task, servers, brief } => {
                    self.servers.follow(task.map, servers);
                    self.names(session, task, &brief)?;
                }
                LeaseAnswer::Validate { task, fence, batches, map, servers } => {
                    self.servers.follow(map, servers);
                    self.stale = true;
                    self.validate(session, ValidationLease { task, fence }, batches)?;
                }
                LeaseAnswer::Wait(wait) => session.session.wait(Duration::from_millis(wait)),
                // The end is told to all in a moment.
                LeaseAnswer::Done | LeaseAnswer::Heard(_) => session.session.wait(FAREWELL),
            }
        }
        Ok(())
    }

    /// Names to ask for. Where workers may not run far apart, a lease must leave some for the others.
    fn lease(&self) -> usize {
        let Settings { ps, workers, .. } = &*self.job.prepared.setup.experiment;
        let names = match Consistency::of(ps).staleness() {
            None => NAMES,
            Some(staleness) => {
                let slices = self.job.course.plan().slices;
                let window = staleness.saturating_add(1).saturating_mul(slices.into());
                (window / (2 * u64::from(workers.max))).clamp(1, NAMES)
            }
        };
        names as usize
    }

    /// Computes and pushes the names of a lease, and reports those that all servers have.
    fn names(
        &mut self,
        session: &mut LeaseSession,
        task: Task,
        brief: &Brief,
    ) -> Result<(), Error> {
        let (fence, map) = (task.fence, task.map);
        let loader = self.loader(&task.names)?;
        let mut lease = HeldLease { map: map.number, work: Work::new(task), measured: Vec::new() };
        let mut last = None;
        let mut started = Instant::now();
        // Waiting for records is a part of computing.
        session.session.working(Doing::Computing, 0);
        for loaded in loader {
            let loaded = loaded?;
            let timings = Timings { data: started.elapsed(), ..Timings::default() };
            session.session.waited(timings.data);
            // Servers apply the last push while this one is computed; its acknowledgements are there by now.
            let pushed = self.one(session, loaded, brief, timings);
            let is_known = |last: &Pushed| self.servers.is_acknowledged(&last.sent);
            let before = last.take_if(|last| pushed.is_ok() || is_known(last));
            let collected = before.map_or(Ok(()), |before| self.collect(before, &mut lease));
            match collected.and(pushed) {
                Ok(pushed) => last = Some(pushed),
                Err(error) => {
                    self.give_up(error)?;
                    last = None;
                    break;
                }
            }
            started = Instant::now();
            session.session.working(Doing::Computing, 0);
        }
        session.session.working(Doing::Exchanging, 0);
        if let Some(last) = last {
            self.collect(last, &mut lease).or_else(|error| self.give_up(error))?;
        }
        let HeldLease { work, mut measured, .. } = lease;
        let report = work.report();
        measured.truncate(report.names.len());
        self.meter.worked(session.session.beat());
        let told = session.ask(&LeaseAsk::Pushed { report, measured })?;
        tracing::debug!(fence, ?told, "reported");
        if !work.is_done() {
            session.give_back(fence)?;
        }
        Ok(())
    }

    /// Waits until all servers have a push, and enters it.
    fn collect(&mut self, pushed: Pushed, lease: &mut HeldLease) -> Result<(), Error> {
        let Pushed { name, sent, mut measured } = pushed;
        let started = Instant::now();
        for Ack { server, incarnation } in self.servers.finish(sent)? {
            lease.work.acked(lease.map, name, Process { server: server as u32, incarnation });
        }
        measured.timings.exchange += started.elapsed();
        self.show(name, &measured);
        self.profile.add(1, &measured.timings);
        lease.measured.push(measured);
        Ok(())
    }

    /// Where this worker is, by the last name that all servers have.
    fn show(&self, name: MicroBatch, measured: &Measured) {
        let steps = name.epoch * self.job.course.plan().steps() + name.step + 1;
        let loss = measured.loss / measured.tally.applied.max(1) as f64;
        self.meter.stepped(StepCount(steps), name.epoch, loss);
    }

    /// The rest of a lease is given back when servers cannot be reached.
    fn give_up(&mut self, error: Error) -> Result<(), Error> {
        let Error::Unreachable(reason) = error else { return Err(error) };
        tracing::info!(reason, "gives a lease back");
        self.forget();
        Ok(())
    }

    /// One micro-batch, from the pull to the push.
    fn one(
        &mut self,
        session: &mut LeaseSession,
        loaded: Loaded<BatchOf<T>>,
        brief: &Brief,
        mut timings: Timings,
    ) -> Result<Pushed, Error> {
        let (name, started) = (loaded.name, Instant::now());
        session.session.working(Doing::Exchanging, 0);
        self.pull()?;
        timings.exchange += started.elapsed();

        let started = Instant::now();
        session.session.working(Doing::Computing, 0);
        let rows = RefCell::new(Vec::new());
        let staging = Staging { tables: &self.job.tables, to: Destination::Collect(&rows) };
        let staging = (!self.job.tables.is_empty()).then_some(staging);
        let PreparedTrial { model, pass, prepared, .. } = &self.job;
        let StepSum { mut gradient, tally, metrics, loss, running, .. } =
            compute(model, pass, &[loaded], prepared.arithmetic, staging)?;
        check_running::<T>(&params::running(model), running.means())?;
        let StepPart { divisor, share } = self.part(name);
        gradient.scale(divisor);
        let norm = gradient.clip(prepared.clip.map(|clip| clip.of_part(share)))?;
        let gradient_norm = norm.map(|norm| norm / share);
        let mut rows = rows.into_inner();
        for row in &mut rows {
            scale(&mut row.values, divisor);
        }
        let (ids, values) = self.dense.pieces(&gradient.into_host(false)?);
        let factor = self.job.course.factor_of(name, &brief.plateau);
        timings.compute += started.elapsed();

        let started = Instant::now();
        session.session.working(Doing::Exchanging, tally.applied);
        let page =
            LedgerPage { applied: tally.applied, skipped: tally.skipped, digest: tally.digest };
        let gradients = Gradients { blocks: &ids, dense: &values, rows: &rows };
        let sent = self.servers.begin_push(name, page, factor, &gradients)?;
        timings.exchange += started.elapsed();
        let rate = self.job.pass.optimizer.learning_rate() * factor;
        let measured = Measured { tally, loss, metrics, rate, gradient_norm, timings };
        Ok(Pushed { name, sent, measured })
    }

    /// Brings the dense parameters up to date, unless this worker goes on with its own for a while.
    fn pull(&mut self) -> Result<(), Error> {
        if !self.stale && self.since_pull < self.local_steps {
            self.since_pull += 1;
            return Ok(());
        }
        let changed = self.servers.refresh(&self.dense, &mut self.blocks)?;
        if !changed.is_empty() {
            let changed = params::overwrite(self.job.model.clone(), changed);
            self.job.model = changed.map_err(Error::model::<T>)?;
        }
        (self.stale, self.since_pull) = (false, 0);
        Ok(())
    }

    fn forget(&mut self) {
        self.servers.hang_up();
        self.stale = true;
    }

    /// What a micro-batch is of its step.
    fn part(&self, name: MicroBatch) -> StepPart {
        let plan = self.job.course.plan();
        let slices = plan.micro_batches(name.epoch, name.step, plan.aggregation);
        let records = |slice: &Slice| slice.positions.end - slice.positions.start;
        let all: u64 = slices.iter().map(records).sum();
        let own: u64 = slices.iter().filter(|slice| slice.name == name).map(records).sum();
        StepPart {
            divisor: self.job.course.divisor(all, plan.batches_in(name.step)),
            share: own as f64 / all as f64,
        }
    }

    fn loader(&self, names: &[MicroBatch]) -> Result<Loader<BatchOf<T>>, Error> {
        let plan = *self.job.course.plan();
        let names = names.to_vec();
        let slices = names.into_iter().flat_map(move |name| {
            let step = plan.micro_batches(name.epoch, name.step, plan.aggregation);
            step.into_iter().filter(move |slice| slice.name == name)
        });
        self.job.prepared.loader::<T>(slices)
    }

    /// Validates some batches with what the servers hold now.
    fn validate(
        &mut self,
        session: &mut LeaseSession,
        ValidationLease { task, fence }: ValidationLease,
        batches: Range<u64>,
    ) -> Result<(), Error> {
        let Some(dataset) = self.job.prepared.validation.clone() else {
            return Err(Error::Invalid("data.validation: this worker sees no files".to_string()));
        };
        let over = Over::new(&self.job.prepared.setup.experiment, true);
        session.session.working(Doing::Computing, 0);
        let found = self.pull().and_then(|()| {
            let part = BatchRange { dataset: &dataset, over, batches };
            let assets = &self.job.prepared.assets;
            // Each batch is a new beginning: who hangs is known by the time that it takes for one.
            let part = evaluate_part(&self.job.model, assets, part, &mut || {
                session.session.working(Doing::Computing, 0);
                Ok(())
            });
            // Rows that cannot be had are no fault of the model, whatever it makes of that.
            self.job.tables.check()?;
            part
        });
        match found {
            Ok(part) => session.ask(&LeaseAsk::Validated { task, fence, part }).map(drop),
            Err(Error::Unreachable(reason)) => {
                tracing::info!(reason, "gives a validation back");
                self.forget();
                session.give_back(fence)
            }
            Err(error) => Err(error),
        }
    }
}
