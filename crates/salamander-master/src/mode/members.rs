//! Synchronous training: workers are members of generations. The rules are the coordinator's.

use salamander_core::elastic::{
    Action, Activation, Coordinator, Generation, MemberReport, MembershipEntry, Millis, Pace, Slow,
    StateSource, ToMember,
};
use salamander_core::note::{Note, NoteTopic};
use salamander_core::report::Report;
use salamander_core::words::count;

use salamander_proto::v1::ScaleRequest;

use super::{Effect, ModeEvent, journal};

/// The membership, and who is a straggler.
pub(crate) struct Members {
    pub(crate) coordinator: Coordinator,
    pace: Pace,
    /// When the regroup that is under way began.
    regrouping: Option<Millis>,
    /// The newest generation that was told of.
    told: Generation,
}

impl Members {
    pub(crate) fn new(coordinator: Coordinator, pace: Pace) -> Self {
        let last = coordinator.run().history().activated.as_ref();
        let told = last.map_or_else(Generation::default, |(generation, _)| *generation);
        Self { coordinator, pace, regrouping: None, told }
    }

    pub(crate) fn step(&mut self, now: Millis, event: ModeEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        let coordinator = &mut self.coordinator;
        match event {
            ModeEvent::Tick => {
                coordinator.tick(now);
                if coordinator.run().ending().is_none() {
                    effects = self.exclude_the_slow(now);
                    if self.pace.is_stuck() {
                        self.coordinator.stuck(now);
                        let text = "all members wait for each other: they connect anew";
                        effects.push(Effect::Note(text.into()));
                    }
                }
            }
            ModeEvent::Joined(hello) => coordinator.hello(now, hello),
            ModeEvent::Beat(id, beat) => {
                coordinator.heard(now, id);
                if coordinator.members().iter().any(|(member, _)| *member == id) {
                    self.pace.beat(now, id, beat);
                }
            }
            ModeEvent::Said(id, message) => coordinator.message(now, id, message),
            ModeEvent::Reported(told) => {
                let MemberReport { version, generation, report } = *told;
                if coordinator.is_on_line(generation) {
                    if matches!(report, Report::Step(_)) {
                        coordinator.worked(generation);
                    }
                    let line = coordinator.run().history().line;
                    effects.push(Effect::Report { line, version, report });
                }
            }
            ModeEvent::Failed(id, reason) => coordinator.failed(now, id, reason),
            ModeEvent::Disconnected(id) => coordinator.disconnected(now, id),
            ModeEvent::ServerLeaves(id) => coordinator.server_leaves(id),
            ModeEvent::Gone(id, reason) => {
                coordinator.server_lost(now, id);
                coordinator.gone(now, id, reason);
            }
            ModeEvent::ServerUp(seat, server) => coordinator.server_up(now, seat, server),
            ModeEvent::Scale(ScaleRequest { workers, servers }) => {
                if let Some(workers) = workers {
                    coordinator.scale(now, workers as usize);
                }
                if let Some(servers) = servers {
                    coordinator.scale_servers(now, servers as usize);
                }
            }
            ModeEvent::Stop => coordinator.stop(),
            ModeEvent::End(ending) => coordinator.end(ending),
            ModeEvent::Silent(_)
            | ModeEvent::Lost(_)
            | ModeEvent::Server(..)
            | ModeEvent::Folder(_) => {}
        }
        effects.extend(self.effects(now));
        effects
    }

    fn exclude_the_slow(&mut self, now: Millis) -> Vec<Effect> {
        let replaced = |(id, slow)| {
            let reason = match slow {
                Slow::Hangs => "it hangs",
                Slow::Straggles => "it is far slower than the others",
            };
            self.coordinator.exclude(now, id, reason);
            Effect::Replace(id, Some(reason))
        };
        self.pace.slow().into_iter().map(replaced).collect()
    }

