//! The pods of a job's workers and parameter servers as a state machine: what the master orders and what Kubernetes
//! tells go in, what is to be done comes out. It has no clock and no connection of its own.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use salamander_core::elastic::Ended;

use super::hunger::{Hunger, Memory};
use super::reasons::{self, End, Seen};
use crate::names::{self, Role};
use crate::objects::container_memory;

/// The wait after a pod could not be created, doubled for each in a row.
const BACKOFF: SignedDuration = SignedDuration::from_millis(250);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the pod of a slot.
    Create {
        /// The slot.
        slot: u32,
        /// The number of the pod.
        process: u32,
        /// Its memory in bytes, if it needs another than the job says.
        memory: Option<u64>,
    },
    /// Delete a pod; by force if nobody is there to confirm it.
    Delete {
        /// The pod.
        name: String,
        /// Do not wait for its node.
        force: bool,
    },
    /// Say on a pod whether it trains.
    Mark {
        /// The pod.
        name: String,
        /// It is one of those that train together.
        member: bool,
    },
    /// Tell the master.
    Report {
        /// The slot.
        slot: u32,
        /// The number of the pod.
        process: u32,
        /// How it ended.
        how: Ended,
    },
}

/// Why a pod could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It may work later: a quota, a server under load, a broken connection.
    Passing(String),
    /// It will not.
    Final(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The server was asked.
    Creating { attempts: u32 },
    /// The server is asked again.
    Again { at: Timestamp, attempts: u32 },
    /// It is there.
    Live,
}

#[derive(Clone, Debug)]
struct Place {
    process: u32,
    state: State,
    ending: bool,
    last: Option<Pod>,
    waiting: Option<String>,
}

/// The pods of workers and parameter servers, by the slots that the master knows them by.
#[derive(Debug)]
pub struct Fleet {
    job: String,
    places: BTreeMap<u32, Place>,
    workers: Hunger,
    servers: Hunger,
    newest: u32,
    last_crash: Option<String>,
    over: bool,
    closed: bool,
}

impl Fleet {
    /// Without pods; with the memory of a worker and of a parameter server.
    pub fn new(job: impl Into<String>, (worker, server): (Memory, Memory)) -> Self {
        Self {
            job: job.into(),
            places: BTreeMap::new(),
            workers: Hunger::new(worker),
            servers: Hunger::new(server),
            newest: 0,
            last_crash: None,
            over: false,
            closed: false,
        }
    }

    /// The (slot, number) of all pods whose end was not reported.
    pub fn inventory(&self) -> Vec<(u32, u32)> {
        self.places.iter().map(|(slot, place)| (*slot, place.process)).collect()
    }

    /// How many pods do not run yet, and what one of them waits for.
    pub fn waiting(&self) -> (u32, Option<String>) {
        let waits = |place: &&Place| {
            place.state != State::Live || place.last.as_ref().is_none_or(|pod| !has_run(pod))
        };
        let waiting: Vec<&Place> = self.places.values().filter(waits).collect();
        let reason = waiting.iter().find_map(|place| place.waiting.clone());
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

    /// Takes over the pods of an earlier master.
    pub fn adopt(&mut self, now: Timestamp, pods: Vec<Pod>) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut pods: Vec<(u32, u32, Pod)> = pods.into_iter().filter_map(numbered).collect();
        pods.sort_by_key(|(slot, process, _)| (*slot, *process));
        for (slot, process, pod) in pods {
            self.newest = self.newest.max(process);
            self.hunger(slot).grow_to(container_memory(&pod));
            let place = Place {
                process,
                state: State::Live,
                ending: false,
                last: Some(pod),
                waiting: None,
            };
            // Only the newest one of a slot counts; the end of others was told before.
            if let Some(older) = self.places.insert(slot, place) {
                actions.push(self.delete(slot, older.process, false));
            }
        }
        let adopted: Vec<(u32, u32, Pod)> = self
            .places
            .iter()
            .filter_map(|(slot, p)| Some((*slot, p.process, p.last.clone()?)))
            .collect();
        for (slot, process, pod) in adopted {
            // Pods end well only with their run, so that this one belongs to what the run was before it was resumed.
            if reasons::read(&pod, now) == Seen::Ended(End::Finished) {
                self.places.remove(&slot);
                actions.push(self.delete(slot, process, false));
            } else {
                actions.extend(self.seen(now, pod));
            }
        }
        actions
    }

