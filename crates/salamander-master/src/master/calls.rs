//! What the master answers to single calls.

use salamander_core::elastic::{Lease, Millis, WorkerId};
use salamander_core::push::Ask;
use salamander_proto::v1::lease_reply;
use salamander_proto::{status, v1};

use super::Master;
use crate::inbox::Call;
use crate::mode::{Event, Finished, Mode, Scale};

/// More than anybody has, and few enough to start.
const MOST_WORKERS: u32 = 10_000;

impl Master {
    pub(super) fn call(&mut self, now: Millis, call: Call) {
        match call {
            Call::Status(answer) => {
                let status = crate::status::of(self);
                self.cluster.answer(answer, Ok(status.into()));
            }
            Call::Scale(request, answer) => {
                let done = self.scale(now, request);
                self.cluster.answer(answer, done.map(|()| v1::ScaleReply {}));
            }
            Call::Names(request, answer) => {
                let told = self.names(now, request);
                self.cluster.answer(answer, told);
            }
            Call::Stop(answer) => {
                self.step(now, Event::Stop);
                self.cluster.answer(answer, Ok(v1::StopReply {}));
            }
            Call::Lease(request, answer) => {
                let lease = self.lease(now, WorkerId(request.worker));
                let lease = lease.map(|lease| v1::LeaseReply { lease: Some(lease) });
                self.cluster.answer(answer, lease);
            }
            Call::Finish(request, answer) => {
                let counted = self.finish(now, request);
                self.cluster.answer(answer, counted.map(|counted| v1::FinishReply { counted }));
            }
        }
    }

    fn scale(&mut self, now: Millis, request: v1::ScaleRequest) -> Result<(), status::Error> {
        let v1::ScaleRequest { workers, servers } = request;
        for (what, number) in [("workers", workers), ("parameter servers", servers)] {
            if let Some(number) = number.filter(|number| !(1..=MOST_WORKERS).contains(number)) {
                let text = format!("{number} {what} cannot be; from 1 to {MOST_WORKERS} can");
                return Err(status::Error::Argument(text));
            }
        }
        if self.ending().is_some() {
            return Err(status::Error::Unfit("the run is over".into()));
        }
        let wanted = self.mode.run().wanted();
        if servers.is_some() && wanted.servers == 0 {
            return Err(status::Error::Unfit("the run has no parameter servers".into()));
        }
        let workers = workers.map(|workers| workers as usize);
        // A platform may ask again for the same number.
        let servers = servers.map(|servers| servers as usize);
        let servers = servers.filter(|servers| *servers != wanted.servers);
        self.step(now, Event::Scale(Scale { workers, servers }));
        self.cluster.processes.scale(self.mode.run().wanted().workers as u32);
        Ok(())
    }

    fn lease(
        &mut self,
        now: Millis,
        worker: WorkerId,
    ) -> Result<lease_reply::Lease, status::Error> {
        let Mode::Tasks(tasks) = &mut self.mode else { return Err(no_tasks()) };
        Ok(match tasks.lease(now, worker) {
            Lease::Leased(task) => lease_reply::Lease::Task(v1::Task {
                id: task.id,
                start: task.range.start,
                end: task.range.end,
                fence: task.fence,
                deadline_ms: task.deadline - now,
            }),
            Lease::Wait(wait) => lease_reply::Lease::WaitMs(wait),
            Lease::Done => lease_reply::Lease::Done(true),
        })
    }

    fn finish(&mut self, now: Millis, request: v1::FinishRequest) -> Result<bool, status::Error> {
        let Mode::Tasks(tasks) = &mut self.mode else { return Err(no_tasks()) };
        let finished = Finished::try_from(request)?;
        let (counted, effects) = tasks.finish(now, finished);
        self.effects.extend(effects);
        Ok(counted)
    }

    /// What a worker says about names.
    fn names(
        &mut self,
        now: Millis,
        request: v1::NamesRequest,
    ) -> Result<v1::NamesReply, status::Error> {
        let worker = WorkerId(request.worker);
        let ask = Ask::try_from(request)?;
        let known = self.cluster.workers.get(worker).is_some();
        let Mode::Leases(leases) = &mut self.mode else {
            return Err(status::Error::Unfit("this run has no names".into()));
        };
        let (told, effects) = leases.ask(now, worker, known, ask);
        self.effects.extend(effects);
        Ok(told.into())
    }
}

fn no_tasks() -> status::Error {
    status::Error::Unfit("this run has no tasks".into())
}
