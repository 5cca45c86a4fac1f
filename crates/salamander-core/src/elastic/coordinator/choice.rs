//! Who is in the next generation, and whose state survives.

use super::{Coordinator, KnownWorker, Phase};
use crate::elastic::{Fence, Generation, Holding, Identity, Millis, StateSource, WorkerId};

/// What a worker has promised to the generation that is being formed.
pub(super) struct Promised {
    pub(super) id: WorkerId,
    pub(super) holding: Holding,
    /// Whether its state may be chosen.
    pub(super) eligible: bool,
}

impl Promised {
    /// The state that may be chosen.
    pub(super) fn state(&self) -> Option<Identity> {
        self.holding.identity.filter(|_| self.eligible)
    }
}

impl Coordinator {
    /// The state that survives, and whether some member has to receive it.
    pub(super) fn choose(&self, promised: &[Promised]) -> (StateSource, bool) {
        let states = promised.iter().enumerate();
        let states = states.filter_map(|(rank, promised)| Some((rank, promised.state()?)));
        // Of equal ones the first, so that rank 0 stays the source where it can.
        let best = states.reduce(|best, next| {
            let order = |identity: Identity| (identity.version, identity.generation);
            if order(next.1) > order(best.1) { next } else { best }
        });
        match best {
            Some((rank, identity)) => {
                let differs = |promised: &Promised| promised.holding.identity != Some(identity);
                (StateSource::Member { rank, identity }, promised.iter().any(differs))
            }
            None => {
                let mark = self.run.history.checkpoint.clone();
                (StateSource::Checkpoint { rank: 0, mark }, promised.len() > 1)
            }
        }
    }

    pub(super) fn eligible(&self, id: WorkerId, holding: Holding) -> bool {
        if self.without == Some(Fence::Lineage) {
            return holding.identity.is_some();
        }
        // A member has only a part of the state: rows that were on a lost server are gone with it.
        if !self.same_servers() && self.without != Some(Fence::Servers) {
            return false;
        }
        let Some((last, members)) = &self.run.history.activated else { return false };
        members.get(&id).is_some_and(|promised| {
            let unchanged = promised.is_some() && holding.identity == *promised;
            holding.confirmed == Some(*last) || unchanged
        })
    }

    /// Workers that could be in the next generation.
    pub(super) fn candidates(&self) -> Vec<WorkerId> {
        let usable = |worker: &&KnownWorker| worker.connected && worker.excluded.is_none();
        self.workers.values().filter(usable).map(|worker| worker.peer.id).collect()
    }

    /// Those that will be: members first, in their order, so that ranks move little; then newcomers. The platform ends
    /// the processes of the highest slots when fewer are wanted, so these are not among them, unless there are too few
    /// others or none of the others has the state.
    pub(super) fn chosen(&self) -> Vec<WorkerId> {
        let stay = self.staying();
        let join = self.candidates().into_iter().filter(|id| !self.is_member(*id));
        let all = stay.iter().copied().chain(join);
        let (leaving, mut chosen): (Vec<_>, Vec<_>) = all.partition(|id| self.is_leaving(*id));
        let missing = self.least().saturating_sub(chosen.len());
        chosen.extend(leaving.into_iter().take(missing));
        chosen.truncate(self.run.wanted.workers);
        if !chosen.iter().any(|id| self.holds(*id))
            && let Some(holder) = stay.into_iter().find(|id| self.holds(*id))
        {
            // One that has to go is a member once more, so that another has the state before it goes.
            if !self.is_leaving(holder) {
                chosen.truncate(self.run.wanted.workers - 1);
            }
            chosen.push(holder);
        }
        chosen
    }

    /// Whether its process is to be ended, since fewer are wanted.
    pub(super) fn is_leaving(&self, id: WorkerId) -> bool {
        let slot = self.workers.get(&id).and_then(|worker| worker.slot);
        slot.is_some_and(|slot| slot as usize >= self.run.wanted.workers)
    }

    /// Members of the last generation that could be in the next one.
    pub(super) fn staying(&self) -> Vec<WorkerId> {
        let candidates = self.candidates();
        self.run.history.order.iter().copied().filter(|id| candidates.contains(id)).collect()
    }

    /// Whether a worker has promised a state that may be chosen.
    pub(super) fn holds(&self, id: WorkerId) -> bool {
        self.promised(id).is_some_and(|holding| self.eligible(id, holding))
    }

    /// What a worker has promised to the generation that is being formed.
    pub(super) fn promised(&self, id: WorkerId) -> Option<Holding> {
        let (generation, holding) = self.workers.get(&id)?.promise?;
        (self.phase == Phase::Preparing(generation)).then_some(holding)
    }

    /// Who has to answer yet. Members are waited for even where fewer are wanted: they may have the state.
    pub(super) fn unpromised(&self) -> Vec<WorkerId> {
        let chosen = self.chosen();
        let others = self.staying().into_iter().filter(|id| !chosen.contains(id));
        let asked = chosen.iter().copied().chain(others);
        asked.filter(|id| self.promised(*id).is_none()).collect()
    }

    /// Who had the time to answer and did not, and whether it is because it is busy: that is waited for longer.
    pub(super) fn overdue(&self, now: Millis) -> Vec<(WorkerId, bool)> {
        let Phase::Preparing(generation) = self.phase else { return Vec::new() };
        let waits = now < self.since + self.timeouts.apply && self.without != Some(Fence::Busy);
        let is_busy = |id: WorkerId| {
            self.workers.get(&id).is_some_and(|worker| worker.busy == Some(generation))
        };
        let unpromised = self.unpromised().into_iter().map(|id| (id, is_busy(id)));
        unpromised.filter(|(_, is_busy)| !(*is_busy && waits)).collect()
    }

    /// How many are enough: never more than are wanted.
    pub fn least(&self) -> usize {
        self.min.min(self.run.wanted.workers)
    }

    /// Whether a member of the last generation is away and may come back.
    pub(super) fn awaits(&self) -> bool {
        let away = |worker: &KnownWorker| !worker.connected && worker.excluded.is_none();
        self.run.history.order.iter().any(|id| self.workers.get(id).is_some_and(away))
    }

    pub(super) fn is_member(&self, id: WorkerId) -> bool {
        self.run.history.order.contains(&id)
    }

    /// Whether nothing newer has begun.
    pub fn is_current(&self, generation: Generation) -> bool {
        self.run.history.activated.as_ref().is_some_and(|(last, _)| *last == generation)
    }
}
