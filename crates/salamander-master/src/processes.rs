//! The processes of a run: which slots are filled, by whom, and what the attached platform is told to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use salamander_core::elastic::{
    Ended, Ending, Millis, Order, ProcessSet, Seat, Slot, Term, ToMember, WorkerId,
};
use salamander_proto::convert::{FromMaster, ProcessEnd};
use salamander_proto::v1;
use tracing::{debug, info, warn};

use crate::config::PlatformKind;
use crate::session::{ProcessSession, SessionId};

/// So many ends are told apart from ones that are told again.
const REMEMBERED: usize = 1_024;

/// Why a process does not take part.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// There are too few others to go on without it.
    pub(crate) is_needed: bool,
}

/// What is known of the process in a slot.
#[derive(Clone, Debug, Default)]
struct SlotProcess {
    pid: Option<u32>,
    worker: Option<WorkerId>,
    /// It ends for this, and not by itself.
    refused: Option<Refusal>,
    /// When an earlier master's process was found; it should be heard of soon.
    found: Option<Millis>,
}

/// An end that was acted on.
#[derive(Clone, Copy, Debug)]
struct TakenEnd {
    id: u64,
    slot: u32,
    pid: u32,
}

/// How often processes were started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restarts {
    pub(crate) workers: u64,
    pub(crate) servers: u64,
}

/// The set, and the platform that serves it.
pub(crate) struct Processes {
    kind: PlatformKind,
    workers: ProcessSet,
    servers: ProcessSet,
    processes: BTreeMap<u32, SlotProcess>,
    /// The newest ends that were taken: each can be told twice.
    ended: VecDeque<TakenEnd>,
    /// Slots whose process was ordered since the last one ended. The system may give it the same number.
    ordered: BTreeSet<u32>,
    platform: Option<ProcessSession>,
    /// What earlier masters counted.
    earlier_restarts: Restarts,
}

impl Processes {
    pub(crate) fn new(
        kind: PlatformKind,
        workers: ProcessSet,
        servers: ProcessSet,
        earlier_restarts: Restarts,
    ) -> Self {
        Self {
            kind,
            workers,
            servers,
            processes: BTreeMap::new(),
            ended: VecDeque::new(),
            ordered: BTreeSet::new(),
            platform: None,
            earlier_restarts,
        }
    }

    /// Whether a platform looks after them.
    pub(crate) fn are_served(&self) -> bool {
        self.kind == PlatformKind::Served
    }

    /// Workers of these slots are not ended because fewer are wanted; none: no worker is.
    pub(crate) fn keep(&mut self, slots: Option<BTreeSet<u32>>) {
        self.workers.keep(slots);
    }

    /// A platform attaches. What it does not have was lost on the way to it. Call after its unreceived ends were
    /// given to [`Processes::ended`].
    pub(crate) fn attach(
        &mut self,
        now: Millis,
        platform: ProcessSession,
        running: &[v1::Process],
        term: Term,
    ) {
        self.platform = Some(platform);
        self.tell(FromMaster::Welcome(term));
        let slots = self.workers.slots().iter().chain(self.servers.slots());
        let slots: Vec<(u32, Slot)> = slots.map(|(slot, state)| (*slot, *state)).collect();
        for (slot, state) in slots {
            let runs = running.iter().any(|process| process.slot == slot);
            if !runs && !matches!(state, Slot::Free(_)) {
                debug!(slot, "an order was lost on its way to the platform");
                self.processes.remove(&slot);
                // Cannot be too many crashes, since it is none.
                let _ = self.set(slot).ended(now, slot, Ended::Finished);
            }
        }
        for process in running {
            let known = self.processes.entry(process.slot).or_default();
            if known.pid != Some(process.pid) {
                let (pid, found) = (Some(process.pid), Some(now));
                *known = SlotProcess { pid, found, ..SlotProcess::default() };
            }
            if self.is_ending(process.slot) {
                self.tell(FromMaster::Order(Order::End(process.slot)));
            } else {
                self.set(process.slot).found(process.slot);
            }
        }
        info!(running = running.len(), "a platform is attached");
    }

    pub(crate) fn detach(&mut self, session: SessionId) {
        if self.platform.as_ref().is_some_and(|platform| platform.id == session) {
            self.platform = None;
            warn!("the platform is gone; waiting for it");
        }
    }

    /// A worker says which process it is.
    pub(crate) fn bind(&mut self, slot: u32, pid: u32, worker: WorkerId) {
        if self.lives(slot, pid) {
            let (pid, worker) = (Some(pid), Some(worker));
            let process = SlotProcess { pid, worker, ..SlotProcess::default() };
            self.processes.insert(slot, process);
            self.set(slot).joined(slot);
        }
    }

