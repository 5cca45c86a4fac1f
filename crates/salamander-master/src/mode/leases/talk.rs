//! What workers ask for and are answered.

use salamander_core::asynchronous::{Lease, LeaseAnswer, LeaseAsk, ReportVerdict};
use salamander_core::course::Next;
use salamander_core::elastic::{Lease as Task, Millis, WorkerId};
use tracing::debug;

use super::Leases;
use crate::mode::Effect;

/// The wait of a worker for which there is nothing to do.
const PAUSE: u64 = 50;

impl Leases {
    /// What a worker is answered, and what follows. Only those that are `known` get work: leases of those without a
    /// session could not be taken back.
    pub(crate) fn ask(
        &mut self,
        now: Millis,
        worker: WorkerId,
        known: bool,
        ask: LeaseAsk,
    ) -> (LeaseAnswer, Vec<Effect>) {
        let told = match ask {
            _ if self.is_over() => LeaseAnswer::Done,
            // Its session comes in a moment.
            LeaseAsk::Work { .. } if !known => LeaseAnswer::Wait(PAUSE),
            LeaseAsk::Work { most } => {
                let answer = self.give_work(now, worker, most);
                self.hangs.answered(now, &answer);
                answer
            }
            LeaseAsk::Pushed { report, measured } => {
                let verdict = self.dispatcher.report(now, worker, &report);
                debug!(%worker, fence = report.fence, names = report.names.len(), ?verdict);
                if verdict == ReportVerdict::Done {
                    self.effects.push(Effect::Progressed);
                    for (name, measured) in report.names.iter().zip(&measured) {
                        let reports = self.course.measured(now, *name, measured);
                        self.report(reports);
                    }
                }
                LeaseAnswer::Heard(verdict == ReportVerdict::Done)
            }
            LeaseAsk::GiveBack { fence } => {
                self.dispatcher.give_back(worker, fence);
                if let Some(validating) = &mut self.validating {
                    validating.tasks.release(worker);
                }
                LeaseAnswer::Heard(true)
            }
            LeaseAsk::Validated { task, fence, part } => {
                let Some(validating) = &mut self.validating else {
                    return (LeaseAnswer::Heard(false), Vec::new());
                };
                let counted = validating.tasks.finish(now, worker, task, fence);
                if counted {
                    self.validated(now, task, part);
                }
                LeaseAnswer::Heard(counted)
            }
        };
        (told, self.settle(now))
    }

    fn give_work(&mut self, now: Millis, worker: WorkerId, most: usize) -> LeaseAnswer {
        if self.leaving.is_some() || self.leaving_servers.holds() {
            return LeaseAnswer::Wait(PAUSE);
        }
        let servers = self.run.servers().map(|(_, server)| server.endpoint.clone()).collect();
        let map = self.dispatcher.map();
        if let Some(validating) = &mut self.validating {
            return match validating.tasks.lease(now, worker) {
                Task::Leased(task) => LeaseAnswer::Validate {
                    task: task.id,
                    fence: task.fence,
                    batches: task.range,
                    map,
                    servers,
                },
                Task::Wait(wait) => LeaseAnswer::Wait(wait.min(PAUSE)),
                Task::Done => LeaseAnswer::Wait(PAUSE),
            };
        }
        let drains = self.course.next() == Next::Validate && !self.course.state().ends_epoch();
        if drains || self.awaited.is_some() {
            return LeaseAnswer::Wait(PAUSE);
        }
        match self.dispatcher.lease(now, worker, most) {
            Lease::Leased(task) => {
                LeaseAnswer::Leased { task, servers, brief: self.course.brief() }
            }
            Lease::Wait(wait, why) => {
                debug!(%worker, ?why, "there is nothing to do");
                LeaseAnswer::Wait(wait)
            }
            Lease::Done => LeaseAnswer::Wait(PAUSE),
        }
    }
}
