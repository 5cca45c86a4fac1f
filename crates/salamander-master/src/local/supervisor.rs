//! The one thread that starts, signals and collects processes. It outlives them all: the system ends them with the
//! thread that started them, if they asked for that.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use salamander_core::elastic::{Ended, Ending, Order};
use salamander_core::words::count;
use salamander_proto::client::Ends;
use tracing::{info, warn};

use super::child::{Child, DEPOSED, meaning};
use super::{LocalOptions, LocalRole, SupervisorState};

/// How often deadlines are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The wait after a master's first crash, doubled with each.
const BACKOFF: Duration = Duration::from_millis(50);
/// A master that lived so long has not crashed in a row with the one before.
const STABLE: Duration = Duration::from_secs(10);

/// What the supervisor is told.
pub(super) enum SupervisorMessage {
    Order(Order),
    Exited(LocalRole, u32),
    Over(Ending),
    Shutdown,
}

/// The processes and what is to become of them.
pub(super) struct Supervisor {
    options: LocalOptions,
    shared: Arc<SupervisorState>,
    ends: Ends,
    orders: SyncSender<SupervisorMessage>,
    children: BTreeMap<LocalRole, Child>,
    /// When a master is started.
    master_at: Option<Instant>,
    masters: u64,
    master_crashes: u32,
    /// Numbers for processes that could not be started.
    failed: u32,
    leaving: bool,
}

impl Supervisor {
    pub(super) fn new(
        options: LocalOptions,
        shared: Arc<SupervisorState>,
        ends: Ends,
        orders: SyncSender<SupervisorMessage>,
    ) -> Self {
        let master_at = options.master.is_some().then(Instant::now);
        Self {
            options,
            shared,
            ends,
            orders,
            children: BTreeMap::new(),
            master_at,
            masters: 0,
            master_crashes: 0,
            failed: u32::MAX,
            leaving: false,
        }
    }

