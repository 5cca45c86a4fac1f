//! The pods of a job's workers and parameter servers as a state machine: what the master orders and what Kubernetes
//! tells go in, what is to be done comes out. It has no clock and no connection of its own.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use salamander_core::elastic::Ended;

use super::memory::{MemoryGrowth, MemoryLimits};
use super::pod_state::{self, PodEnd, PodState};
use crate::names::PodRole;

mod action;
mod relist;

pub use action::{CreateError, PodAction, PodKey};

/// The wait after a pod could not be created, doubled for each in a row.
const BACKOFF: SignedDuration = SignedDuration::from_millis(250);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Creation {
    /// The server was asked.
    Pending { attempts: u32 },
    /// The server is asked again.
    Retry { at: Timestamp, attempts: u32 },
    /// The pod is there.
    Done,
}

/// The pod of a slot.
#[derive(Clone, Debug)]
struct SlotPod {
    process: u32,
    creation: Creation,
    ending: bool,
    last: Option<Pod>,
    waiting: Option<String>,
}

impl SlotPod {
    fn new(process: u32, creation: Creation, last: Option<Pod>) -> Self {
        Self { process, creation, ending: false, last, waiting: None }
    }

    fn key(&self, slot: u32) -> PodKey {
        PodKey { slot, process: self.process }
    }
}

/// What nodes said that have refused the pods of a slot, one after the other.
#[derive(Clone, Debug)]
struct NodeRefusals {
    in_a_row: u32,
    last: String,
}

/// How much memory the pods of each role get.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoleMemory {
    /// A worker.
    pub worker: MemoryLimits,
    /// A parameter server.
    pub server: MemoryLimits,
}

/// The pods of workers and parameter servers, by the slots that the master knows them by.
#[derive(Debug, Default)]
pub struct PodSet {
    job: String,
    slots: BTreeMap<u32, SlotPod>,
    workers: MemoryGrowth,
    servers: MemoryGrowth,
    refused: BTreeMap<u32, NodeRefusals>,
    newest: u32,
    last_crash: Option<String>,
    over: bool,
    closed: bool,
}

impl PodSet {
    /// Without pods; with the memory of a worker and of a parameter server.
    pub fn new(job: impl Into<String>, memory: RoleMemory) -> Self {
        let workers = MemoryGrowth::new(memory.worker);
        let servers = MemoryGrowth::new(memory.server);
        Self { job: job.into(), workers, servers, ..Self::default() }
    }

    /// All pods whose end was not reported.
    pub fn inventory(&self) -> Vec<PodKey> {
        self.slots.iter().map(|(slot, entry)| entry.key(*slot)).collect()
    }

    /// How many pods do not run yet, and what one of them waits for.
    pub fn waiting(&self) -> (u32, Option<String>) {
        let waits = |entry: &&SlotPod| {
            entry.creation != Creation::Done || entry.last.as_ref().is_none_or(|pod| !has_run(pod))
        };
        let waiting: Vec<&SlotPod> = self.slots.values().filter(waits).collect();
        let reason = waiting.iter().find_map(|entry| entry.waiting.clone());
        (waiting.len() as u32, reason)
    }

    /// How the last pod that broke did so.
    pub fn last_crash(&self) -> Option<&str> {
        self.last_crash.as_deref()
    }

    /// The run is over: pods end by themselves, and those that did are kept for their logs.
    pub fn over(&mut self) {
        self.over = true;
    }

    /// Nothing is started any more: another master will go on with what runs.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The master wants a slot to be filled.
    pub fn start(&mut self, now: Timestamp, slot: u32) -> Vec<PodAction> {
        if self.closed || self.over || self.slots.contains_key(&slot) {
            return Vec::new();
        }
        // Higher than every number before, also of masters whose pods are all gone.
        let process = (self.newest + 1).max(now.as_second() as u32);
        self.newest = process;
        let mut entry = SlotPod::new(process, Creation::Pending { attempts: 0 }, None);
        let key = entry.key(slot);
        if let Some(refused) = self.refused.get(&slot) {
            // The scheduler may choose the same node again, whose device or memory is still gone.
            let at = now + backoff(refused.in_a_row + 2);
            entry.creation = Creation::Retry { at, attempts: 0 };
            entry.waiting = Some(format!("a node refused its pod: {}", refused.last));
            self.slots.insert(slot, entry);
            return Vec::new();
        }
        self.slots.insert(slot, entry);
        vec![PodAction::Create { key, memory: self.memory(slot).grown() }]
    }