    /// A process is sent away, and ends for that.
    pub(crate) fn refuse(&mut self, slot: u32, pid: u32, refusal: Refusal) {
        if !self.lives(slot, pid) {
            return;
        }
        let known = self.processes.entry(slot).or_default();
        // Somebody may have started one by hand, beside that of the slot.
        if known.pid.is_none_or(|known| known == pid) {
            (known.pid, known.refused) = (Some(pid), Some(refusal));
        }
    }

    /// Whether a process that speaks is one of the platform's, and not one that has ended since.
    fn lives(&self, slot: u32, pid: u32) -> bool {
        let mut ended = self.ended.iter();
        let is_gone = ended.any(|end| (end.slot, end.pid) == (slot, pid));
        let is_new = self.ordered.contains(&slot) || !is_gone;
        self.kind == PlatformKind::Served && is_new
    }

    /// A process ended: who it was, and the run's end if there were too many crashes.
    pub(crate) fn ended(
        &mut self,
        now: Millis,
        end: ProcessEnd,
    ) -> (Option<WorkerId>, Result<(), String>) {
        let ProcessEnd { id, slot, pid, how } = end;
        if self.ended.iter().any(|taken| taken.id == id) {
            return (None, Ok(()));
        }
        self.ordered.remove(&slot);
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(TakenEnd { id, slot, pid });
        let process = self.processes.remove(&slot).unwrap_or_default();
        let worker = process.worker.filter(|_| process.pid == Some(pid));
        if let Some(Refusal { reason, is_needed }) =
            process.refused.filter(|_| process.pid == Some(pid))
        {
            let reason = format!("slot {slot}, process {pid}: {reason}");
            return (worker, self.set(slot).refused(now, slot, &reason, is_needed));
        }
        let crashed = |why: &str| Ended::Crashed(format!("slot {slot}, process {pid}: {why}"));
        let how = match how {
            // Otherwise a program that does nothing would be started over and over.
            Ended::Finished => crashed("it ended though the run goes on"),
            Ended::Crashed(reason) => crashed(&reason),
            Ended::Mistaken(why) => Ended::Mistaken(format!("slot {slot}, process {pid}: {why}")),
            killed @ Ended::Killed(_) => killed,
        };
        (worker, self.set(slot).ended(now, slot, how))
    }

    /// The platform has sent a message with this number. False: it is another one that speaks.
    pub(crate) fn received(&mut self, session: SessionId, number: u64) -> bool {
        let platform = self.platform.as_mut().filter(|platform| platform.id == session);
        platform.map(|platform| platform.received(number)).is_some()
    }

    /// Ends the process of a worker, so that another takes its slot. False if that is not in our hands.
    pub(crate) fn replace(&mut self, worker: WorkerId) -> bool {
        let slot = self.processes.iter().find(|(_, process)| process.worker == Some(worker));
        let Some((slot, _)) = slot else { return false };
        self.replace_slot(*slot)
    }

    /// Slots with a process of an earlier master that was not heard of since `before`.
    pub(crate) fn unheard(&self, before: Millis) -> Vec<u32> {
        let unheard = |process: &SlotProcess| process.found.is_some_and(|found| found <= before);
        self.processes.iter().filter(|(_, p)| unheard(p)).map(|(slot, _)| *slot).collect()
    }

    /// Whether the process of a slot is being ended.
    pub(crate) fn is_ending(&mut self, slot: u32) -> bool {
        self.set(slot).slots().get(&slot).is_some_and(|state| state.is_ending())
    }