    /// What is to be done, also at first.
    pub(crate) fn effects(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        for action in self.coordinator.take_actions() {
            match action {
                Action::Journal(entry) => {
                    let note = self.note(now, &entry);
                    effects.push(journal(self.coordinator.run(), entry));
                    effects.extend(note);
                }
                Action::Send(id, message) => {
                    if let ToMember::Activate(activation) = &message
                        && activation.generation != self.told
                    {
                        self.told = activation.generation;
                        self.pace.retain(|id| activation.members.iter().any(|peer| peer.id == id));
                        let took = now - self.regrouping.take().unwrap_or(now);
                        effects.push(begun(activation, took));
                    }
                    effects.push(Effect::Send(id, message));
                }
                Action::Dropped(id, reason) => {
                    self.pace.forget(id);
                    let text = format!("worker {id} dropped: {reason}");
                    let note = Note::about(NoteTopic::WorkerDropped(id), text);
                    effects.push(Effect::Note(note));
                }
            }
        }
        effects
    }

    fn note(&mut self, now: Millis, entry: &MembershipEntry) -> Option<Effect> {
        match entry {
            MembershipEntry::Prepared(_) => {
                self.regrouping.get_or_insert(now);
                None
            }
            MembershipEntry::Moved(_) => {
                let servers = self.coordinator.run().history().servers.len() as u64;
                let servers = count(servers, "parameter server");
                let text = format!("the rows of tables are on {servers}");
                Some(Effect::Note(text.into()))
            }
            _ => None,
        }
    }
}

/// What people are told of a generation that begins.
fn begun(activation: &Activation, took: Millis) -> Effect {
    let members = count(activation.members.len() as u64, "member");
    let holder = activation.members.get(activation.source.rank());
    let holder = holder.map(|peer| peer.id.to_string()).unwrap_or_default();
    let generation = activation.generation;
    let (source, topic) = match &activation.source {
        StateSource::Member { identity, .. } => {
            (format!("version {} of worker {holder}", identity.version), None)
        }
        StateSource::Checkpoint { mark: Some(mark), .. } => {
            (format!("checkpoint {}", mark.id), Some(NoteTopic::WentBack(generation)))
        }
        StateSource::Checkpoint { mark: None, .. } => ("a new model".to_string(), None),
    };
    let text = format!("generation {generation} began: {members}, from {source}, after {took} ms");
    Effect::Note(Note { text, topic })
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::{
        FromMember, Hello, History, Peer, RunState, Term, Timeouts, WantedProcesses, WorkerId,
    };

    use super::*;

    fn peer(id: u64) -> Peer {
        Peer { id: WorkerId(id), endpoint: String::new() }
    }

    /// A master that takes over a generation of one member and one parameter server.
    fn taken_over(generation: Generation) -> Members {
        let mut history = History::default();
        let begun = MembershipEntry::Activated {
            generation,
            members: vec![(WorkerId(1), None)],
            servers: vec![WorkerId(70)],
            rows: generation,
            destination: Vec::new(),
        };
        history.apply(generation.term, &MembershipEntry::Prepared(generation));
        history.apply(generation.term, &begun);
        let run = RunState::open(history, WantedProcesses { workers: 1, servers: 1 });
        Members::new(Coordinator::open(run, 1, Timeouts::default(), 0), Pace::new(60_000))
    }

    #[test]
    fn a_member_that_was_away_when_a_server_wanted_to_leave_is_asked_for_a_checkpoint_too() {
        let generation = Generation { term: Term(1), number: 1 };
        let mut members = taken_over(generation);
        let mut asks = |event| {
            let effects = members.step(1, event);
            let ask = |effect: &Effect| matches!(effect, Effect::Send(_, ToMember::Save));
            effects.iter().filter(|effect| ask(effect)).count()
        };
        let joined = |active| ModeEvent::Joined(Hello { peer: peer(1), active, slot: None });
        assert_eq!(asks(ModeEvent::ServerUp(0, peer(70))), 0);
        assert_eq!(asks(joined(Some(generation))), 0, "nobody wants to leave");
        assert_eq!(asks(ModeEvent::ServerLeaves(WorkerId(70))), 1);
        assert_eq!(asks(joined(Some(generation))), 1, "it may not have heard of it");
        assert_eq!(asks(ModeEvent::Said(WorkerId(1), FromMember::Holds(generation))), 0);
        assert_eq!(asks(joined(Some(generation))), 0, "the server may leave");
    }
}
