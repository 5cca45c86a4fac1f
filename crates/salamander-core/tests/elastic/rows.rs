//! A parameter server's process around its gate and the order of its steps: rows of tables, staged gradients, moves and
//! copies. What the rows hold is compared with what they have after as many steps in a run that nobody disturbs.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::asynchronous::{
    Envelope, Gate, HeldPartitions, Holds, Lineage, Resetting, StepOrder, spread,
};
use salamander_core::elastic::{Millis, Peer, WorkerId};
use salamander_core::progress::StepCount;

use crate::event::Event;
use crate::leaving::{LeaveMoment, ServerLeave};
use crate::simulation::say;
use crate::truth::{Content, Job, PARTITIONS};
use crate::world::World;

const BEAT: Millis = 120;
/// How long a server waits for another one's partitions, and when it asks again.
const HEARSAY: Millis = 900;
const AGAIN: Millis = 30;

/// What is in each partition.
pub(crate) type RowParts = BTreeMap<usize, Content>;

/// What a member asks a server for.
#[derive(Clone, Debug)]
pub(crate) enum RowAsk {
    /// Begin a history with the rows of a checkpoint, or with none.
    Begin { step: u64, mark: Option<String>, share: BTreeSet<usize> },
    /// Begin a history with what these servers hold.
    Move { step: u64, move_from: ServerMove, share: BTreeSet<usize> },
    /// All have what they get: forget what was put apart.
    Release,
    /// The rows after so many steps.
    Pull { step: u64 },
    /// Keep the gradients of these slices of the step after so many.
    Stage { step: u64, slices: BTreeMap<u32, u32> },
    /// Write the rows after so many steps to this checkpoint's folder.
    Copy { step: u64, id: String },
}

/// Where the rows of a move come from.
#[derive(Clone, Debug)]
pub(crate) struct ServerMove {
    pub(crate) lineage: Lineage,
    pub(crate) servers: Vec<WorkerId>,
}

/// Who asks: a member, in its call of this number, as the server of this place in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) worker: WorkerId,
    pub(crate) call: u64,
    pub(crate) at: usize,
}

/// What a member is answered.
#[derive(Clone, Debug)]
pub(crate) enum RowReply {
    Done,
    Rows(RowParts),
    Refused(String),
}

/// A history that a server begins.
struct Arriving {
    lineage: Lineage,
    from: ServerMove,
    wanted: BTreeSet<usize>,
    until: Millis,
    asker: Asker,
}

/// A process.
pub(crate) struct RowServer {
    pub(crate) seat: u32,
    gate: Gate,
    steps: StepOrder,
    parts: RowParts,
    /// What it held in the history before, for others.
    outgoing: RowParts,
    /// Records of each slice that is staged for the current step.
    staged: BTreeMap<u32, u32>,
    arriving: Option<Arriving>,
    /// Copies that were asked for; they are made once.
    saves: BTreeSet<String>,
    /// The master that it has told of itself.
    pub(crate) known_to: Option<usize>,
    /// It was asked to leave.
    pub(crate) leaving: Option<ServerLeave>,
    pub(crate) paused: bool,
    pub(crate) deferred: Vec<Event>,
}

/// The partitions of one of so many servers.
pub(crate) fn share(at: usize, servers: usize) -> BTreeSet<usize> {
    let owners = spread(PARTITIONS as u32, servers as u32);
    (0..PARTITIONS).filter(|part| owners[*part] as usize == at && at < servers).collect()
}

impl World {
    /// The platform starts a process, unless the seat is taken or not needed.
    pub(crate) fn start_server(&mut self, seat: u32) {
        self.starting.remove(&seat);
        if self.servers.values().any(|server| server.seat == seat) || self.ended_for_good() {
            return;
        }
        self.born += 1;
        let id = WorkerId(0x5e_0000_0000 | self.rng.below(0xff) << 16 | self.born);
        say!(self, "server {id} starts in seat {seat}");
        let fence = self.without_row_fence();
        let server = RowServer {
            seat,
            gate: Gate::new(id.0).without(fence),
            steps: StepOrder::at(StepCount(0)).without(fence),
            parts: RowParts::new(),
            outgoing: RowParts::new(),
            staged: BTreeMap::new(),
            arriving: None,
            saves: BTreeSet::new(),
            known_to: None,
            leaving: None,
            paused: false,
            deferred: Vec::new(),
        };
        self.servers.insert(id, server);
        self.server_beat(id);
    }

    /// A process ends; the platform may tell, and starts another if one is needed.
    pub(crate) fn end_server(&mut self, id: WorkerId) {
        if self.servers.remove(&id).is_some() {
            say!(self, "server {id} ends");
            if self.chance(0.7) {
                let delay = self.between(0, 50);
                self.after(delay, Event::ServerGone(id));
            }
        }
    }

