//! Asynchronous training: what workers are answered, what servers are told, and what follows from it.

use std::path::PathBuf;

use salamander_core::elastic::{Ending, Lease as Task, Millis, WorkerId};
use salamander_core::push::{Ask, Checkpoint, Entry, Lease, Order, Process, Source, Told, Verdict};
use salamander_proto::{status, v1};
use tracing::{debug, error, info};

use super::Master;
use crate::asynchronous::{Saving, Validating};
use crate::config::Notes;
use crate::courier::{Errand, News};
use crate::inbox::Input;
use crate::record::Record;

/// The wait of a worker for which there is nothing to do.
const PAUSE: u64 = 50;
/// A run that was asked to stop does so after this time, whether a last checkpoint can be taken or not.
const STOP: Millis = 20_000;

impl Master {
    /// What a worker says about names.
    pub(super) fn names_call(
        &mut self,
        now: Millis,
        request: &v1::NamesRequest,
    ) -> Result<v1::NamesReply, status::Error> {
        let worker = WorkerId(request.worker);
        let ask: Ask = serde_json::from_str(&request.json)
            .map_err(|error| status::Error::Argument(format!("not about names: {error}")))?;
        let told = self.told(now, worker, ask)?;
        let json = serde_json::to_string(&told)
            .map_err(|error| status::Error::Argument(error.to_string()))?;
        Ok(v1::NamesReply { json })
    }

    fn told(&mut self, now: Millis, worker: WorkerId, ask: Ask) -> Result<Told, status::Error> {
        let (over, known) = (self.is_over(), self.workers.get(worker).is_some());
        let Some(names) = &mut self.names else {
            return Err(status::Error::Unfit("this run has no names".into()));
        };
        if over {
            return Ok(Told::Done);
        }
        Ok(match ask {
            // Its session comes in a moment; leases of those without one could not be taken back.
            Ask::Work { .. } if !known => Told::Wait(PAUSE),
            Ask::Work { most } => self.give_work(now, worker, most),
            Ask::Pushed { report, measured } => {
                let verdict = names.dispatcher.report(now, worker, &report);
                debug!(%worker, fence = report.fence, names = report.names.len(), ?verdict);
                if verdict == Verdict::Done {
                    self.processes.progressed();
                    for (name, measured) in report.names.iter().zip(&measured) {
                        let Some(names) = &mut self.names else { break };
                        let notes = names.books.measured(*name, measured);
                        self.heed(now, notes);
                    }
                }
                Told::Heard(verdict == Verdict::Done)
            }
            Ask::GiveBack { fence } => {
                names.dispatcher.give_back(worker, fence);
                if let Some(validating) = &mut names.validating {
                    validating.tasks.release(worker);
                }
                Told::Heard(true)
            }
            Ask::Validated { task, fence, part } => {
                let Some(validating) = &mut names.validating else { return Ok(Told::Heard(false)) };
                let counted = validating.tasks.finish(now, worker, task, fence);
                if counted {
                    validating.parts.insert(task, part);
                }
                self.try_close_epoch(now);
                Told::Heard(counted)
            }
        })
    }

    fn give_work(&mut self, now: Millis, worker: WorkerId, most: usize) -> Told {
        let servers: Vec<String> =
            self.coordinator.servers().map(|(_, peer)| peer.endpoint.clone()).collect();
        let Some(names) = &mut self.names else { return Told::Done };
        if names.leaving.is_some() {
            return Told::Wait(PAUSE);
        }
        let map = names.dispatcher.map();
        if let Some(validating) = &mut names.validating {
            return match validating.tasks.lease(now, worker) {
                Task::Leased(task) => Told::Validate {
                    task: task.id,
                    fence: task.fence,
                    batches: task.range,
                    map,
                    servers,
                },
                Task::Wait(wait) => Told::Wait(wait.min(PAUSE)),
                Task::Done => Told::Wait(PAUSE),
            };
        }
        match names.dispatcher.lease(now, worker, most) {
            Lease::Leased(task) => {
                let brief = names.books.brief();
                Told::Names { task, servers, brief }
            }
            Lease::Wait(wait, why) => {
                debug!(%worker, ?why, "there is nothing to do");
                Told::Wait(wait)
            }
            Lease::Done => Told::Wait(PAUSE),
        }
    }

    /// Takes the books up.
    pub(super) fn begin_names(&mut self, now: Millis, resumed: bool) {
        let (over, workers) = (self.is_over(), self.coordinator.wanted() as u64);
        let Some(names) = &mut self.names else { return };
        if over {
            return;
        }
        // What a killed run was writing is of no use; the checkpoint that counts stays.
        names.sweep();
        let notes = names.books.begin(workers);
        if resumed && let Some((version, ..)) = notes.reports.first() {
            // What is told from now on is new to those who watch.
            self.events.restored(*version);
        }
        if let Some(last) = names.dispatcher.history().checkpoint {
            // The master before may not have come to it.
            let files = names.files(last.id, last.map.servers);
            self.keep_names(&last, files);
        }
        self.heed(now, notes);
    }

