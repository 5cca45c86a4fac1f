//! What really happened: every state that ever was and where it came from, kept apart from the machines under test
//! so that their own words prove nothing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use salamander_core::elastic::{Generation, Identity, StateLineage, Version};
use salamander_core::seed::mix;

use crate::simulation::Violation;

/// A state, by its place among all that ever were.
pub(crate) type StateId = usize;

/// The state before everything.
pub(crate) const NOTHING: StateId = 0;

/// Partitions of the rows of tables.
pub(crate) const PARTITIONS: usize = 5;

/// The work of a run: which records each step takes, and which of them each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) records: u32,
    pub(crate) epochs: u32,
    pub(crate) batch: u32,
    pub(crate) slices: u32,
    /// A checkpoint is written every so many steps.
    pub(crate) every: u64,
}

impl Job {
    fn steps_per_epoch(&self) -> u64 {
        u64::from(self.records.div_ceil(self.batch))
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps_per_epoch() * u64::from(self.epochs)
    }

    /// How many records a step takes; the last one of an epoch is short.
    fn size(&self, step: u64) -> u32 {
        let first = (step % self.steps_per_epoch()) as u32 * self.batch;
        self.batch.min(self.records - first)
    }

    /// All records of a step, one bit for each.
    pub(crate) fn whole(&self, step: u64) -> u32 {
        (1 << self.size(step)) - 1
    }

    /// The slices of a rank.
    pub(crate) fn own_slices(&self, rank: u32, ranks: u32) -> Range<u32> {
        rank * self.slices / ranks..(rank + 1) * self.slices / ranks
    }

    /// The records of some slices.
    fn records(&self, step: u64, slices: Range<u32>) -> u32 {
        let end_of_slice = |slice: u32| slice * self.size(step) / self.slices;
        let (first, end) = (end_of_slice(slices.start), end_of_slice(slices.end));
        ((1 << end) - 1) & !((1 << first) - 1)
    }

    /// The records of a rank.
    pub(crate) fn share(&self, step: u64, rank: u32, ranks: u32) -> u32 {
        self.records(step, self.own_slices(rank, ranks))
    }

    /// The records of each slice of a step.
    pub(crate) fn slices_of(&self, step: u64) -> BTreeMap<u32, u32> {
        (0..self.slices).map(|k| (k, self.records(step, k..k + 1))).collect()
    }

    /// Rows after these slices of a step, added in their order.
    pub(crate) fn rows_after(rows: Content, step: u64, slices: &BTreeMap<u32, u32>) -> Content {
        let sum = |sum, (k, records): (&u32, &u32)| {
            mix(sum ^ mix(u64::from(*k) << 32 | u64::from(*records)))
        };
        mix(rows ^ slices.iter().fold(step, sum))
    }

    /// The rows of each partition after each step of a run that nobody disturbs.
    pub(crate) fn undisturbed_rows(&self) -> Vec<[Content; PARTITIONS]> {
        let mut rows = vec![std::array::from_fn(|part| mix(part as u64))];
        for step in 0..self.steps() {
            let (last, slices) = (rows[step as usize], self.slices_of(step));
            rows.push(last.map(|content| Self::rows_after(content, step, &slices)));
        }
        rows
    }
}

/// What is in a state, whatever it is called: a hash over all that was applied to it.
pub(crate) type Content = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Read from a checkpoint, or fresh.
    Begun,
    /// A commit of these records of a step.
    Step(u64, u32),
    /// A commit that all members met for; it has no records.
    Met,
}

impl Origin {
    /// What comes of applying it.
    pub(crate) fn applied(self, content: Content) -> Content {
        match self {
            Origin::Begun => content,
            Origin::Step(step, records) => mix(content ^ mix(step << 32 | u64::from(records))),
            Origin::Met => mix(content ^ 1),
        }
    }
}

#[derive(Clone, Debug)]
struct State {
    content: Content,
    parent: StateId,
    version: Version,
    /// Steps that led here.
    steps: u64,
    generation: Generation,
    origin: Origin,
    /// Every member of a generation has held it.
    common: bool,
    told: bool,
}

/// All states, and the first violation.
pub(crate) struct Truth {
    job: Job,
    states: Vec<State>,
    known: HashMap<(StateId, Identity), StateId>,
    lineages: HashMap<(Version, Generation), StateLineage>,
    /// What each name stands for.
    named: HashMap<Identity, Content>,
    /// Those whose checkpoint was journaled.
    pub(crate) checkpoints: Vec<StateId>,
    pub(crate) violation: Option<Violation>,
}

impl Truth {
    pub(crate) fn new(job: Job) -> Self {
        let nothing = State {
            content: 0,
            parent: NOTHING,
            version: Version(0),
            steps: 0,
            generation: Generation::default(),
            origin: Origin::Begun,
            common: false,
            told: false,
        };
        Self {
            job,
            states: vec![nothing],
            known: HashMap::new(),
            lineages: HashMap::new(),
            named: HashMap::new(),
            checkpoints: Vec::new(),
            violation: None,
        }
    }