    /// It looks for a master that does not know it yet.
    pub(crate) fn server_beat(&mut self, id: WorkerId) {
        self.after(BEAT, Event::ServerBeat(id));
        let newest = self.masters.len() - 1;
        let is_there = self.masters[newest].alive && self.masters[newest].paused.is_none();
        if is_there && self.server(id).known_to != Some(newest) {
            self.server(id).known_to = Some(newest);
            let delay = self.between(1, 40);
            self.after(delay, Event::ServerHello { master: newest, server: id });
        }
    }

    /// A master hears of a server.
    pub(crate) fn server_hello(&mut self, master: usize, id: WorkerId) {
        let Some(server) = self.servers.get(&id) else { return };
        let (now, seat) = (self.now, server.seat);
        let peer = Peer { id, endpoint: String::new() };
        self.masters[master].coordinator.server_up(now, seat, peer);
        self.hear_of_leave(master, id);
        self.perform(master, None);
    }

    /// The platform tells the newest master that a server has ended, if it listens.
    pub(crate) fn server_gone(&mut self, id: WorkerId) {
        let (last, now) = (self.masters.len() - 1, self.now);
        if self.masters[last].alive && self.masters[last].paused.is_none() {
            self.masters[last].coordinator.server_lost(now, id);
            self.perform(last, None);
        }
    }

    /// The platform runs as many servers as the newest master needs.
    pub(crate) fn look_after_servers(&mut self, master: usize) {
        let coordinator = &mut self.masters[master].coordinator;
        coordinator.forget_superfluous_servers();
        let needed = coordinator.needed_servers() as u32;
        let too_many = self.servers.iter().filter(|(_, server)| server.seat >= needed);
        let too_many: Vec<WorkerId> = too_many.map(|(id, _)| *id).collect();
        too_many.into_iter().for_each(|id| self.end_server(id));
        for seat in 0..needed {
            let is_taken = self.servers.values().any(|server| server.seat == seat);
            if !is_taken && self.starting.insert(seat) {
                let delay = self.between(20, 300);
                self.after(delay, Event::StartServer(seat));
            }
        }
    }

    pub(crate) fn server(&mut self, id: WorkerId) -> &mut RowServer {
        self.servers.get_mut(&id).expect("events of dead servers are dropped")
    }

    /// A request arrives.
    pub(crate) fn asked(&mut self, id: WorkerId, asker: Asker, lineage: Lineage, ask: RowAsk) {
        let order = Envelope { term: lineage.term(), to: id.0 };
        match ask {
            RowAsk::Begin { .. } | RowAsk::Move { .. } => {
                match self.server(id).gate.reset(order, lineage) {
                    Ok(Resetting::Done) => self.reply(asker, RowReply::Done),
                    Ok(Resetting::Begin) => self.begin_history(id, asker, lineage, ask),
                    Ok(Resetting::Again) => self.again(id, asker, lineage, ask),
                    Err(refused) => self.refuse(asker, refused.to_string()),
                }
            }
            ask => match self.server(id).gate.admit(lineage) {
                Ok(()) => self.serve(id, asker, ask),
                Err(refused) => self.refuse(asker, refused.to_string()),
            },
        }
    }

    /// The same reset comes again: it is under way, or has failed.
    fn again(&mut self, id: WorkerId, asker: Asker, lineage: Lineage, ask: RowAsk) {
        match &mut self.server(id).arriving {
            Some(arriving) if arriving.lineage == lineage => arriving.asker = asker,
            _ => self.begin_history(id, asker, lineage, ask),
        }
    }

    fn refuse(&mut self, asker: Asker, why: String) {
        self.stats.refused_rows += 1;
        self.reply(asker, RowReply::Refused(why));
    }

    /// An answer is on its way, and may get lost with its connection.
    fn reply(&mut self, asker: Asker, reply: RowReply) {
        let loss = self.mood.loss;
        if self.is_wild() && self.chance(loss) {
            return;
        }
        let delay = self.between(1, 12);
        self.after(delay, Event::Answer { asker, reply });
    }

    /// What is let in.
    fn serve(&mut self, id: WorkerId, asker: Asker, ask: RowAsk) {
        match ask {
            RowAsk::Pull { step } => match self.complete(id, step) {
                Ok(()) => {
                    let rows = self.server(id).parts.clone();
                    self.check_rows(id, step, &rows);
                    self.reply(asker, RowReply::Rows(rows));
                }
                Err(why) => self.refuse_step(asker, why),
            },
            RowAsk::Stage { step, slices } => {
                let server = self.server(id);
                match server.steps.accepts(StepCount(step)) {
                    Ok(is_wanted) => {
                        if is_wanted {
                            server.steps.stage();
                            server.staged.extend(slices);
                        }
                        self.reply(asker, RowReply::Done);
                    }
                    Err(apart) => self.refuse_step(asker, apart.to_string()),
                }
            }
            RowAsk::Copy { step, id: copy } => match self.complete(id, step) {
                Ok(()) => self.copy(id, asker, copy),
                Err(why) => self.refuse_step(asker, why),
            },
            RowAsk::Release => {
                self.server(id).outgoing.clear();
                self.reply(asker, RowReply::Done);
            }
            RowAsk::Begin { .. } | RowAsk::Move { .. } => {}
        }
    }