    /// A parameter server is there, or there again.
    pub(super) fn meet_server(&mut self, seat: u32, incarnation: u64, endpoint: String) {
        let Some(names) = &mut self.names else { return };
        if let Err(error) = names.meet(Process { server: seat, incarnation }, endpoint) {
            self.fail(format!("cannot start a thread: {error}"));
        }
    }

    /// What servers and threads answer.
    pub(super) fn names_input(&mut self, now: Millis, input: Input) {
        let Some(names) = &mut self.names else { return };
        match input {
            Input::Server(process, news) => {
                // Words of a process that has ended are of no use.
                if names.courier(process).is_none() {
                    return;
                }
                match news {
                    News::State(state) => names.dispatcher.server_up(process.server, state),
                    News::Saved(id) => names.dispatcher.saved(process, id),
                    News::Trouble => names.send(process, Errand::Look),
                }
            }
            Input::Folder(made) => {
                names.keeping -= 1;
                match made {
                    Ok(id) => {
                        if names.keeping == 0 {
                            names.sweep();
                        }
                        self.events.kept(&id);
                        self.events.note(format!("checkpoint {id} kept"));
                    }
                    Err(reason) => self.fail(format!("a checkpoint cannot be kept: {reason}")),
                }
            }
            _ => {}
        }
        self.try_leave(now);
    }

    /// A worker will not report any more.
    pub(super) fn release_names(&mut self, worker: WorkerId) {
        let Some(names) = &mut self.names else { return };
        let back = names.dispatcher.release(worker);
        if back > 0 {
            info!(%worker, leases = back, "names are for others");
        }
        if let Some(validating) = &mut names.validating {
            validating.tasks.release(worker);
        }
    }

    /// A process has ended.
    pub(super) fn names_lost(&mut self, id: WorkerId) {
        self.release_names(id);
        if let Some(names) = &mut self.names {
            names.lost(id.0);
        }
    }

    pub(super) fn names_tick(&mut self, now: Millis) {
        if self.names.is_none() {
            return;
        }
        // A worker that is only slow loses nothing: what it pushes is applied once.
        let before = now.saturating_sub(self.silence);
        let silent = self.workers.iter().filter(|(_, worker)| worker.heard < before);
        let silent: Vec<WorkerId> = silent.map(|(id, _)| id).collect();
        silent.into_iter().for_each(|id| self.release_names(id));
        let Some(names) = &mut self.names else { return };
        for worker in names.dispatcher.tick(now) {
            info!(%worker, "a lease is over");
        }
        names.books.tick();
        self.version = self.version.max(names.dispatcher.progress().version);
        if let Some(saving) = &mut names.closing
            && !saving.asked
        {
            saving.asked = names.dispatcher.save();
        }
        self.try_leave(now);
    }

    /// The run is to end early, with a checkpoint that has everything that was done.
    pub(super) fn stop_names(&mut self, now: Millis) {
        self.events.note("an early end was asked for".into());
        self.leave(now, Ending::Interrupted);
    }