    pub(crate) fn replace_slot(&mut self, slot: u32) -> bool {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.found = None;
        }
        let order = self.set(slot).replace(slot);
        order.map(|order| self.tell(FromMaster::Order(order))).is_some()
    }

    pub(crate) fn scale(&mut self, workers: u32) {
        self.workers.scale(workers);
    }

    pub(crate) fn scale_servers(&mut self, servers: u32) {
        self.servers.scale(servers);
    }

    pub(crate) fn progressed(&mut self) {
        self.workers.progressed();
        self.servers.progressed();
    }

    /// Restarts in the whole run.
    pub(crate) fn restarts(&self) -> Restarts {
        Restarts {
            workers: self.earlier_restarts.workers + self.workers.restarts(),
            servers: self.earlier_restarts.servers + self.servers.restarts(),
        }
    }

    fn set(&mut self, slot: u32) -> &mut ProcessSet {
        match Seat::of(slot) {
            Seat::Worker(_) => &mut self.workers,
            Seat::Server(_) => &mut self.servers,
        }
    }

    /// Gives out what is to be done; without a platform it waits.
    pub(crate) fn work(&mut self, now: Millis) {
        if self.kind == PlatformKind::ByHand || self.platform.is_none() {
            return;
        }
        let orders = [self.servers.orders(now), self.workers.orders(now)].concat();
        for order in orders {
            if let Order::Start(slot) = order {
                self.ordered.insert(slot);
            }
            debug!(?order, "told the platform");
            self.tell(FromMaster::Order(order));
        }
    }

    /// Tells the platform which ends were acted on.
    pub(crate) fn acknowledge(&mut self) {
        self.platform.take_if(|platform| !platform.acknowledge());
    }

    /// Tells the platform that the run is over.
    pub(crate) fn over(&mut self, ending: Ending) {
        self.tell(FromMaster::Member(ToMember::Ended(ending)));
    }

    /// Whether nothing is on its way to the platform.
    pub(crate) fn is_told(&self) -> bool {
        self.platform.as_ref().is_none_or(ProcessSession::is_idle)
    }

    fn tell(&mut self, message: FromMaster) {
        // A platform that does not take orders is as good as gone: it will attach again and say what it has.
        if self.platform.take_if(|platform| !platform.send(message.clone())).is_some() {
            warn!("cut the connection of a platform that takes no orders");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: u64, pid: u32) -> ProcessEnd {
        ProcessEnd { id, slot: 0, pid, how: Ended::Killed("SIGKILL".into()) }
    }

    fn one_worker(max_crashes: u64) -> Processes {
        let workers = ProcessSet::new(1, max_crashes);
        let servers = ProcessSet::new(0, max_crashes).of_servers();
        Processes::new(PlatformKind::Served, workers, servers, Restarts::default())
    }

    #[test]
    fn a_process_that_has_the_number_of_one_before_is_another() {
        let mut processes = one_worker(5);
        let (out, _orders) = tokio::sync::mpsc::channel(16);
        processes.attach(0, ProcessSession::new(SessionId(1), out), &[], Term(1));
        processes.work(0);
        processes.bind(0, 7, WorkerId(1));
        assert_eq!(processes.ended(10, end(1, 7)), (Some(WorkerId(1)), Ok(())));
        assert_eq!(processes.ended(10, end(1, 7)), (None, Ok(())), "told twice");
        processes.bind(0, 7, WorkerId(1));
        assert!(!processes.replace(WorkerId(1)), "a late greeting of a process that is gone");
        processes.work(60_000);
        processes.bind(0, 7, WorkerId(2));
        assert_eq!(processes.ended(60_010, end(2, 7)), (Some(WorkerId(2)), Ok(())));
        assert_eq!(processes.restarts().workers, 1);
        processes.work(120_000);
        assert_eq!(processes.restarts().workers, 2, "its slot is free again");
    }

    /// What no master has acknowledged is told as a platform attaches, and once more behind that.
    #[test]
    fn an_end_that_is_told_again_after_its_slot_was_filled_fills_it_once() {
        let mut processes = one_worker(5);
        assert_eq!(processes.ended(0, end(1, 7)), (None, Ok(())));
        let (out, _orders) = tokio::sync::mpsc::channel(16);
        processes.attach(0, ProcessSession::new(SessionId(1), out), &[], Term(2));
        processes.work(0);
        assert_eq!(processes.restarts().workers, 1);
        assert_eq!(processes.ended(1, end(1, 7)), (None, Ok(())));
        processes.work(60_000);
        assert_eq!(processes.restarts().workers, 1, "it was started again already");
    }

    #[test]
    fn a_process_that_ends_since_it_was_refused_has_not_crashed() {
        let mut processes = one_worker(0);
        let (out, _orders) = tokio::sync::mpsc::channel(64);
        processes.attach(0, ProcessSession::new(SessionId(1), out), &[], Term(1));
        let crash = |pid| {
            let how = Ended::Crashed("exit code 1".into());
            ProcessEnd { id: u64::from(pid), slot: 0, pid, how }
        };
        let refusal = |is_needed| Refusal { reason: "its program is another".into(), is_needed };
        for pid in 1..=10 {
            let now = u64::from(pid) * 60_000;
            processes.work(now);
            processes.refuse(0, pid, refusal(false));
            assert_eq!(processes.ended(now, crash(pid)), (None, Ok(())));
        }
        processes.work(660_000);
        // Of a process that somebody has started by hand with the same slot.
        processes.bind(0, 11, WorkerId(11));
        processes.refuse(0, 99, refusal(true));
        let (worker, verdict) = processes.ended(660_000, crash(11));
        assert_eq!(worker, Some(WorkerId(11)));
        assert!(verdict.expect_err("a crash").starts_with("workers crashed 1 time"));
    }
}
