//! What the master answers to single calls.

use salamander_core::elastic::{Ending, Lease, Millis, Phase, ToMember, WorkerId};
use salamander_proto::v1::lease_reply;
use salamander_proto::{status, v1};

use super::Master;
use crate::inbox::{Answer, Input};
use crate::record::Record;

/// More than anybody has, and few enough to start.
const MOST_WORKERS: u32 = 10_000;

impl Master {
    pub(super) fn call(&mut self, now: Millis, call: Input) {
        match call {
            Input::Status(answer) => {
                let json = crate::status::json(self).to_string();
                self.answer(answer, Ok(v1::StatusReply { json }));
            }
            Input::Scale(request, answer) => {
                let done = self.scale(now, request);
                self.answer(answer, done.map(|()| v1::ScaleReply {}));
            }
            Input::Names(request, answer) => {
                let told = self.names_call(now, &request);
                self.answer(answer, told);
            }
            Input::Stop(answer) => {
                match self.names {
                    Some(_) => self.stop_names(now),
                    None => self.coordinator.stop(),
                }
                self.answer(answer, Ok(v1::StopReply {}));
            }
            Input::Lease(request, answer) => {
                let lease = self.lease(now, WorkerId(request.worker));
                self.answer(answer, lease.map(|lease| v1::LeaseReply { lease: Some(lease) }));
            }
            Input::Finish(request, answer) => {
                let counted = self.finish(now, request);
                self.answer(answer, counted.map(|counted| v1::FinishReply { counted }));
            }
            _ => {}
        }
    }

    pub(super) fn fail(&mut self, reason: String) {
        self.coordinator.end(Ending::Failed(reason));
    }

    /// What workers are told when the run is over.
    pub(super) fn ending(&self) -> Option<ToMember> {
        match self.coordinator.phase() {
            Phase::Ended(ending) => Some(ToMember::Ended(ending.clone())),
            _ => None,
        }
    }

    /// Answers once everything before it is on disk.
    fn answer<T: Send + 'static>(&mut self, to: Answer<T>, answer: Result<T, status::Error>) {
        // Whoever asked may have gone.
        self.answers.push(Box::new(move || drop(to.send(answer))));
    }

    fn scale(&mut self, now: Millis, request: v1::ScaleRequest) -> Result<(), status::Error> {
        let v1::ScaleRequest { workers, servers } = request;
        for (what, number) in [("workers", workers), ("parameter servers", servers)] {
            if let Some(number) = number.filter(|number| !(1..=MOST_WORKERS).contains(number)) {
                let text = format!("{number} {what} cannot be; from 1 to {MOST_WORKERS} can");
                return Err(status::Error::Argument(text));
            }
        }
        if self.is_over() {
            return Err(status::Error::Unfit("the run is over".into()));
        }
        if servers.is_some() && self.coordinator.wanted_servers() == 0 {
            return Err(status::Error::Unfit("the run has no parameter servers".into()));
        }
        if let Some(workers) = workers {
            self.coordinator.scale(now, workers as usize);
            self.processes.scale(workers);
        }
        // A platform may ask again for the same number.
        let other =
            servers.filter(|servers| *servers as usize != self.coordinator.wanted_servers());
        if let Some(servers) = other {
            self.coordinator.scale_servers(now, servers as usize);
            if let Some(names) = &mut self.names {
                names.dispatcher.resize(servers);
            }
        }
        Ok(())
    }

    fn lease(
        &mut self,
        now: Millis,
        worker: WorkerId,
    ) -> Result<lease_reply::Lease, status::Error> {
        let over = self.is_over();
        let Some(tasks) = &mut self.tasks else { return Err(no_tasks()) };
        if over {
            return Ok(lease_reply::Lease::Done(true));
        }
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
        let worker = WorkerId(request.worker);
        let Some(tasks) = &mut self.tasks else { return Err(no_tasks()) };
        if let Some(reason) = request.error {
            self.fail(format!("task {}: {reason}", request.task));
            return Ok(false);
        }
        let json: serde_json::Value = serde_json::from_str(&request.result).map_err(|error| {
            status::Error::Argument(format!("the result of task {}: {error}", request.task))
        })?;
        let counted = tasks.finish(now, worker, request.task, request.fence);
        if counted {
            self.records.push(Record::Finished { task: request.task, result: request.result });
            self.events.result(request.task, &json);
        }
        Ok(counted)
    }
}

fn no_tasks() -> status::Error {
    status::Error::Unfit("this run has no tasks".into())
}