    /// Notes a violation, if it is the first.
    pub(crate) fn blame(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation { invariant, what });
    }

    /// A state that comes out of another one.
    pub(crate) fn add(&mut self, parent: StateId, identity: Identity, origin: Origin) -> StateId {
        if let Some(known) = self.known.get(&(parent, identity)) {
            return *known;
        }
        let Identity { version, generation, lineage } = identity;
        let first = *self.lineages.entry((version, generation)).or_insert(lineage);
        if first != lineage {
            let what = format!("two states of version {version} in generation {generation}");
            self.blame("one lineage per version and generation", what);
        }
        let steps = self.states[parent].steps + u64::from(matches!(origin, Origin::Step(..)));
        let (common, told) = (false, false);
        let content = origin.applied(self.states[parent].content);
        let state = State { content, parent, version, steps, generation, origin, common, told };
        self.states.push(state);
        let id = self.states.len() - 1;
        self.known.insert((parent, identity), id);
        self.named.insert(identity, content);
        id
    }

    pub(crate) fn steps(&self, state: StateId) -> u64 {
        self.states[state].steps
    }

    pub(crate) fn content(&self, state: StateId) -> Content {
        self.states[state].content
    }

    /// A member says that it holds this, and holds that: both must be the same.
    pub(crate) fn check_holding(&mut self, who: &str, said: Identity, held: Option<Content>) {
        if self.named.get(&said).copied() != held {
            let what = format!("{who} says version {} of {}", said.version, said.generation);
            self.blame("a member holds what it says", what);
        }
    }

    /// Reports that were taken, against the line that survived: each of its own version, once, and of every step.
    pub(crate) fn check_reports(&mut self, last: StateId, log: &[(Version, Content)]) {
        let mut state = last;
        while state != NOTHING {
            let State { version, parent, origin, .. } = &self.states[state];
            let (version, is_step) = (*version, matches!(origin, Origin::Step(..)));
            state = *parent;
            if is_step && !log.iter().any(|(told, _)| *told == version) {
                self.blame("every step is told", format!("version {version} was not"));
            }
        }
        for (at, (version, content)) in log.iter().enumerate() {
            let state = self.ancestor(last, *version);
            if self.states[state].content != *content {
                let what = format!("version {version} was told of another line");
                self.blame("reports are of the line that survives", what);
            }
            if log[..at].iter().any(|(earlier, _)| earlier >= version) {
                self.blame("each report is told once", format!("version {version}"));
            }
        }
    }

    pub(crate) fn parent(&self, state: StateId) -> StateId {
        self.states[state].parent
    }

    /// The state of an earlier version on the way to this one.
    pub(crate) fn ancestor(&self, mut state: StateId, version: Version) -> StateId {
        while state != NOTHING && self.states[state].version > version {
            state = self.states[state].parent;
        }
        state
    }

    /// Every member of a generation holds it.
    pub(crate) fn share(&mut self, state: StateId) {
        self.states[state].common = true;
    }

    /// It was told outside.
    pub(crate) fn tell(&mut self, state: StateId) {
        self.states[state].told = true;
    }

    /// What must hold when the run has ended with this state.
    pub(crate) fn judge(&mut self, last: StateId, completed: bool) {
        let mut line = vec![false; self.states.len()];
        let mut state = last;
        while state != NOTHING {
            line[state] = true;
            state = self.states[state].parent;
        }
        line[NOTHING] = true;
        for checkpoint in self.checkpoints.clone() {
            if !line[checkpoint] {
                let what = format!("{} is not on the last line", self.describe(checkpoint));
                self.blame("journaled checkpoints survive", what);
            }
        }
        for state in 1..self.states.len() {
            let State { common, told, .. } = self.states[state];
            if (common || told) && !line[state] && !self.was_cut(state, last, &line) {
                let who = if told { "was told" } else { "was held by all" };
                let what = format!("{} {who} and did not survive", self.describe(state));
                let told_outside = "what is told outside survives";
                self.blame(if told { told_outside } else { "one line survives" }, what);
            }
        }
        self.count(last, completed);
    }

    /// Whether the last line left the one of this state by reading a checkpoint: the one exception.
    fn was_cut(&self, state: StateId, last: StateId, line: &[bool]) -> bool {
        let mut fork = state;
        while !line[fork] {
            fork = self.states[fork].parent;
        }
        let mut child = last;
        while child != fork && self.states[child].parent != fork {
            child = self.states[child].parent;
        }
        child != fork && self.states[child].origin == Origin::Begun
    }

    /// Every record of every epoch exactly once.
    fn count(&mut self, last: StateId, completed: bool) {
        let mut applied = vec![0u32; self.job.steps() as usize];
        let mut state = last;
        while state != NOTHING {
            if let Origin::Step(step, records) = self.states[state].origin {
                let seen = &mut applied[step as usize];
                if *seen & records != 0 {
                    let what = format!("records {records:b} of step {step} were applied twice");
                    self.blame(EXACTLY_ONCE, what);
                }
                *seen |= records;
            }
            state = self.states[state].parent;
        }
        let steps = if completed { self.job.steps() } else { self.states[last].steps };
        for step in 0..self.job.steps() {
            let wanted = if step < steps { self.job.whole(step) } else { 0 };
            if applied[step as usize] != wanted {
                let what = format!("step {step} of {steps}: records {:b}", applied[step as usize]);
                self.blame(EXACTLY_ONCE, what);
            }
        }
    }

    pub(crate) fn describe(&self, state: StateId) -> String {
        let State { version, generation, .. } = self.states[state];
        format!("version {version} of generation {generation}")
    }
}

const EXACTLY_ONCE: &str = "every record exactly once";