    /// The master wants a slot to be filled.
    pub fn start(&mut self, now: Timestamp, slot: u32) -> Vec<Action> {
        if self.closed || self.over || self.places.contains_key(&slot) {
            return Vec::new();
        }
        // Higher than every number before, also of masters whose pods are all gone.
        let process = (self.newest + 1).max(now.as_second() as u32);
        self.newest = process;
        let state = State::Creating { attempts: 0 };
        let place = Place { process, state, ending: false, last: None, waiting: None };
        self.places.insert(slot, place);
        vec![Action::Create { slot, process, memory: self.hunger(slot).grown() }]
    }

    /// The master does not want a slot to be filled any more.
    pub fn end(&mut self, slot: u32) -> Vec<Action> {
        let Some(place) = self.places.get_mut(&slot) else { return Vec::new() };
        place.ending = true;
        let process = place.process;
        match place.state {
            State::Live => vec![self.delete(slot, process, false)],
            State::Creating { .. } => Vec::new(),
            State::Again { .. } => self.finish(slot, End::Killed("it was not started".into())),
        }
    }

    /// All that still runs is to end.
    pub fn end_all(&mut self) -> Vec<Action> {
        let slots: Vec<u32> = self.places.keys().copied().collect();
        slots.into_iter().flat_map(|slot| self.end(slot)).collect()
    }

    /// The server answered.
    pub fn created(
        &mut self,
        now: Timestamp,
        (slot, process): (u32, u32),
        answer: Result<(), Refusal>,
    ) -> Vec<Action> {
        let Some(place) = self.places.get_mut(&slot).filter(|p| p.process == process) else {
            return Vec::new();
        };
        // An event may have been faster than the answer.
        let State::Creating { attempts } = place.state else { return Vec::new() };
        match answer {
            Ok(()) => {
                (place.state, place.waiting) = (State::Live, None);
                if place.ending { vec![self.delete(slot, process, false)] } else { Vec::new() }
            }
            Err(Refusal::Passing(_)) if place.ending => {
                self.finish(slot, End::Killed("it was not started".into()))
            }
            Err(Refusal::Passing(reason)) => {
                let wait = (BACKOFF * 2i32.pow(attempts.min(8))).min(LONGEST_BACKOFF);
                place.state = State::Again { at: now + wait, attempts: attempts + 1 };
                place.waiting = Some(reason);
                Vec::new()
            }
            Err(Refusal::Final(reason)) => {
                self.finish(slot, End::Crashed(format!("its pod cannot be created: {reason}")))
            }
        }
    }

    /// A pod is there or has changed.
    pub fn seen(&mut self, now: Timestamp, pod: Pod) -> Vec<Action> {
        let Some((slot, process, pod)) = numbered(pod) else { return Vec::new() };
        let Some(place) = self.places.get_mut(&slot).filter(|p| p.process == process) else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        let seen = reasons::read(&pod, now);
        place.last = Some(pod);
        if place.state != State::Live {
            place.state = State::Live;
            if place.ending {
                actions.push(self.delete(slot, process, false));
            }
        }
        match seen {
            Seen::Waiting(reason) => self.wait(slot, reason),
            Seen::Running | Seen::Leaving => self.wait(slot, None),
            Seen::Lost(reason) => {
                actions.extend(self.finish(slot, End::Killed(reason)));
                actions.push(self.delete(slot, process, true));
            }
            Seen::Ended(end) => {
                actions.extend(self.finish(slot, end));
                if !self.over {
                    actions.push(self.delete(slot, process, false));
                }
            }
        }
        actions
    }

    /// These take part now. Pods that say something else about themselves are marked, and marked again
    /// until it shows.
    pub fn members(&self, members: &[(u32, u32)]) -> Vec<Action> {
        let mark = |(slot, place): (&u32, &Place)| {
            let pod = place.last.as_ref().filter(|pod| has_run(pod) && !place.ending)?;
            let member = members.contains(&(*slot, place.process));
            let name = self.name(*slot, place.process);
            (reasons::is_member(pod) != member).then_some(Action::Mark { name, member })
        };
        self.places.iter().filter_map(mark).collect()
    }

    /// A pod is gone.
    pub fn deleted(&mut self, pod: Pod) -> Vec<Action> {
        let Some((slot, process, pod)) = numbered(pod) else { return Vec::new() };
        match self.places.get(&slot) {
            Some(place) if place.process == process => self.finish(slot, reasons::gone(&pod)),
            _ => Vec::new(),
        }
    }