    /// The master does not want a slot to be filled any more.
    pub fn end(&mut self, slot: u32) -> Vec<PodAction> {
        let Some(entry) = self.slots.get_mut(&slot) else { return Vec::new() };
        entry.ending = true;
        let key = entry.key(slot);
        match entry.creation {
            Creation::Done => vec![self.delete(key, false)],
            Creation::Pending { .. } => Vec::new(),
            Creation::Retry { .. } => {
                self.finish(slot, PodEnd::Killed("it was not started".into()))
            }
        }
    }

    /// All that still runs is to end.
    pub fn end_all(&mut self) -> Vec<PodAction> {
        let slots: Vec<u32> = self.slots.keys().copied().collect();
        slots.into_iter().flat_map(|slot| self.end(slot)).collect()
    }

    /// The server answered.
    pub fn created(
        &mut self,
        now: Timestamp,
        key: PodKey,
        answer: Result<(), CreateError>,
    ) -> Vec<PodAction> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        // An event may have been faster than the answer.
        let Creation::Pending { attempts } = entry.creation else { return Vec::new() };
        match answer {
            Ok(()) => {
                (entry.creation, entry.waiting) = (Creation::Done, None);
                if entry.ending { vec![self.delete(key, false)] } else { Vec::new() }
            }
            Err(CreateError::Transient(_)) if entry.ending => {
                self.finish(key.slot, PodEnd::Killed("it was not started".into()))
            }
            Err(CreateError::Transient(reason)) => {
                let at = now + backoff(attempts);
                entry.creation = Creation::Retry { at, attempts: attempts + 1 };
                entry.waiting = Some(reason);
                Vec::new()
            }
            Err(CreateError::Permanent(reason)) => {
                let reason = format!("its pod cannot be created: {reason}");
                self.finish(key.slot, PodEnd::Crashed(reason))
            }
        }
    }

    /// A pod is there or has changed.
    pub fn seen(&mut self, now: Timestamp, pod: Pod) -> Vec<PodAction> {
        let Some(key) = PodKey::of(&pod) else { return Vec::new() };
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let mut actions = Vec::new();
        let state = pod_state::read(&pod, now);
        entry.last = Some(pod);
        if entry.creation != Creation::Done {
            entry.creation = Creation::Done;
            if entry.ending {
                actions.push(self.delete(key, false));
            }
        }
        match state {
            PodState::Waiting(reason) => self.wait(key.slot, reason),
            PodState::Running | PodState::Leaving => self.wait(key.slot, None),
            PodState::Lost(reason) => {
                actions.extend(self.finish(key.slot, PodEnd::Killed(reason)));
                actions.push(self.delete(key, true));
            }
            PodState::Ended(end) => {
                // Pods end well only with their run, whose end may be heard of later: their logs are kept.
                let kept = self.over || end == PodEnd::Finished;
                actions.extend(self.finish(key.slot, end));
                if !kept {
                    actions.push(self.delete(key, false));
                }
            }
        }
        actions
    }

    /// These take part now. Pods whose condition says something else are changed, again and again
    /// until it shows.
    pub fn members(&self, members: &[(u32, u32)]) -> Vec<PodAction> {
        let set = |(slot, entry): (&u32, &SlotPod)| {
            let pod = entry.last.as_ref().filter(|pod| has_run(pod) && !entry.ending)?;
            let member = members.contains(&(*slot, entry.process));
            let name = entry.key(*slot).name(&self.job);
            (pod_state::is_member(pod) != member).then_some(PodAction::SetMember { name, member })
        };
        self.slots.iter().filter_map(set).collect()
    }

    /// A pod is gone.
    pub fn deleted(&mut self, pod: &Pod) -> Vec<PodAction> {
        match PodKey::of(pod) {
            Some(key) if self.entry(key).is_some() => self.finish(key.slot, pod_state::gone(pod)),
            _ => Vec::new(),
        }
    }

    /// Time has passed: what failed is tried again, and pods that do not end are given up.
    pub fn tick(&mut self, now: Timestamp) -> Vec<PodAction> {
        let (workers, servers) = (self.workers.grown(), self.servers.grown());
        let mut actions = Vec::new();
        let mut leaving = Vec::new();
        for (slot, entry) in &mut self.slots {
            match (entry.creation, &entry.last) {
                (Creation::Retry { at, attempts }, _) if at <= now => {
                    entry.creation = Creation::Pending { attempts };
                    let memory = if is_server(*slot) { servers } else { workers };
                    actions.push(PodAction::Create { key: entry.key(*slot), memory });
                }
                (Creation::Done, Some(pod)) if pod.metadata.deletion_timestamp.is_some() => {
                    leaving.push(pod.clone());
                }
                _ => {}
            }
        }
        actions.extend(leaving.into_iter().flat_map(|pod| self.seen(now, pod)));
        actions
    }

    /// The pod of a slot, unless another one has taken its place.
    fn entry(&mut self, key: PodKey) -> Option<&mut SlotPod> {
        self.slots.get_mut(&key.slot).filter(|entry| entry.process == key.process)
    }

    fn wait(&mut self, slot: u32, reason: Option<String>) {
        if let Some(entry) = self.slots.get_mut(&slot) {
            entry.waiting = reason;
        }
    }

    fn delete(&self, key: PodKey, force: bool) -> PodAction {
        PodAction::Delete { name: key.name(&self.job), force }
    }

    fn memory(&mut self, slot: u32) -> &mut MemoryGrowth {
        if is_server(slot) { &mut self.servers } else { &mut self.workers }
    }

    /// A node that refuses a pod says so within a second: another one at once would be refused as soon.
    fn note_refusal(&mut self, slot: u32, end: &PodEnd, pod: Option<&Pod>) {
        let before = self.refused.remove(&slot).map_or(0, |refused| refused.in_a_row);
        if let PodEnd::Killed(reason) = end
            && pod.is_some_and(pod_state::was_refused)
        {
            let refused = NodeRefusals { in_a_row: before + 1, last: reason.clone() };
            self.refused.insert(slot, refused);
        }
    }

    fn finish(&mut self, slot: u32, end: PodEnd) -> Vec<PodAction> {
        let Some(entry) = self.slots.remove(&slot) else { return Vec::new() };
        self.note_refusal(slot, &end, entry.last.as_ref());
        let (role, index) = PodRole::of_slot(slot);
        let how = match end {
            PodEnd::Finished => Ended::Finished,
            PodEnd::Killed(reason) => Ended::Killed(reason),
            PodEnd::Crashed(reason) => Ended::Crashed(reason),
            PodEnd::Mistaken(reason) => Ended::Mistaken(reason),
            PodEnd::OutOfMemory => self.memory(slot).ran_out(role, entry.last.as_ref()),
        };
        if let Ended::Crashed(reason) | Ended::Mistaken(reason) = &how {
            self.last_crash = Some(format!("{role} {index}: {reason}"));
        }
        vec![PodAction::Report { key: entry.key(slot), how }]
    }
}

fn backoff(attempts: u32) -> SignedDuration {
    (BACKOFF * 2i32.pow(attempts.min(8))).min(LONGEST_BACKOFF)
}

fn has_run(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}

fn is_server(slot: u32) -> bool {
    PodRole::of_slot(slot).0 == PodRole::Ps
}

#[cfg(test)]
mod tests;