    fn refuse_step(&mut self, asker: Asker, why: String) {
        self.stats.out_of_step += 1;
        self.reply(asker, RowReply::Refused(why));
    }

    /// Brings the rows to the state after so many steps.
    fn complete(&mut self, id: WorkerId, step: u64) -> Result<(), String> {
        let job = self.job;
        let server = self.server(id);
        if !server.steps.advance(StepCount(step)).map_err(|apart| apart.to_string())? {
            return Ok(());
        }
        let (staged, done) = (std::mem::take(&mut server.staged), step.saturating_sub(1));
        for content in server.parts.values_mut() {
            *content = Job::rows_after(*content, done, &staged);
        }
        self.stats.rows_applied += 1;
        if staged != job.slices_of(done) {
            let what = format!("step {done} on server {id}: slices {staged:?}");
            self.truth.blame("a step of rows is applied whole", what);
        }
        Ok(())
    }

    /// Rows must be those of an undisturbed run.
    pub(crate) fn check_rows(&mut self, id: WorkerId, step: u64, rows: &RowParts) {
        let wrong =
            rows.iter().find(|(part, content)| Some(**content) != self.undisturbed(step, **part));
        if let Some((part, _)) = wrong {
            let what = format!("partition {part} of server {id} after {step} steps");
            self.truth.blame("rows are those of their step", what);
        }
    }

    /// A copy is of this moment, and is written while training goes on.
    fn copy(&mut self, id: WorkerId, asker: Asker, copy: String) {
        let server = self.server(id);
        if server.saves.insert(copy.clone()) {
            let parts = server.parts.clone();
            let slow = self.chance(0.1);
            let delay = self.between(5, if slow { 700 } else { 80 });
            self.after(delay, Event::RowsWritten { server: id, copy, parts });
        }
        self.reply(asker, RowReply::Done);
        self.leave_moment(LeaveMoment::Copying, id);
        self.strike_a_copier(id);
    }

    pub(crate) fn rows_written(&mut self, id: WorkerId, copy: String, parts: RowParts) {
        let folder = self.row_files.entry(copy).or_default();
        folder.written.insert(id);
        folder.parts.extend(parts);
    }

    /// Another history begins: nothing of the one before is let in any more.
    fn begin_history(&mut self, id: WorkerId, asker: Asker, lineage: Lineage, ask: RowAsk) {
        match ask {
            RowAsk::Begin { step, mark, share } => {
                let server = self.server(id);
                server.gate.hold(Holds::Unknown);
                (server.arriving, server.outgoing) = (None, RowParts::new());
                let delay = self.between(1, 40);
                self.after(
                    delay,
                    Event::RowsRead { server: id, asker, lineage, step, mark, share },
                );
            }
            RowAsk::Move { step, move_from, share } => {
                self.begin_move(id, asker, RowsMoving { lineage, step, from: move_from, share })
            }
            _ => {}
        }
    }

    /// The rows of a checkpoint are read, unless a newer history has begun meanwhile.
    pub(crate) fn rows_read(&mut self, id: WorkerId, asker: Asker, read: RowsOf) {
        let RowsOf { lineage, step, mark, share } = read;
        let fence = self.without_row_fence();
        if let Err(refused) = self.server(id).gate.continues(lineage) {
            return self.refuse(asker, refused.to_string());
        }
        let fresh = |part: &usize| Some((*part, self.undisturbed(0, *part)?));
        let parts: RowParts = match &mark {
            None => share.iter().filter_map(fresh).collect(),
            Some(mark) => match self.row_files.get(mark) {
                Some(folder) => {
                    let held = |part: &usize| Some((*part, *folder.parts.get(part)?));
                    share.iter().filter_map(held).collect()
                }
                None => return self.refuse(asker, format!("{mark} is gone")),
            },
        };
        self.check_rows(id, step, &parts);
        self.stats.rows_restored += 1;
        self.leave_moment(LeaveMoment::Reading, id);
        let server = self.server(id);
        (server.parts, server.staged) = (parts, BTreeMap::new());
        server.steps = StepOrder::at(StepCount(step)).without(fence);
        server.gate.hold(Holds::All(lineage));
        self.reply(asker, RowReply::Done);
    }

