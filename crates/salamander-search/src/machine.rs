//! A search as a state machine: events in, actions with a reason out.
//!
//! Actions are a pure function of the method, the space, the seed and the order of events; nothing here knows time,
//! files or processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use salamander_core::experiment::ReportOrder;
use salamander_core::seed::{Rng, derive};
use serde_json::Value as Json;

use crate::density::AxisModel;
use crate::method::{Method, Proposals};
use crate::scheduler::{Decision, Scheduler};
use crate::space::{LocatedPoint, Space};
use crate::tpe::{Observation, Tpe};
use crate::trial::{Trial, TrialState, ValueSource};

/// So many trials have their room from the beginning.
const MOST_RESERVED: u64 = 100_000;

/// A trial of a search, from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TrialId(pub u64);

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened to a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchEvent {
    /// It was measured at a length.
    Report {
        /// The trial.
        trial: TrialId,
        /// How far it is, in units of the method's length.
        length: u64,
        /// What was measured; not a number is the worst.
        metric: f64,
    },
    /// It ended without being told to.
    Ended {
        /// The trial.
        trial: TrialId,
        /// How.
        how: Ending,
    },
    /// The time for the whole search is over.
    OutOfTime,
}

/// How a trial ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It has come to its own end.
    Completed,
    /// It failed more often than is tolerated.
    Failed,
    /// The model refused its hyperparameters: it is replaced and does not count.
    Invalid,
}

/// What is to be done with a trial, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialAction {
    /// The trial.
    pub trial: TrialId,
    /// What is to be done with it.
    pub what: Instruction,
    /// Why.
    pub reason: String,
}

/// What is to be done with a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// It is made, and trains to this length, where it is measured.
    Create {
        /// The first length at which it is measured.
        until: u64,
    },
    /// It trains on to this length.
    Train {
        /// The next length at which it is measured.
        until: u64,
    },
    /// It waits with its checkpoint, and gives its place to others.
    Pause,
    /// It is over.
    Stop,
    /// It goes on from another trial's checkpoint with other hyperparameters.
    Copy {
        /// Whose checkpoint.
        from: TrialId,
        /// The next length at which it is measured.
        until: u64,
    },
}

/// A search.
#[derive(Debug)]
pub struct Search {
    method: Method,
    space: Arc<Space>,
    scheduler: Box<dyn Scheduler>,
    /// What is drawn, with its place in a point, for searchers that learn.
    axes: Vec<(usize, AxisModel)>,
    /// The points of a grid that are left, the next one last.
    grid: Vec<Json>,
    trials: Vec<Trial>,
    best: Option<(f64, TrialId)>,
    over: bool,
    /// The trials that train, by where they are looked at next: what is done must not cost more the longer a search is.
    running: BTreeSet<(u64, TrialId)>,
    /// How many wait with their checkpoints.
    paused: usize,
    /// What has arrived and is not heard yet, in the order `fixed`.
    waiting: BTreeMap<TrialId, SearchEvent>,
}

impl Search {
    /// A search that has not begun.
    pub fn new(method: Method, space: Space) -> Result<Self, salamander_core::yaml::Error> {
        let mut grid = match method.proposals {
            Proposals::Grid => space.grid()?,
            _ => Vec::new(),
        };
        grid.reverse();
        let scheduler = method.scheduler();
        let axes = match method.proposals {
            Proposals::Tpe { .. } => space
                .drawn()
                .map(|(index, _, distribution)| (index, AxisModel::new(distribution)))
                .collect(),
            Proposals::Single | Proposals::Random | Proposals::Grid => Vec::new(),
        };
        // Room that is not used costs nothing, and what is copied as they become more does.
        let trials = Vec::with_capacity(method.max_trials.min(MOST_RESERVED) as usize);
        Ok(Self {
            method,
            space: Arc::new(space),
            scheduler,
            axes,
            grid,
            trials,
            best: None,
            over: false,
            running: BTreeSet::new(),
            paused: 0,
            waiting: BTreeMap::new(),
        })
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// What the hyperparameters may become.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// All trials so far, in the order in which they were made.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// One trial.
    pub fn trial(&self, id: TrialId) -> Option<&Trial> {
        self.trials.get((id.0 as usize).checked_sub(1)?)
    }

    /// The trial that measured the best value, and the value.
    pub fn best(&self) -> Option<(&Trial, f64)> {
        let (score, id) = self.best?;
        let metric = if self.method.smaller_is_better { score } else { -score };
        self.trial(id).map(|trial| (trial, metric))
    }

    /// Whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        self.over || (!self.trials.is_empty() && self.running.is_empty() && self.paused == 0)
    }

