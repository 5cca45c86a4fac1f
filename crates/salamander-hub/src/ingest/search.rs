//! A search, replayed from its journal: trials, their hyperparameters, and why each stands where it stands.

use std::fs;

use salamander_core::layout::RunLayout;
use salamander_search::{HeardEvent, Search, SearchFile, Trial, TrialState};

use super::folder::read_json;

/// A search as far as its journal was read.
pub(super) struct Replayed {
    pub(super) file: SearchFile,
    pub(super) search: Search,
    read: usize,
}

impl Replayed {
    /// Reads a search's folder; `None`: it is damaged, or of another release.
    pub(super) fn open(run: &RunLayout) -> Option<Self> {
        let kept = read_json(&run.search())?;
        let file = SearchFile::parse(kept["file"].as_str()?, &[]).ok()?;
        let mut search = file.search(kept["seed"].as_u64()? as u32).ok()?;
        search.begin();
        let mut replayed = Self { file, search, read: 0 };
        replayed.go_on(run);
        Some(replayed)
    }

    /// Hears what has been added to the journal.
    pub(super) fn go_on(&mut self, run: &RunLayout) {
        let bytes = fs::read(run.search_journal()).unwrap_or_default();
        // The whole journal is read, which is short: a line per look at a trial.
        for line in bytes.get(self.read..).unwrap_or_default().split_inclusive(|b| *b == b'\n') {
            let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
            let Some(event) = text.and_then(HeardEvent::from_line) else { break };
            self.search.arrive(event.event);
            self.read += line.len();
        }
    }

    /// A trial's state among runs: what the search says, and whether a process trains it.
    pub(super) fn state(&self, trial: &Trial, held: bool, search_runs: bool) -> String {
        let state = match trial.state {
            _ if held => "running",
            TrialState::Running if search_runs => "queued",
            TrialState::Running => "interrupted",
            other => other.as_str(),
        };
        state.to_string()
    }
}