    fn begin_move(
        &mut self,
        id: WorkerId,
        asker: Asker,
        RowsMoving { lineage, step, from, share }: RowsMoving,
    ) {
        let fence = self.without_row_fence();
        self.stats.moves_begun += 1;
        let server = self.server(id);
        match server.gate.stock(from.lineage) {
            HeldPartitions::Whole if !server.parts.is_empty() => {
                if let Err(apart) = server.steps.must_be(StepCount(step)) {
                    return self.refuse_step(asker, apart.to_string());
                }
                server.steps.unstage();
                server.staged.clear();
                let held = std::mem::take(&mut server.parts);
                (server.parts, server.outgoing) =
                    held.into_iter().partition(|(part, _)| share.contains(part));
            }
            HeldPartitions::Part => {}
            HeldPartitions::Whole | HeldPartitions::Nothing => {
                (server.parts, server.outgoing) = (RowParts::new(), RowParts::new());
                server.staged.clear();
                server.steps = StepOrder::at(StepCount(step)).without(fence);
            }
        }
        server.gate.hold(Holds::Moving { from: from.lineage, to: lineage });
        let wanted = share.into_iter().filter(|part| !server.parts.contains_key(part)).collect();
        let until = self.now + HEARSAY;
        self.server(id).arriving = Some(Arriving { lineage, from, wanted, until, asker });
        self.seek(id, lineage);
        self.strike_a_mover(id);
    }

    /// Asks others for what it lacks, until it has it, or they are gone.
    pub(crate) fn seek(&mut self, id: WorkerId, lineage: Lineage) {
        let now = self.now;
        let server = self.server(id);
        let Some(arriving) = server.arriving.take_if(|arriving| arriving.lineage == lineage) else {
            return;
        };
        if server.gate.continues(lineage).is_err() {
            return;
        }
        if arriving.wanted.is_empty() {
            server.gate.hold(Holds::All(lineage));
            return self.reply(arriving.asker, RowReply::Done);
        }
        let owners = spread(PARTITIONS as u32, arriving.from.servers.len() as u32);
        let owner = |part: &usize| arriving.from.servers[owners[*part] as usize];
        let takes: Vec<(usize, WorkerId)> =
            arriving.wanted.iter().map(|part| (*part, owner(part))).collect();
        let is_lost =
            |(_, owner): &(usize, WorkerId)| *owner == id || !self.servers.contains_key(owner);
        if takes.iter().any(is_lost) || now > arriving.until {
            self.stats.moves_failed += 1;
            return self.reply(arriving.asker, RowReply::Refused("a server is lost".into()));
        }
        self.server(id).arriving = Some(arriving);
        for (part, owner) in takes {
            let delay = self.between(1, 20);
            self.after(delay, Event::Take { server: owner, by: id, lineage, part });
        }
        self.after(AGAIN, Event::Seek { server: id, lineage });
    }

    /// Another server wants a partition: it gets it if nothing can be staged for it here any more.
    pub(crate) fn take(&mut self, id: WorkerId, by: WorkerId, lineage: Lineage, part: usize) {
        let server = self.server(id);
        if server.gate.give(lineage).is_err() {
            return;
        }
        let Some(content) = server.outgoing.get(&part).copied() else { return };
        let step = server.steps.done().0;
        let delay = self.between(1, 30);
        self.after(delay, Event::Given { server: by, lineage, part, content, step });
    }

    pub(crate) fn given(
        &mut self,
        id: WorkerId,
        lineage: Lineage,
        part: usize,
        of: (u64, Content),
    ) {
        let (step, content) = of;
        let server = self.server(id);
        let is_newest = server.gate.continues(lineage).is_ok();
        let is_of_step = server.steps.must_be(StepCount(step)).is_ok();
        let arriving = server.arriving.as_mut().filter(|arriving| arriving.lineage == lineage);
        if let Some(arriving) = arriving.filter(|_| is_newest && is_of_step)
            && arriving.wanted.remove(&part)
        {
            server.parts.insert(part, content);
            self.stats.parts_moved += 1;
        }
    }
}

/// Which rows are read from a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct RowsOf {
    pub(crate) lineage: Lineage,
    pub(crate) step: u64,
    pub(crate) mark: Option<String>,
    pub(crate) share: BTreeSet<usize>,
}

/// Which rows come from other servers, and from which history.
struct RowsMoving {
    lineage: Lineage,
    step: u64,
    from: ServerMove,
    share: BTreeSet<usize>,
}

/// The rows' part of a checkpoint's folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowFolder {
    pub(crate) parts: RowParts,
    /// The servers that have written theirs.
    pub(crate) written: BTreeSet<WorkerId>,
}
