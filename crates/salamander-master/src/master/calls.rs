//! What the master answers to single calls.

use salamander_core::asynchronous::LeaseAnswer;
use salamander_core::elastic::Millis;
use salamander_proto::convert::{Finished, WorkerLeaseAsk};
use salamander_proto::{status, v1};

use super::Master;
use crate::inbox::Call;
use crate::mode::{Mode, ModeEvent};

/// More than anybody has, and few enough to start.
const MOST_WORKERS: u32 = 10_000;

impl Master {
    pub(super) fn call(&mut self, now: Millis, call: Call) {
        match call {
            Call::Status(answer) => {
                let status = crate::status::of(self);
                self.cluster.answer(answer, Ok(status));
            }
            Call::Scale(request, answer) => {
                let done = self.scale(now, request);
                self.cluster.answer(answer, done.map(|()| v1::ScaleReply {}));
            }
            Call::MicroBatches(ask, answer) => {
                let told = self.names(now, ask);
                self.cluster.answer(answer, told);
            }
            Call::Stop(answer) => {
                self.step(now, ModeEvent::Stop);
                self.cluster.answer(answer, Ok(v1::StopReply {}));
            }
            Call::Lease(worker, answer) => {
                let lease = match &mut self.mode {
                    Mode::Tasks(tasks) => Ok(tasks.lease(now, worker)),
                    _ => Err(no_tasks()),
                };
                self.cluster.answer(answer, lease);
            }
            Call::Finish(finished, answer) => {
                let counted = self.finish(now, finished);
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
        // A platform may ask again for the same number.
        let servers = servers.filter(|servers| *servers as usize != wanted.servers);
        self.step(now, ModeEvent::Scale(v1::ScaleRequest { workers, servers }));
        self.cluster.processes.scale(self.mode.run().wanted().workers as u32);
        Ok(())
    }

    fn finish(&mut self, now: Millis, finished: Finished) -> Result<bool, status::Error> {
        let Mode::Tasks(tasks) = &mut self.mode else { return Err(no_tasks()) };
        let (counted, effects) = tasks.finish(now, finished);
        self.effects.extend(effects);
        Ok(counted)
    }

    fn names(&mut self, now: Millis, asked: WorkerLeaseAsk) -> Result<LeaseAnswer, status::Error> {
        let WorkerLeaseAsk { worker, ask } = asked;
        let known = self.cluster.workers.get(worker).is_some();
        let Mode::Leases(leases) = &mut self.mode else {
            return Err(status::Error::Unfit("this run has no names".into()));
        };
        let (told, effects) = leases.ask(now, worker, known, ask);
        self.effects.extend(effects);
        Ok(told)
    }
}

fn no_tasks() -> status::Error {
    status::Error::Unfit("this run has no tasks".into())
}
