//! Which processes run: how many are wanted, which slots are filled, and what an end means.

use std::collections::{BTreeMap, BTreeSet};

use super::Millis;
use crate::words::count;

/// How long a slot waits after a crash of its own making, doubled for each in a row.
const BACKOFF: Millis = 500;
const LONGEST_BACKOFF: Millis = 30_000;
/// So many processes of a slot may be killed in a row before they were of any use, and the next one is started at once.
/// With more of them it is no chance: the place may lack memory.
const CHANCE: u32 = 5;

/// Slots from this number on are for parameter servers.
pub const SERVER_SLOTS: u32 = 1 << 20;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// A worker.
    Worker(u32),
    /// A parameter server, and its place among them.
    Server(u32),
}

impl Seat {
    /// What a slot is for.
    pub fn of(slot: u32) -> Self {
        slot.checked_sub(SERVER_SLOTS).map_or(Seat::Worker(slot), Seat::Server)
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to, or had nothing to do any more.
    Finished,
    /// A signal, a preemption, the lack of memory: not its own doing.
    Killed(String),
    /// By itself, with this exit code or reason.
    Crashed(String),
    /// By itself, because of what it was given, as a file that is not there: another would find the same.
    Mistaken(String),
}

/// What the platform has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start a process for a slot.
    Start(u32),
    /// End the process of a slot.
    End(u32),
}

/// A place for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A process runs in it.
    Busy,
    /// Its process is being ended, and another takes its place.
    Ending,
    /// Its process is being ended, since fewer are wanted.
    Leaving,
    /// It is filled at this time.
    Free(Millis),
}

impl Slot {
    /// Whether its process was told to end.
    pub fn is_ending(self) -> bool {
        matches!(self, Slot::Ending | Slot::Leaving)
    }
}

/// The newest processes of a slot, as far as none of them was of any use.
#[derive(Clone, Copy, Debug, Default)]
struct InVain {
    /// So many were killed,
    killed: u32,
    /// so many were refused,
    refused: u32,
    /// and so many of these were needed.
    needed: u64,
}

/// The processes of a role.
#[derive(Clone, Debug)]
pub struct ProcessSet {
    /// The first slot.
    base: u32,
    wanted: u32,
    slots: BTreeMap<u32, Slot>,
    /// Not ended though fewer are wanted; none: all.
    kept: Option<BTreeSet<u32>>,
    crashes: u64,
    in_a_row: u32,
    max_crashes: u64,
    restarts: u64,
    last_crash: Option<String>,
    /// Slots whose process takes part.
    joined: BTreeSet<u32>,
    in_vain: BTreeMap<u32, InVain>,
    /// Whether training has gone on at some time: then what processes are given was right.
    worked: bool,
}

impl ProcessSet {
    /// So many processes; so many crashes of their own making are tolerated.
    pub fn new(wanted: u32, max_crashes: u64) -> Self {
        Self {
            base: 0,
            wanted,
            slots: BTreeMap::new(),
            kept: Some(BTreeSet::new()),
            crashes: 0,
            in_a_row: 0,
            max_crashes,
            restarts: 0,
            last_crash: None,
            joined: BTreeSet::new(),
            in_vain: BTreeMap::new(),
            worked: false,
        }
    }

    /// The same with slots for parameter servers.
    #[must_use]
    pub fn of_servers(self) -> Self {
        Self { base: SERVER_SLOTS, ..self }
    }

    /// Another number is wanted.
    pub fn scale(&mut self, wanted: u32) {
        self.wanted = wanted;
    }

    /// The processes of these slots have something to hand over: they are not ended because fewer are wanted.
    /// None: that is not known, and nobody is.
    pub fn keep(&mut self, slots: Option<BTreeSet<u32>>) {
        self.kept = slots;
    }

    /// A process that runs already, found when the master came back.
    pub fn found(&mut self, slot: u32) {
        self.slots.insert(slot, Slot::Busy);
    }

    /// How often a process was started again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The slots and what is in them.
    pub fn slots(&self) -> &BTreeMap<u32, Slot> {
        &self.slots
    }

    /// Training went on for a while: earlier crashes were not in a row.
    pub fn progressed(&mut self) {
        self.in_a_row = 0;
        self.worked = true;
        self.in_vain.values_mut().for_each(|ends| ends.needed = 0);
    }

    /// The process of a slot takes part in the run.
    pub fn joined(&mut self, slot: u32) {
        self.joined.insert(slot);
        self.in_vain.remove(&slot);
    }

