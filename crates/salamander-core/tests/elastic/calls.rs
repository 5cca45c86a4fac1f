//! What a member asks servers for, in the order of the trainer: it meets the others, pulls, stages, waits until all of
//! that is kept, and gives; one of them has rows copied, moved and restored.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::asynchronous::Lineage;
use salamander_core::elastic::{
    Activation, CheckpointMark, FromMember, Generation, Millis, Peer, Version, WorkerId,
};

use crate::event::{Event, Word};
use crate::faults::Moment;
use crate::rows::{Asker, RowAsk, RowParts, RowReply, ServerMove, share};
use crate::simulation::say;
use crate::truth::{PARTITIONS, StateId};
use crate::world::{Guard, World};

/// How long a member asks before it gives its generation up.
const PATIENCE: Millis = 1_500;

/// The rows as a member of a generation sees them.
#[derive(Default)]
pub(crate) struct MemberRows {
    call: Option<RowCall>,
    /// The version at which all members met to bring the rows there,
    pub(crate) met: Option<Version>,
    /// and that at which this one's slices are kept.
    ready: Option<Version>,
    /// The rows are where the generation moves them to: said by the first member,
    moved: bool,
    /// and known to all.
    pub(crate) relocated: bool,
    /// It has left the generation's work.
    given_up: bool,
}

/// Something that a member asks all servers for.
struct RowCall {
    number: u64,
    generation: Generation,
    op: u64,
    purpose: CallPurpose,
    lineage: Lineage,
    servers: Vec<WorkerId>,
    waiting: BTreeSet<usize>,
    got: RowParts,
    until: Millis,
}

#[derive(Clone, Debug)]
enum CallPurpose {
    Begin(Option<CheckpointMark>),
    Pull,
    Stage,
    /// Bring the rows to the state that moves,
    Settle,
    /// move them,
    Move,
    /// and forget what was put apart.
    Release,
    Copy(RowSave),
}

/// A checkpoint that is being written.
#[derive(Clone, Debug)]
pub(crate) struct RowSave {
    pub(crate) mark: CheckpointMark,
    pub(crate) state: StateId,
    pub(crate) last: bool,
}

fn ids(peers: &[Peer]) -> Vec<WorkerId> {
    peers.iter().map(|peer| peer.id).collect()
}

impl MemberRows {
    pub(crate) fn works(&self) -> bool {
        !self.given_up
    }

    /// Who has the rows, and in which history.
    fn place(&self, activation: &Activation) -> (Vec<WorkerId>, Lineage) {
        match self.relocated {
            true => (ids(&activation.destination), activation.generation.into()),
            false => (ids(&activation.servers), activation.rows.into()),
        }
    }
}

impl World {
    pub(crate) fn is_hybrid(&self) -> bool {
        self.mood.servers > 0
    }

    /// Whether members have to meet before the rows are brought to their state.
    pub(crate) fn must_meet(&self, id: WorkerId, version: Version) -> bool {
        self.is_hybrid() && self.workers[&id].rows.met != Some(version) && self.has(Guard::Meeting)
    }

    /// Whether the rows of a member's generation have still to move.
    pub(crate) fn is_moving(&self, id: WorkerId) -> bool {
        let worker = &self.workers[&id];
        let moves = |activation: &Activation| !activation.destination.is_empty();
        worker.machine.activation().is_some_and(moves) && !worker.rows.relocated
    }

    /// Asks servers for what a member needs before it can give, if there is something. It gives when it has it.
    pub(crate) fn calls_first(&mut self, id: WorkerId, generation: Generation, op: u64) -> bool {
        let worker = &self.workers[&id];
        let Ok(identity) = worker.machine.ready(generation) else { return false };
        if !self.is_hybrid() || op == 0 || self.must_meet(id, identity.version) {
            return false;
        }
        if self.is_moving(id) {
            let leads = worker.rank() == Some(0) && !worker.rows.moved;
            if leads {
                self.call(id, op, CallPurpose::Settle);
            }
            return leads;
        }
        let pulls = self.gives_a_step(id) && worker.rows.ready != Some(identity.version);
        if pulls {
            self.moment(Moment::MetRows, id);
            if self.workers.get(&id).is_some_and(|worker| !worker.paused) {
                self.call(id, op, CallPurpose::Pull);
            } else if self.workers.contains_key(&id) {
                // It stalls right here, and pulls when it wakes.
                self.worker(id).deferred.push(Event::Computed { worker: id, generation, op });
            }
        }
        pulls
    }

    /// Asks for the rows of a checkpoint, before the rest of it is read.
    pub(crate) fn restore_rows(&mut self, id: WorkerId, mark: Option<CheckpointMark>) {
        self.call(id, 0, CallPurpose::Begin(mark));
    }

    /// Has the rows copied for a checkpoint.
    pub(crate) fn copy_rows(&mut self, id: WorkerId, save: RowSave) {
        self.call(id, 0, CallPurpose::Copy(save));
    }

