//! What is still to be trained, and how often each trial was started again.

use std::collections::{BTreeMap, VecDeque};

use salamander_search::{Instruction, Search, TrialAction, TrialId, TrialState};

use crate::Error;
use crate::search::folders::TrialFolders;

/// What is still to be done.
#[derive(Default)]
pub(super) struct TrialQueue {
    pub(super) queue: VecDeque<TrialId>,
    pub(super) restarts: BTreeMap<TrialId, TrialRestarts>,
    /// The trial that a copy's checkpoints began with.
    origins: BTreeMap<TrialId, TrialId>,
}

/// How often a trial was started again, and why.
#[derive(Default)]
pub(super) struct TrialRestarts {
    pub(super) failures: u64,
    pub(super) kills: u64,
    pub(super) system: u64,
}

impl TrialQueue {
    pub(super) fn origin(&self, trial: TrialId) -> TrialId {
        self.origins.get(&trial).copied().unwrap_or(trial)
    }

    /// Puts what is to be trained into the queue; copies are made at once, while their source stands
    /// still.
    pub(super) fn take(
        &mut self,
        folders: &TrialFolders<'_>,
        search: &Search,
        actions: Vec<TrialAction>,
    ) -> Result<(), Error> {
        for action in &actions {
            if let Instruction::Copy { from, until } = action.what {
                let origin = self.origin(from);
                self.origins.insert(action.trial, origin);
                // A copy begins anew, also when what it takes the place of had failed too often.
                self.restarts.remove(&action.trial);
                folders.copy(action.trial, from, until)?;
            }
        }
        for action in actions {
            self.queue.retain(|queued| *queued != action.trial);
            match action.what {
                Instruction::Create { .. }
                | Instruction::Train { .. }
                | Instruction::Copy { .. } => self.queue.push_back(action.trial),
                Instruction::Pause | Instruction::Stop => {}
            }
        }
        // Of a journal that was read, only what is still to be done counts.
        self.queue.retain(|trial| {
            let running = search.trial(*trial).is_some_and(|t| t.state == TrialState::Running);
            running && !search.is_waiting(*trial)
        });
        Ok(())
    }
}