    /// A process ended because the master had refused it, for this reason. That is no crash: whoever trains goes on
    /// without it, and another place may have what fits. Its slot waits longer each time, whatever the others do. The
    /// error, if it was needed and so were too many before it, is the run's end.
    pub fn refused(
        &mut self,
        now: Millis,
        slot: u32,
        reason: &str,
        is_needed: bool,
    ) -> Result<(), String> {
        // It counts here, and not among those that are killed.
        self.joined.insert(slot);
        self.ended(now, slot, Ended::Killed(reason.to_string()))?;
        let Some(Slot::Free(at)) = self.slots.get_mut(&slot) else { return Ok(()) };
        let ends = self.in_vain.entry(slot).or_default();
        *at = now + backoff(ends.refused);
        ends.refused += 1;
        ends.needed = if is_needed { ends.needed + 1 } else { 0 };
        if ends.needed <= self.max_crashes {
            return Ok(());
        }
        let times = count(ends.needed, "time");
        Err(format!(
            "workers were refused {times} in a row, and the run cannot go on without them; last: {reason}"
        ))
    }

    /// A process ended. The error, if too many ended by themselves, is the run's end.
    pub fn ended(&mut self, now: Millis, slot: u32, how: Ended) -> Result<(), String> {
        let before = self.slots.remove(&slot);
        if before == Some(Slot::Leaving) {
            // Nothing was lost: should it be wanted again by now, that is no restart.
            return Ok(());
        }
        let replaced = before == Some(Slot::Ending);
        if let Ended::Mistaken(reason) = &how
            && !self.worked
        {
            return Err(reason.clone());
        }
        let mut at = now;
        let has_joined = self.joined.remove(&slot);
        if matches!(how, Ended::Killed(_)) && !has_joined && !replaced {
            let ends = self.in_vain.entry(slot).or_default();
            at += ends.killed.checked_sub(CHANCE).map_or(0, backoff);
            ends.killed += 1;
        }
        if let (Ended::Crashed(reason) | Ended::Mistaken(reason), false) = (how, replaced) {
            self.crashes += 1;
            at += backoff(self.in_a_row);
            self.in_a_row += 1;
            self.last_crash = Some(reason);
        }
        self.slots.insert(slot, Slot::Free(at));
        match &self.last_crash {
            Some(reason) if self.crashes > self.max_crashes => {
                let who = if self.base == 0 { "workers" } else { "parameter servers" };
                let times = count(self.crashes, "time");
                Err(format!("{who} crashed {times}, last: {reason}"))
            }
            _ => Ok(()),
        }
    }

    /// A process hangs or straggles: it is ended, and its slot filled again if it is wanted.
    pub fn replace(&mut self, slot: u32) -> Option<Order> {
        let busy = self.slots.get(&slot) == Some(&Slot::Busy);
        let wanted = slot < self.base + self.wanted;
        busy.then(|| {
            self.slots.insert(slot, if wanted { Slot::Ending } else { Slot::Leaving });
            Order::End(slot)
        })
    }

    /// What to do now.
    pub fn orders(&mut self, now: Millis) -> Vec<Order> {
        let mut orders = Vec::new();
        let end = self.base + self.wanted;
        for slot in self.base..end {
            match self.slots.get(&slot) {
                None => orders.push(Order::Start(slot)),
                Some(Slot::Free(at)) if *at <= now => {
                    self.restarts += 1;
                    orders.push(Order::Start(slot));
                }
                Some(_) => continue,
            }
            self.slots.insert(slot, Slot::Busy);
        }
        for (slot, state) in self.slots.iter_mut().filter(|(slot, _)| **slot >= end) {
            let is_kept = self.kept.as_ref().is_none_or(|kept| kept.contains(slot));
            if *state == Slot::Busy && !is_kept {
                *state = Slot::Leaving;
                orders.push(Order::End(*slot));
            }
        }
        self.slots.retain(|slot, state| *slot < end || !matches!(state, Slot::Free(_)));
        orders
    }
}