    fn call(&mut self, id: WorkerId, op: u64, purpose: CallPurpose) {
        self.calls += 1;
        let (number, until) = (self.calls, self.now + PATIENCE);
        let Some(activation) = self.workers[&id].machine.activation().cloned() else { return };
        let generation = activation.generation;
        let (mut servers, mut lineage) = self.workers[&id].rows.place(&activation);
        if matches!(purpose, CallPurpose::Move | CallPurpose::Release) {
            let to = ids(&activation.destination);
            servers = if to.len() > servers.len() { to } else { servers };
            lineage = generation.into();
        }
        let waiting = (0..servers.len()).collect();
        let got = RowParts::new();
        let call =
            RowCall { number, generation, op, purpose, lineage, servers, waiting, got, until };
        self.worker(id).rows.call = Some(call);
        self.ask(id, number);
    }

    /// Asks those that have not answered, again and again.
    pub(crate) fn ask(&mut self, id: WorkerId, number: u64) {
        let now = self.now;
        let Some(call) = self.workers[&id].rows.call.as_ref().filter(|call| call.number == number)
        else {
            return;
        };
        if now > call.until {
            return self.end_call(id, Err("servers do not answer".to_string()));
        }
        let (lineage, servers) = (call.lineage, call.servers.clone());
        let waiting: Vec<usize> = call.waiting.iter().copied().collect();
        for at in waiting {
            let ask = self.request(id, at);
            let asker = Asker { worker: id, call: number, at };
            self.send_ask(servers[at], asker, lineage, ask);
        }
        let again = self.between(80, 200);
        self.after(again, Event::AskAgain { worker: id, call: number });
    }

    fn send_ask(&mut self, server: WorkerId, asker: Asker, lineage: Lineage, ask: RowAsk) {
        let (loss, strays) = (self.mood.loss, self.mood.strays);
        let cut = self.network.from_server.get(&(asker.worker, server));
        let is_cut = cut.is_some_and(|until| *until > self.now);
        let event = Event::Ask { server, asker, lineage, ask };
        // A request may have been on a connection that is lost, and come late, when it was asked again before.
        if self.is_wild() && self.chance(strays) {
            let late = self.between(20, 1_500);
            self.after(late, event.clone());
        }
        let is_lost = is_cut || self.is_wild() && self.chance(loss);
        if !is_lost {
            let delay = self.between(1, 12);
            self.after(delay, event);
        }
    }

    /// What the server of a place is asked.
    fn request(&self, id: WorkerId, at: usize) -> RowAsk {
        let worker = &self.workers[&id];
        let call = worker.rows.call.as_ref().expect("it asks");
        let step = self.truth.steps(worker.state);
        let activation = worker.machine.activation();
        let (before, after) = activation.map_or((Vec::new(), 0), |activation| {
            (ids(&activation.servers), activation.destination.len())
        });
        match &call.purpose {
            CallPurpose::Begin(mark) => {
                let state = mark.as_ref().and_then(|mark| self.store.get(&mark.id));
                let step = state.map_or(0, |(_, state)| self.truth.steps(*state));
                let mark = mark.as_ref().map(|mark| mark.id.clone());
                RowAsk::Begin { step, mark, share: share(at, call.servers.len()) }
            }
            CallPurpose::Pull | CallPurpose::Settle => RowAsk::Pull { step },
            CallPurpose::Stage => RowAsk::Stage { step, slices: self.own_slices(id, step) },
            CallPurpose::Move => {
                let lineage = activation.map(|activation| activation.rows).unwrap_or_default();
                let move_from = ServerMove { lineage: lineage.into(), servers: before };
                RowAsk::Move { step, move_from, share: share(at, after) }
            }
            CallPurpose::Release => RowAsk::Release,
            CallPurpose::Copy(save) => {
                RowAsk::Copy { step: self.truth.steps(save.state), id: save.mark.id.clone() }
            }
        }
    }

    fn own_slices(&self, id: WorkerId, step: u64) -> BTreeMap<u32, u32> {
        let worker = &self.workers[&id];
        let ranks = worker.machine.activation().map_or(1, |members| members.members.len());
        let own = self.job.own_slices(worker.rank().unwrap_or(0) as u32, ranks as u32);
        self.job.slices_of(step).into_iter().filter(|(k, _)| own.contains(k)).collect()
    }

    /// A server answers.
    pub(crate) fn answered(&mut self, asker: Asker, reply: RowReply) {
        let Asker { worker: id, call: number, at } = asker;
        let Some(call) = self.worker(id).rows.call.as_mut().filter(|call| call.number == number)
        else {
            return;
        };
        match reply {
            RowReply::Refused(why) => return self.end_call(id, Err(why)),
            RowReply::Rows(rows) if call.waiting.remove(&at) => call.got.extend(rows),
            RowReply::Rows(_) => {}
            RowReply::Done => {
                call.waiting.remove(&at);
            }
        }
        if call.waiting.is_empty() {
            self.end_call(id, Ok(()));
        }
    }