    /// The orders that are not entries of the journal, which go to disk first.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        let Some(names) = &mut self.names else { return Vec::new() };
        let epoch = names.dispatcher.epoch();
        let orders = names.dispatcher.take_orders();
        for order in &orders {
            if let Order::Journal(entry) = order {
                self.records.push(Record::Names { epoch, entry: entry.clone() });
            }
        }
        orders
    }

    pub(super) fn follow_order(&mut self, now: Millis, order: Order) {
        if self.is_over() {
            return;
        }
        let Some(names) = &mut self.names else { return };
        match order {
            Order::Journal(entry) => self.entered(&entry),
            Order::Place { to, placement, checkpoint } => {
                let reset = names.placing(to, placement, checkpoint.as_ref());
                names.send(to, Errand::Place { map: placement.map.number, reset });
            }
            Order::Settled { to, map } => names.send(to, Errand::Release { map }),
            Order::Save { to, id, map, .. } => {
                let path = names.file(id, to.server, names.dispatcher.map().servers);
                let folder = names.rows(id);
                if let Err(error) = std::fs::create_dir_all(&folder) {
                    return self.fail(format!("{}: {error}", folder.display()));
                }
                names.send(to, Errand::Save { map, id, path });
            }
            Order::Prune { to, below } => {
                let map = names.dispatcher.map().number;
                names.send(to, Errand::Prune { map, below });
            }
            Order::Dismiss { to, reason } => {
                self.events.note(format!("parameter server {} dismissed: {reason}", to.server));
                self.processes.scale_servers(self.needed_servers());
                self.processes.replace(WorkerId(to.incarnation));
            }
            Order::Validate { epoch } if names.books.is_closed(epoch) => {
                self.begin_epoch_after(epoch);
            }
            Order::Validate { epoch } => {
                if !names.validate(epoch) {
                    self.close_epoch(now, epoch, &[]);
                }
            }
            Order::End(ending) => {
                // Everything that was done is in a checkpoint, whose folder is being made.
                let leaving = names.leaving.get_or_insert_with(|| Saving::new(now, ending));
                leaving.saved = true;
                self.try_leave(now);
            }
        }
    }

    fn entered(&mut self, entry: &Entry) {
        let Some(names) = &mut self.names else { return };
        match entry {
            Entry::Kept(checkpoint) => {
                let files = names.files(checkpoint.id, checkpoint.map.servers);
                self.keep_names(checkpoint, files);
                self.saved_names();
            }
            Entry::Placed(placement) => {
                let (number, servers) = (placement.map.number, placement.map.servers);
                let moves = matches!(placement.source, Source::Servers(_));
                debug!(%number, servers, moves, "a map is in force");
                if moves {
                    let text = format!("partitions move to {servers} parameter servers");
                    self.events.note(text);
                }
            }
            Entry::Finished(_)
            | Entry::Opened
            | Entry::Resized(_)
            | Entry::Stopping
            | Entry::Resumed => {}
        }
    }

    /// Has a folder made of a checkpoint.
    fn keep_names(&mut self, checkpoint: &Checkpoint, files: Vec<PathBuf>) {
        let Some(names) = &mut self.names else { return };
        let keeping = names.books.keep(checkpoint, files);
        if let Err(error) = names.keep(keeping) {
            self.fail(format!("cannot start a thread: {error}"));
        }
    }

    /// A checkpoint counts: what waited for it goes on.
    fn saved_names(&mut self) {
        let Some(names) = &mut self.names else { return };
        if let Some(saving) = names.closing.take_if(|saving| saving.asked) {
            self.begin_epoch_after(saving.then);
        }
    }

    fn try_close_epoch(&mut self, now: Millis) {
        let Some(names) = &mut self.names else { return };
        let done = names.validating.take_if(|validating| validating.tasks.is_done());
        if let Some(Validating { epoch, parts, .. }) = done {
            let parts: Vec<_> = parts.into_values().collect();
            self.close_epoch(now, epoch, &parts);
        }
    }

    /// Enters the end of an epoch into the books.
    fn close_epoch(&mut self, now: Millis, epoch: u64, parts: &[serde_json::Value]) {
        let Some(names) = &mut self.names else { return };
        let Notes { reports, save, stop } = match names.books.close(epoch, parts) {
            Ok(notes) => notes,
            Err(reason) => return self.fail(reason),
        };
        if save && !stop {
            let mut saving = Saving::new(now, epoch);
            saving.asked = names.dispatcher.save();
            names.closing = Some(saving);
        }
        self.heed(now, Notes { reports, save: false, stop });
        if !save && !stop {
            self.begin_epoch_after(epoch);
        }
    }

    fn begin_epoch_after(&mut self, epoch: u64) {
        let Some(names) = &mut self.names else { return };
        if let Err(not_yet) = names.dispatcher.next_epoch(epoch) {
            self.events.note(not_yet.to_string());
        }
    }

    fn leave(&mut self, now: Millis, ending: Ending) {
        if let Some(names) = &mut self.names
            && names.leaving.is_none()
        {
            names.leaving = Some(Saving::new(now, ending));
            names.validating = None;
            names.dispatcher.stop();
        }
        self.try_leave(now);
    }

    /// Ends the run when everything that was done is in a folder.
    fn try_leave(&mut self, now: Millis) {
        let over = self.is_over();
        let Some(names) = &mut self.names else { return };
        let Some(leaving) = &mut names.leaving else { return };
        if over {
            return;
        }
        let late = now > leaving.since + STOP && leaving.then == Ending::Interrupted;
        if late && !leaving.saved {
            error!("the run stops without a last checkpoint: not all servers answer");
        }
        if (leaving.saved || late) && names.keeping == 0 {
            let ending = leaving.then.clone();
            let notes = names.books.end(ending == Ending::Interrupted);
            self.heed(now, notes);
            self.coordinator.end(ending);
        }
    }

    /// Does what the books want.
    pub(super) fn heed(&mut self, now: Millis, notes: Notes) {
        for (version, part, json) in notes.reports {
            let report = v1::Report { version, part, json: json.to_string() };
            if self.events.report(report) {
                self.version = self.version.max(version);
                self.mark_report();
            }
        }
        if let Some(names) = &mut self.names
            && notes.save
        {
            names.dispatcher.save();
        }
        if notes.stop {
            self.leave(now, Ending::Completed);
        }
    }
}