    /// Works until it was told to leave and nothing runs any more.
    pub(super) fn work(mut self, messages: &Receiver<SupervisorMessage>) {
        while !(self.leaving && self.children.is_empty()) {
            self.look();
            match messages.recv_timeout(LOOK) {
                Ok(SupervisorMessage::Order(order)) => self.order(order),
                Ok(SupervisorMessage::Exited(role, pid)) => self.exited(role, pid),
                Ok(SupervisorMessage::Over(ending)) => self.over(ending),
                Ok(SupervisorMessage::Shutdown) | Err(RecvTimeoutError::Disconnected) => {
                    self.leave()
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Starts a master whose time has come, and signals those that are late.
    fn look(&mut self) {
        let now = Instant::now();
        if self.master_at.is_some_and(|at| at <= now) {
            self.master_at = None;
            self.start_master();
        }
        let grace = self.options.grace;
        for child in self.children.values_mut() {
            if child.deadline.is_some_and(|deadline| deadline <= now) {
                child.end(grace);
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(slot) if !self.leaving && !self.is_over() => {
                let role = LocalRole::of(slot);
                if self.children.contains_key(&role) {
                    warn!(slot, "already running");
                    return;
                }
                let command = (self.options.process)(role);
                if let Err(reason) = self.start(role, command) {
                    self.failed -= 1;
                    self.ends.ended(slot, self.failed, Ended::Crashed(reason));
                }
            }
            Order::Start(_) => {}
            Order::End(slot) => self.end(LocalRole::of(slot)),
        }
    }

    fn start(&mut self, role: LocalRole, command: Command) -> Result<(), String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let orders = self.orders.clone();
        // The supervisor is there as long as its processes are.
        let ended = move |pid| drop(orders.send(SupervisorMessage::Exited(role, pid)));
        let child = Child::start(command, ended)
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        info!(?role, pid = child.id(), "started");
        self.shared.lock().running.push((role, child.id()));
        self.children.insert(role, child);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn start_master(&mut self) {
        let Some(command) = &mut self.options.master else { return };
        let command = command(self.masters);
        if self.masters > 0 {
            self.shared.lock().master_restarts += 1;
        }
        self.masters += 1;
        if let Err(reason) = self.start(LocalRole::Master, command) {
            self.master_crashed(reason);
        }
    }

    fn end(&mut self, role: LocalRole) {
        if let Some(child) = self.children.get_mut(&role)
            && !child.was_asked()
        {
            child.end(self.options.grace);
        }
    }

    /// A process has ended but is not collected yet.
    fn exited(&mut self, role: LocalRole, pid: u32) {
        if self.children.get(&role).is_none_or(|child| child.id() != pid) {
            return;
        }
        let Some(child) = self.children.remove(&role) else { return };
        let lived = child.since.elapsed();
        let log = (self.options.log)(role);
        let reaped = child.reap();
        let is_deposed = reaped.as_ref().is_ok_and(|status| status.code() == Some(DEPOSED));
        let how = match reaped {
            Ok(status) => meaning(status, log.as_deref()),
            Err(error) => Ended::Crashed(format!("it cannot be collected: {error}")),
        };
        info!(?role, pid, ?how, "ended");
        let mut state = self.shared.lock();
        // Under one lock, so that an inventory never has a process in neither list.
        if let Some(slot) = role.slot() {
            self.ends.ended(slot, pid, how.clone());
        }
        state.running.retain(|running| *running != (role, pid));
        drop(state);
        self.shared.changed.notify_all();
        if role == LocalRole::Master && is_deposed {
            // Started again it would take the run back, and both would do so for ever.
            let reason = "another master leads this run, from another machine";
            self.over(Ending::Failed(reason.into()));
            // Nobody tells them, and whatever they still do counts for nothing.
            self.children.values_mut().for_each(|child| child.kill(self.options.grace));
        } else if role == LocalRole::Master {
            self.master_ended(how, lived);
        }
    }

    fn master_ended(&mut self, how: Ended, lived: Duration) {
        if self.leaving || self.is_over() {
            return;
        }
        if lived > STABLE {
            self.master_crashes = 0;
        }
        match how {
            Ended::Killed(by) => {
                warn!(by, "the master was killed; starting another");
                self.master_at = Some(Instant::now());
            }
            // The next one reads how the run ended, and tells.
            Ended::Finished => self.master_crashed("it ended without saying how".into()),
            // Another master would find the same. One that comes after others has what they had.
            Ended::Mistaken(reason) if self.masters == 1 => self.give_up(Ending::Failed(reason)),
            Ended::Crashed(reason) | Ended::Mistaken(reason) => self.master_crashed(reason),
        }
    }

    fn master_crashed(&mut self, reason: String) {
        self.master_crashes += 1;
        let crashes = self.master_crashes;
        if crashes > self.options.max_master_crashes {
            let crashes = count(crashes.into(), "time");
            self.give_up(Ending::Failed(format!("the master crashed {crashes}: {reason}")));
            return;
        }
        warn!(crashes, reason, "the master crashed; starting another");
        self.master_at = Some(Instant::now() + BACKOFF * 2u32.pow(crashes.min(8)));
    }

    /// The run is over: everybody was told and ends by itself, or is ended.
    fn over(&mut self, ending: Ending) {
        let mut state = self.shared.lock();
        if state.ending.is_some() {
            return;
        }
        info!(?ending, "the run is over");
        state.ending = Some(ending);
        drop(state);
        self.master_at = None;
        let deadline = Instant::now() + self.options.grace;
        for child in self.children.values_mut() {
            child.deadline.get_or_insert(deadline);
        }
        self.shared.changed.notify_all();
    }

    /// The run is over and no master is left to say so: the others are asked to end.
    fn give_up(&mut self, ending: Ending) {
        self.over(ending);
        self.ask_all();
    }

    fn leave(&mut self) {
        self.leaving = true;
        self.master_at = None;
        self.ask_all();
    }

    fn ask_all(&mut self) {
        for child in self.children.values_mut().filter(|child| !child.was_asked()) {
            child.end(self.options.grace);
        }
    }

    fn is_over(&self) -> bool {
        self.shared.lock().ending.is_some()
    }
}