/// The wait after so many in a row before this one.
fn backoff(before: u32) -> Millis {
    (BACKOFF << before.min(6)).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_ends_the_run_at_once_unless_it_has_worked_before() {
        let mistake = || Ended::Mistaken("no such file".to_string());
        let mut processes = ProcessSet::new(1, 5);
        processes.orders(0);
        assert_eq!(processes.ended(1, 0, mistake()), Err("no such file".to_string()));
        let mut processes = ProcessSet::new(1, 5);
        processes.orders(0);
        processes.progressed();
        assert_eq!(processes.ended(1, 0, mistake()), Ok(()), "its node may lack a volume");
        assert_eq!(processes.orders(600), [Order::Start(0)]);
    }

    #[test]
    fn a_killed_process_is_replaced_at_once_and_burns_no_retry() {
        let mut processes = ProcessSet::new(2, 0);
        assert_eq!(processes.orders(0), [Order::Start(0), Order::Start(1)]);
        for now in 1..50 {
            processes.joined(1);
            processes.ended(now, 1, Ended::Killed("SIGKILL".into())).expect("no retry is burnt");
            assert_eq!(processes.orders(now), [Order::Start(1)]);
        }
        assert_eq!(processes.restarts(), 49);
    }

    /// How long it takes until a slot is filled again.
    fn wait(processes: &mut ProcessSet, now: Millis, slot: u32) -> Millis {
        let starts = |wait: &Millis| processes.orders(now + wait) == [Order::Start(slot)];
        (0..=LONGEST_BACKOFF).step_by(500).find(starts).expect("it is filled again")
    }

    #[test]
    fn processes_that_are_killed_before_they_join_wait_when_it_is_no_chance() {
        let mut processes = ProcessSet::new(1, 0);
        processes.orders(0);
        let mut waits = Vec::new();
        for _ in 0..8 {
            processes.ended(0, 0, Ended::Killed("exit code 137".into())).expect("no crash");
            waits.push(wait(&mut processes, 0, 0));
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 500, 1_000, 2_000]);
        processes.joined(0);
        processes.ended(0, 0, Ended::Killed("SIGKILL".into())).expect("no crash");
        assert_eq!(wait(&mut processes, 0, 0), 0, "there is enough by now");
    }

    #[test]
    fn a_slot_that_is_refused_waits_longer_each_time_and_ends_nothing_while_others_train() {
        let mut processes = ProcessSet::new(2, 5);
        processes.orders(0);
        processes.joined(0);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..10 {
            processes.refused(now, 1, "another processor", false).expect("the other one trains");
            processes.progressed();
            waits.push(wait(&mut processes, now, 1));
            now += 60_000;
        }
        assert_eq!(waits[..7], [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
        assert_eq!(waits[7..], [30_000; 3]);
        let crash = || Ended::Crashed("exit code 101".into());
        processes.ended(now, 0, crash()).expect("the first crash");
        assert_eq!(wait(&mut processes, now, 0), 500, "none was in a row with it");
        processes.joined(1);
        processes.refused(now, 1, "another processor", false).expect("the other one trains");
        assert_eq!(wait(&mut processes, now, 1), 500, "one that fitted was between them");
    }

    #[test]
    fn a_run_that_has_nobody_but_refused_processes_ends_and_says_so() {
        let refuse = |processes: &mut ProcessSet| processes.refused(0, 0, "it is another", true);
        let mut processes = ProcessSet::new(1, 1);
        processes.orders(0);
        refuse(&mut processes).expect("another place may have what fits");
        wait(&mut processes, 0, 0);
        processes.progressed();
        refuse(&mut processes).expect("it has trained between them");
        wait(&mut processes, 0, 0);
        let told = "workers were refused 2 times in a row, and the run cannot go on without them; \
                    last: it is another";
        assert_eq!(refuse(&mut processes), Err(told.to_string()));
    }

    #[test]
    fn crashes_back_off_and_end_the_run() {
        let mut processes = ProcessSet::new(1, 1);
        processes.orders(0);
        processes.ended(0, 0, Ended::Crashed("exit code 101".into())).expect("one is tolerated");
        assert_eq!(processes.orders(BACKOFF - 1), []);
        assert_eq!(processes.orders(BACKOFF), [Order::Start(0)]);
        let error = processes.ended(900, 0, Ended::Crashed("exit code 101".into()));
        assert_eq!(error, Err("workers crashed 2 times, last: exit code 101".to_string()));
    }

    #[test]
    fn scaling_ends_the_last_and_starts_new_ones() {
        let mut processes = ProcessSet::new(3, 0);
        processes.orders(0);
        processes.scale(2);
        assert_eq!(processes.orders(1), [Order::End(2)]);
        processes.ended(2, 2, Ended::Crashed("was told to".into())).expect("asked for");
        processes.scale(4);
        assert_eq!(processes.orders(3), [Order::Start(2), Order::Start(3)]);
    }

    #[test]
    fn who_has_something_to_hand_over_is_ended_after_it() {
        let mut processes = ProcessSet::new(3, 0);
        processes.orders(0);
        processes.scale(1);
        processes.keep(None);
        assert_eq!(processes.orders(1), []);
        processes.keep(Some([0, 2].into()));
        assert_eq!(processes.orders(1), [Order::End(1)]);
        assert_eq!(processes.orders(2), []);
        processes.keep(Some([0].into()));
        assert_eq!(processes.orders(3), [Order::End(2)]);
    }

    #[test]
    fn one_that_is_wanted_again_while_it_leaves_is_started_but_no_restart() {
        let mut processes = ProcessSet::new(3, 0);
        processes.orders(0);
        processes.scale(2);
        assert_eq!(processes.orders(1), [Order::End(2)]);
        processes.scale(3);
        assert_eq!(processes.orders(2), []);
        processes.ended(3, 2, Ended::Killed("it left on request".into())).expect("asked for");
        assert_eq!(processes.orders(3), [Order::Start(2)]);
        assert_eq!(processes.restarts(), 0);
    }
}