    /// All pods that there are, after events may have been missed.
    pub fn relisted(&mut self, now: Timestamp, pods: Vec<Pod>) -> Vec<Action> {
        let there: Vec<(u32, u32)> = pods
            .iter()
            .cloned()
            .filter_map(numbered)
            .map(|(slot, process, _)| (slot, process))
            .collect();
        let missed: Vec<(u32, Option<Pod>)> = self
            .places
            .iter()
            .filter(|(slot, place)| {
                place.state == State::Live && !there.contains(&(**slot, place.process))
            })
            .map(|(slot, place)| (*slot, place.last.clone()))
            .collect();
        let mut actions = Vec::new();
        for (slot, last) in missed {
            actions.extend(self.finish(slot, reasons::gone(&last.unwrap_or_default())));
        }
        actions.extend(self.strays(&pods));
        actions.extend(pods.into_iter().flat_map(|pod| self.seen(now, pod)));
        actions
    }

    /// Pods whose end was reported, but which could not be deleted then.
    fn strays(&self, pods: &[Pod]) -> Vec<Action> {
        let known = self.inventory();
        let stray = |pod: &Pod| {
            let leaves = pod.metadata.deletion_timestamp.is_some();
            let (slot, process, _) = numbered(pod.clone())?;
            let stray = !known.contains(&(slot, process)) && !leaves && process <= self.newest;
            stray.then(|| self.delete(slot, process, false))
        };
        if self.over { Vec::new() } else { pods.iter().filter_map(stray).collect() }
    }

    /// Time has passed: what failed is tried again, and pods that do not end are given up.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Action> {
        let grown = (self.workers.grown(), self.servers.grown());
        let mut actions = Vec::new();
        let mut leaving = Vec::new();
        for (slot, place) in &mut self.places {
            match (place.state, &place.last) {
                (State::Again { at, attempts }, _) if at <= now => {
                    place.state = State::Creating { attempts };
                    let (slot, process) = (*slot, place.process);
                    let memory = if is_server(slot) { grown.1 } else { grown.0 };
                    actions.push(Action::Create { slot, process, memory });
                }
                (State::Live, Some(pod)) if pod.metadata.deletion_timestamp.is_some() => {
                    leaving.push(pod.clone());
                }
                _ => {}
            }
        }
        actions.extend(leaving.into_iter().flat_map(|pod| self.seen(now, pod)));
        actions
    }

    fn wait(&mut self, slot: u32, reason: Option<String>) {
        if let Some(place) = self.places.get_mut(&slot) {
            place.waiting = reason;
        }
    }

    fn delete(&self, slot: u32, process: u32, force: bool) -> Action {
        Action::Delete { name: self.name(slot, process), force }
    }

    fn name(&self, slot: u32, process: u32) -> String {
        let (role, index) = Role::of_slot(slot);
        names::pod_name(&self.job, role, index, process)
    }

    fn hunger(&mut self, slot: u32) -> &mut Hunger {
        if is_server(slot) { &mut self.servers } else { &mut self.workers }
    }

    fn finish(&mut self, slot: u32, end: End) -> Vec<Action> {
        let Some(place) = self.places.remove(&slot) else { return Vec::new() };
        let (role, index) = Role::of_slot(slot);
        let how = match end {
            End::Finished => Ended::Finished,
            End::Killed(reason) => Ended::Killed(reason),
            End::Crashed(reason) => Ended::Crashed(reason),
            End::OutOfMemory => self.hunger(slot).ran_out(role, place.last.as_ref()),
        };
        if let Ended::Crashed(reason) = &how {
            self.last_crash = Some(format!("{role} {index}: {reason}"));
        }
        vec![Action::Report { slot, process: place.process, how }]
    }
}

fn has_run(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}

/// The slot and number of a pod that the master ordered.
fn numbered(pod: Pod) -> Option<(u32, u32, Pod)> {
    let labels = pod.labels();
    let role = Role::parse(labels.get(names::ROLE)?)?;
    let slot = role.slot(labels.get(names::INDEX)?.parse().ok()?)?;
    let process = labels.get(names::PROCESS)?.parse().ok()?;
    Some((slot, process, pod))
}

fn is_server(slot: u32) -> bool {
    Role::of_slot(slot).0 == Role::Ps
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