    /// Whether every trial failed, so that the search did.
    pub fn has_failed(&self) -> bool {
        let counted: Vec<TrialState> = self.trials.iter().map(|trial| trial.state).collect();
        let failed = |state: &TrialState| {
            matches!(state, TrialState::Ended(Ending::Failed | Ending::Invalid))
        };
        !counted.is_empty() && counted.iter().all(failed)
    }

    /// How much is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        if self.is_over() {
            return 1.0;
        }
        let over = self.trials.iter().filter(|trial| trial.state.is_over()).count();
        let counted = over as f64 / self.method.max_trials as f64;
        self.scheduler.progress().unwrap_or(counted).min(1.0)
    }

    /// The first trials.
    pub fn begin(&mut self) -> Vec<TrialAction> {
        let mut actions = Vec::new();
        if self.trials.is_empty() {
            for bracket in self.scheduler.begin() {
                self.create(bracket, &mut actions);
            }
        }
        actions
    }

    /// Takes an event as it comes. In the order `fixed` it is heard only when every running trial that is to be looked
    /// at earlier, by length and then by number, was heard: then arrival changes nothing.
    pub fn arrive(&mut self, event: SearchEvent) -> Vec<TrialAction> {
        let trial = match event {
            SearchEvent::Report { trial, .. } | SearchEvent::Ended { trial, .. } => trial,
            SearchEvent::OutOfTime => return self.step(event),
        };
        if self.method.order == ReportOrder::Arrival {
            return self.step(event);
        }
        let Some(known) = self.running(trial) else { return Vec::new() };
        if let SearchEvent::Report { length, metric, .. } = event
            && length < known.until
        {
            // Between two looks nothing is decided: it is only known how far the trial is.
            known.reports.push((length, metric));
            return Vec::new();
        }
        self.waiting.insert(trial, event);
        let mut actions = Vec::new();
        while let Some(event) = self.next_in_order() {
            actions.extend(self.step(event));
        }
        actions
    }

    /// Whether a trial has reported and is not heard yet.
    pub fn is_waiting(&self, trial: TrialId) -> bool {
        self.waiting.contains_key(&trial)
    }

    fn next_in_order(&mut self) -> Option<SearchEvent> {
        let (_, first) = self.running.first()?;
        self.waiting.remove(first)
    }

    /// What follows from an event. One that comes too late, or is of no trial, has no consequences.
    pub fn step(&mut self, event: SearchEvent) -> Vec<TrialAction> {
        let mut actions = Vec::new();
        if self.is_over() {
            return actions;
        }
        self.follow(event, &mut actions);
        // Only who trains can report: where all wait, nothing would ever happen again. A scheduler leaves it so when it
        // asks for a trial in the place of a refused one, and the grid has no point left.
        if !self.is_over() && self.running.is_empty() && self.paused > 0 {
            self.stop_all("nobody is left to compare it with", &mut actions);
        }
        actions
    }

    fn follow(&mut self, event: SearchEvent, actions: &mut Vec<TrialAction>) {
        match event {
            SearchEvent::Report { trial, length, metric } => {
                let Some(known) = self.running(trial) else { return };
                known.reports.push((length, metric));
                known.heard = known.reports.len();
                let score = self.score(metric);
                // The first of equals stays the best.
                if !score.is_infinite() && self.best.is_none_or(|(best, _)| score < best) {
                    self.best = Some((score, trial));
                }
                if self.reaches_target(metric) {
                    let target = self.method.target.unwrap_or(metric);
                    let reason = format!("trial {trial} has reached the target {target}");
                    self.stop_all(&reason, actions);
                    return;
                }
                let verdicts = self.scheduler.report(trial, length, score);
                self.carry_out(verdicts, actions);
            }
            SearchEvent::Ended { trial, how } => {
                if self.running(trial).is_none() {
                    return;
                }
                self.move_to(trial, TrialState::Ended(how), None);
                let Some(known) = self.trials.get_mut(trial.0 as usize - 1) else { return };
                known.reason = match how {
                    Ending::Completed => format!("ended by itself at {}", known.length()),
                    Ending::Failed => "failed".to_string(),
                    Ending::Invalid => "its hyperparameters are invalid".to_string(),
                };
                let verdicts = self.scheduler.ended(trial, how);
                self.carry_out(verdicts, actions);
            }
            SearchEvent::OutOfTime => self.stop_all("the time for the search is over", actions),
        }
    }

    fn running(&mut self, id: TrialId) -> Option<&mut Trial> {
        let trial = self.trials.get_mut((id.0 as usize).checked_sub(1)?)?;
        (trial.state == TrialState::Running).then_some(trial)
    }

    /// Less is better, and what is not a number is the worst.
    fn score(&self, metric: f64) -> f64 {
        match (metric.is_nan(), self.method.smaller_is_better) {
            (true, _) => f64::INFINITY,
            (false, true) => metric,
            (false, false) => -metric,
        }
    }

    fn reaches_target(&self, metric: f64) -> bool {
        let reached = |target| self.score(metric) <= self.score(target);
        !metric.is_nan() && self.method.target.is_some_and(reached)
    }

    fn stop_all(&mut self, reason: &str, actions: &mut Vec<TrialAction>) {
        self.over = true;
        for trial in self.trials.iter_mut().filter(|trial| !trial.state.is_over()) {
            trial.state = TrialState::Stopped;
            trial.reason = reason.to_string();
            self.running.remove(&(trial.until, trial.id));
            actions.push(TrialAction {
                trial: trial.id,
                what: Instruction::Stop,
                reason: reason.to_string(),
            });
        }
    }

    /// Changes where a trial stands, and where it is looked at next.
    fn move_to(&mut self, id: TrialId, state: TrialState, until: Option<u64>) {
        let Some(trial) = self.trials.get_mut(id.0 as usize - 1) else { return };
        self.running.remove(&(trial.until, id));
        self.paused -= usize::from(trial.state == TrialState::Paused);
        trial.state = state;
        trial.until = until.unwrap_or(trial.until);
        if state == TrialState::Running {
            self.running.insert((trial.until, id));
        }
        self.paused += usize::from(state == TrialState::Paused);
    }

    fn carry_out(&mut self, verdicts: Vec<Decision>, actions: &mut Vec<TrialAction>) {
        for verdict in verdicts {
            let (id, what, state, reason) = match verdict {
                Decision::New { bracket } => {
                    self.create(bracket, actions);
                    continue;
                }
                Decision::Go { trial, until, reason } => {
                    (trial, Instruction::Train { until }, TrialState::Running, reason)
                }
                Decision::Pause { trial, reason } => {
                    (trial, Instruction::Pause, TrialState::Paused, reason)
                }
                Decision::Stop { trial, reason } => {
                    (trial, Instruction::Stop, TrialState::Stopped, reason)
                }
                Decision::Copy { trial, from, until, reason } => {
                    self.explore(trial, from);
                    (trial, Instruction::Copy { from, until }, TrialState::Running, reason)
                }
            };
            let until = match what {
                Instruction::Train { until } | Instruction::Copy { until, .. } => Some(until),
                _ => None,
            };
            self.move_to(id, state, until);
            let Some(trial) = self.trials.get_mut(id.0 as usize - 1) else { continue };
            trial.reason.clone_from(&reason);
            actions.push(TrialAction { trial: id, what, reason });
        }
    }

    fn create(&mut self, bracket: usize, actions: &mut Vec<TrialAction>) {
        let id = TrialId(self.trials.len() as u64 + 1);
        let Method { proposals, seed, .. } = self.method;
        let drawn = |point| ValueSource::Drawn(Arc::clone(&self.space), point);
        let (source, reason) = match proposals {
            Proposals::Grid => match self.grid.pop() {
                Some(values) => {
                    (ValueSource::Given(Box::new(values)), "the next point of the grid")
                }
                None => return,
            },
            Proposals::Tpe { startup } => {
                let tpe = Tpe { space: &self.space, axes: &self.axes, startup };
                let (point, reason) = tpe.propose(seed, id, &self.observations());
                (drawn(point), reason)
            }
            Proposals::Single | Proposals::Random => {
                (drawn(self.space.random(seed, id.0)), "drawn at random")
            }
        };
        let until = self.scheduler.first_length(bracket);
        self.scheduler.created(id, bracket);
        let reason = reason.to_string();
        self.running.insert((until, id));
        self.trials.push(Trial {
            id,
            state: TrialState::Running,
            until,
            reports: Vec::new(),
            heard: 0,
            reason: reason.clone(),
            at: match (&source, proposals) {
                (ValueSource::Drawn(_, point), Proposals::Tpe { .. }) => self.space.locate(point),
                _ => LocatedPoint::new(),
            },
            source,
        });
        actions.push(TrialAction { trial: id, what: Instruction::Create { until }, reason });
    }

    fn observations(&self) -> Vec<Observation<'_>> {
        self.trials.iter().filter_map(|trial| self.observation(trial)).collect()
    }

    fn observation<'a>(&self, trial: &'a Trial) -> Option<Observation<'a>> {
        trial.point()?;
        let heard = trial.reports.get(..trial.heard).unwrap_or_default();
        let (length, metric) = heard.last().copied().unwrap_or((0, f64::NAN));
        let score = match trial.state {
            TrialState::Ended(Ending::Failed | Ending::Invalid) => None,
            // A trial of which nothing is known yet counts as bad, so that others do not try the same. One that has
            // passed a rung and trains on is among the best.
            TrialState::Running if heard.is_empty() => None,
            TrialState::Running
            | TrialState::Paused
            | TrialState::Stopped
            | TrialState::Ended(Ending::Completed) => Some(self.score(metric)),
        };
        Some(Observation { at: &trial.at, length: length.min(self.method.longest()), score })
    }

    /// Gives a trial hyperparameters near another's.
    fn explore(&mut self, id: TrialId, from: TrialId) {
        let Some(source) = self.trials.get(from.0 as usize - 1) else { return };
        let Some(mut point) = source.point().cloned() else { return };
        let length = source.length();
        for (index, path, distribution) in self.space.drawn() {
            let names: Vec<u64> = [id.0, length, 0x6578_706c]
                .into_iter()
                .chain(path.bytes().map(u64::from))
                .collect();
            let mut rng = Rng::new(derive(self.method.seed, &names));
            // The paper's: a quarter is drawn anew.
            point[index] = match rng.below(4) {
                0 => Some(rng.uniform()),
                _ => point[index].map(|place| distribution.perturbed(place, &mut rng)),
            };
        }
        if let Some(trial) = self.trials.get_mut(id.0 as usize - 1) {
            trial.source = ValueSource::Drawn(Arc::clone(&self.space), point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SearchFile;

    #[test]
    fn a_trial_that_has_passed_a_rung_is_learned_from_while_it_trains_on() {
        for order in ["arrival", "fixed"] {
            let text = format!(
                "searcher: {{name: tpe, scheduler: async_halving, num_rungs: 3, divisor: 2, max_time: 8, \
                 time_metric: batches, metric: loss, max_trials: 4, max_concurrent_trials: 2, order: {order}}}\n\
                 hyperparameters: {{x: {{uniform: [0, 1]}}}}\n"
            );
            let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            let mut search = file.search(1).unwrap_or_else(|error| panic!("{error}"));
            search.begin();
            let scores = |search: &Search| {
                search.observations().iter().map(|seen| seen.score).collect::<Vec<_>>()
            };
            assert_eq!(scores(&search), [None, None], "nothing is known");
            let (trial, until) = (TrialId(1), search.trials()[0].until);
            search.arrive(SearchEvent::Report { trial, length: until, metric: 0.5 });
            assert_eq!(search.trials()[0].state, TrialState::Running, "it is the best of one");
            assert_eq!(scores(&search), [Some(0.5), None], "{order}");
            // Between two looks nothing is decided, so that arrival changes nothing in the order `fixed`.
            let length = search.trials()[0].until - 1;
            search.arrive(SearchEvent::Report { trial, length, metric: 0.25 });
            let known = if order == "fixed" { 0.5 } else { 0.25 };
            assert_eq!(scores(&search), [Some(known), None], "{order}");
        }
    }
}
