//! Synchronous training: workers are members of generations. The rules are the coordinator's.

use salamander_core::elastic::{
    Action, Activation, Coordinator, Entry, Generation, MemberReport, Millis, Pace, Slow, Source,
    ToMember,
};
use salamander_core::words::count;

use salamander_proto::v1::ScaleRequest;

use super::leaving::LeavingServers;
use super::{Effect, Event, journal};

/// The membership, and who is a straggler.
pub(crate) struct Members {
    pub(crate) coordinator: Coordinator,
    pace: Pace,
    /// When the regroup that is under way began.
    regrouping: Option<Millis>,
    /// The newest generation that was told of.
    told: Generation,
    /// Parameter servers that wait for a checkpoint.
    leaving: LeavingServers,
}

impl Members {
    pub(crate) fn new(coordinator: Coordinator, pace: Pace) -> Self {
        let last = coordinator.run().history().activated.as_ref();
        let told = last.map_or_else(Generation::default, |(generation, _)| *generation);
        let leaving = LeavingServers::default();
        Self { coordinator, pace, regrouping: None, told, leaving }
    }

    pub(crate) fn step(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let coordinator = &mut self.coordinator;
        match event {
            Event::Tick => {
                coordinator.tick(now);
                if coordinator.run().ending().is_none() {
                    effects = self.exclude_the_slow(now);
                    if self.pace.is_stuck() {
                        self.coordinator.stuck(now);
                        let text = "all members wait for each other: they connect anew";
                        effects.push(Effect::Note(text.to_string()));
                    }
                }
            }
            Event::Joined(hello) => coordinator.hello(now, hello),
            Event::Beat(id, beat) => {
                coordinator.heard(now, id);
                if coordinator.members().iter().any(|(member, _)| *member == id) {
                    self.pace.beat(now, id, beat);
                }
            }
            Event::Said(id, message) => coordinator.message(now, id, message),
            Event::Reported(told) => {
                let MemberReport { version, generation, report } = *told;
                if coordinator.is_on_line(generation) {
                    let (line, version) = (coordinator.run().history().line, version.0);
                    effects.push(Effect::Report { line, version, report });
                }
            }
            Event::Failed(id, reason) => coordinator.failed(now, id, reason),
            Event::Disconnected(id) => coordinator.disconnected(now, id),
            Event::ServerLeaves(id) => {
                self.leaving.add(id);
                self.leaving.ask(|| true);
                let members = self.coordinator.members().into_iter();
                effects.extend(members.map(|(id, _)| Effect::Send(id, ToMember::Save)));
            }
            Event::Gone(id, reason) => {
                self.leaving.remove(id);
                coordinator.server_lost(now, id);
                coordinator.gone(now, id, reason);
            }
            Event::ServerUp(seat, server) => coordinator.server_up(now, seat, server),
            Event::Scale(ScaleRequest { workers, servers }) => {
                if let Some(workers) = workers {
                    coordinator.scale(now, workers as usize);
                }
                if let Some(servers) = servers {
                    coordinator.scale_servers(now, servers as usize);
                }
            }
            Event::Stop => coordinator.stop(),
            Event::End(ending) => coordinator.end(ending),
            Event::Silent(_) | Event::Lost(_) | Event::Server(..) | Event::Folder(_) => {}
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
                    let kept = matches!(entry, Entry::Checkpoint(_));
                    effects.push(journal(self.coordinator.run(), entry));
                    effects.extend(note);
                    if kept {
                        effects.extend(self.leaving.release());
                    }
                }
                Action::Send(id, message) => {
                    if let ToMember::Activate(activation) = &message
                        && activation.generation != self.told
                    {
                        self.told = activation.generation;
                        let took = now - self.regrouping.take().unwrap_or(now);
                        effects.push(begun(activation, took));
                    }
                    // Members of a new generation have not heard of it.
                    let asks = matches!(message, ToMember::Activate(_)) && !self.leaving.is_empty();
                    effects.push(Effect::Send(id, message));
                    effects.extend(asks.then_some(Effect::Send(id, ToMember::Save)));
                }
                Action::Dropped(id, reason) => {
                    self.pace.forget(id);
                    effects.push(Effect::Note(format!("worker {id} dropped: {reason}")));
                }
            }
        }
        effects
    }

    fn note(&mut self, now: Millis, entry: &Entry) -> Option<Effect> {
        match entry {
            Entry::Prepared(_) => {
                self.regrouping.get_or_insert(now);
                None
            }
            Entry::Moved(_) => {
                let servers = self.coordinator.run().history().servers.len() as u64;
                let servers = count(servers, "parameter server");
                let text = format!("the rows of tables are on {servers}");
                Some(Effect::Note(text))
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
    let source = match &activation.source {
        Source::Member { identity, .. } => {
            format!("version {} of worker {holder}", identity.version)
        }
        Source::Checkpoint { mark, .. } => match mark {
            Some(mark) => format!("checkpoint {}", mark.id),
            None => "a new model".to_string(),
        },
    };
    let generation = activation.generation;
    Effect::Note(format!(
        "generation {generation} began: {members}, from {source}, after {took} ms"
    ))
}