    /// All have answered, or one of them that it cannot be.
    fn end_call(&mut self, id: WorkerId, outcome: Result<(), String>) {
        let Some(call) = self.worker(id).rows.call.take() else { return };
        let RowCall { generation, op, purpose, got, .. } = call;
        if let CallPurpose::Copy(save) = purpose {
            return self.copied(id, save, outcome);
        }
        let is_current = self.workers[&id].machine.generation() == Some(generation);
        if !is_current {
            return;
        }
        if let Err(why) = outcome {
            return self.give_up(id, generation, &why);
        }
        match purpose {
            CallPurpose::Begin(mark) => {
                let delay = self.between(5, 60);
                self.after(delay, Event::Loaded { worker: id, generation, mark });
            }
            CallPurpose::Pull => self.pulled(id, generation, op, got),
            CallPurpose::Stage => self.staged(id, generation, op),
            CallPurpose::Settle => {
                self.moment(Moment::Moving, id);
                if self.workers.contains_key(&id) {
                    self.call(id, op, CallPurpose::Move);
                }
            }
            CallPurpose::Move => self.call(id, op, CallPurpose::Release),
            CallPurpose::Release => {
                self.worker(id).rows.moved = true;
                self.send_firmly(id, Word::Member(FromMember::Moved(generation)));
                self.contribute(id, generation, op);
            }
            CallPurpose::Copy(_) => {}
        }
    }

    /// The rows are there: the member computes, and has its gradients kept.
    fn pulled(&mut self, id: WorkerId, generation: Generation, op: u64, rows: RowParts) {
        if rows.len() != PARTITIONS {
            let what = format!("{id} got partitions {:?}", rows.keys().collect::<Vec<_>>());
            return self.truth.blame("every partition is somewhere", what);
        }
        self.call(id, op, CallPurpose::Stage);
        if !self.has(Guard::Settled) {
            self.staged(id, generation, op);
        }
    }

    /// The member's slices are kept.
    fn staged(&mut self, id: WorkerId, generation: Generation, op: u64) {
        let worker = self.worker(id);
        let Ok(identity) = worker.machine.ready(generation) else { return };
        worker.rows.ready = Some(identity.version);
        self.moment(Moment::Staged, id);
        if self.workers.get(&id).is_some_and(|worker| !worker.paused) {
            self.contribute(id, generation, op);
        } else if self.workers.contains_key(&id) {
            self.worker(id).deferred.push(Event::Computed { worker: id, generation, op });
        }
    }

    /// The rows cannot be reached: another try, in the next generation.
    fn give_up(&mut self, id: WorkerId, generation: Generation, why: &str) {
        say!(self, "{id} gives {generation} up: {why}");
        self.stats.rows_given_up += 1;
        let worker = self.worker(id);
        worker.rows.given_up = true;
        worker.busy = false;
        worker.machine.gave_up();
        self.act(id);
        self.progress(id, generation);
    }

    /// Servers have their copies, or not; training goes on either way, and what they write is waited for.
    fn copied(&mut self, id: WorkerId, save: RowSave, outcome: Result<(), String>) {
        let generation = save.mark.generation;
        self.after(0, Event::Applied { worker: id, generation });
        match outcome {
            Ok(()) => {
                let servers = self.workers[&id]
                    .machine
                    .activation()
                    .map(|activation| self.workers[&id].rows.place(activation).0);
                // A member that has left its group in between waits for nobody's part.
                let Some(servers) = servers.filter(|servers| !servers.is_empty()) else {
                    self.stats.saves_lost += 1;
                    return;
                };
                let delay = self.between(5, 60);
                self.after(delay, Event::AwaitRows { worker: id, save, servers });
            }
            Err(why) => self.give_up(id, generation, &why),
        }
    }

    /// Looks whether servers have written their parts. Only their end, or another history, ends the wait.
    pub(crate) fn await_rows(&mut self, id: WorkerId, save: RowSave, servers: Vec<WorkerId>) {
        let written = self.row_files.get(&save.mark.id).map(|folder| &folder.written);
        let has = |server: &WorkerId| written.is_some_and(|written| written.contains(server));
        if servers.iter().all(has) {
            let rows = self.row_files[&save.mark.id].parts.clone();
            if rows.len() != PARTITIONS {
                self.truth.blame("every partition is somewhere", save.mark.id.clone());
            }
            self.check_rows(id, self.truth.steps(save.state), &rows);
            let RowSave { mark, state, last } = save;
            return self.after(1, Event::Written { worker: id, mark, state, last });
        }
        let is_lost = |server: &WorkerId| !has(server) && !self.servers.contains_key(server);
        if servers.iter().any(is_lost) {
            say!(self, "{} is not written", save.mark.id);
            self.stats.saves_lost += 1;
            let generation = save.mark.generation;
            if save.last && self.workers[&id].machine.generation() == Some(generation) {
                self.give_up(id, generation, "a server is lost");
            }
            return;
        }
        self.after(40, Event::AwaitRows { worker: id, save, servers });
    }
}
