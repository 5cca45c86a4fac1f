//! Which checkpoints stay: the best of all trials, the best and the latest of each, and those that somebody needs.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::RunId;
use crate::store::checkpoints::Checkpoint;

/// How many of each kind stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) experiment_best: u64,
    pub(super) trial_best: u64,
    pub(super) trial_latest: u64,
}

/// How a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialStanding {
    /// It trains, or will: all of its checkpoints stay.
    Live,
    /// It could be gone on with: its newest checkpoint stays, whatever the policy says.
    MayGoOn,
    /// It is over for good.
    Over,
}

/// Those that go, of all that are there. A checkpoint without a validation at its step stays as one of the latest
/// only; equals stay in the order in which they were measured.
pub(super) fn superfluous<'a>(
    there: &[&'a Checkpoint],
    keep: Keep,
    standing: impl Fn(RunId) -> TrialStanding,
    is_needed: impl Fn(RunId, &str) -> bool,
) -> Vec<&'a Checkpoint> {
    let mut of_trials: BTreeMap<RunId, Vec<&Checkpoint>> = BTreeMap::new();
    for one in there {
        of_trials.entry(one.run).or_default().push(*one);
    }
    let mut kept: BTreeSet<(RunId, &str)> = best(there, keep.experiment_best).collect();
    for (run, own) in &mut of_trials {
        own.sort_by(|a, b| (a.steps, &a.name).cmp(&(b.steps, &b.name)));
        kept.extend(best(own, keep.trial_best));
        // Those that are only to recover from take nobody's place.
        let latest = own.iter().rev().filter(|one| !one.recovery).take(keep.trial_latest as usize);
        kept.extend(latest.map(|one| key(one)));
        if standing(*run) == TrialStanding::MayGoOn {
            kept.extend(own.last().map(|one| key(one)));
        }
    }
    let goes = |one: &&&Checkpoint| {
        standing(one.run) != TrialStanding::Live
            && !kept.contains(&key(one))
            && !is_needed(one.run, &one.name)
    };
    there.iter().filter(goes).copied().collect()
}

fn key(checkpoint: &Checkpoint) -> (RunId, &str) {
    (checkpoint.run, checkpoint.name.as_str())
}

fn best<'a>(all: &[&'a Checkpoint], count: u64) -> impl Iterator<Item = (RunId, &'a str)> {
    let measured = all.iter().filter_map(|one| Some((one.watched?, *one)));
    let mut measured: Vec<(f64, &Checkpoint)> = measured.collect();
    let place = |one: &Checkpoint| (one.created, one.run, one.steps);
    measured.sort_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| place(x).cmp(&place(y))));
    measured.into_iter().take(count as usize).map(|(_, one)| key(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(trial: i64, steps: i64, watched: Option<f64>) -> Checkpoint {
        Checkpoint {
            run: RunId::new(1, trial).expect("a run"),
            name: format!("step-{steps:08}"),
            steps,
            epoch: 0,
            watched,
            recovery: false,
            weights_hash: None,
            bytes: 1,
            validation: serde_json::Value::Null,
            state: "completed".to_string(),
            created: steps,
        }
    }

    /// Trials 1 and 2 with four checkpoints each; the last of each was not measured.
    fn all() -> Vec<Checkpoint> {
        let curves = [[0.5, 0.2, 0.3], [0.1, 0.4, 0.15]];
        let mut all = Vec::new();
        for (trial, curve) in (1..).zip(curves) {
            let measured = (1..).zip(curve);
            all.extend(measured.map(|(steps, watched)| checkpoint(trial, steps, Some(watched))));
            all.push(checkpoint(trial, 4, None));
        }
        all
    }

    fn check(keep: [u64; 3], standing: TrialStanding, needed: &[(i64, i64)], goes: &[(i64, i64)]) {
        let all = all();
        let there: Vec<&Checkpoint> = all.iter().collect();
        let keep = Keep { experiment_best: keep[0], trial_best: keep[1], trial_latest: keep[2] };
        let is_needed = |run: RunId, name: &str| {
            needed
                .iter()
                .any(|(trial, steps)| run.trial() == *trial && name == format!("step-{steps:08}"))
        };
        let gone = superfluous(&there, keep, |_| standing, is_needed);
        let gone: Vec<(i64, i64)> = gone.iter().map(|one| (one.run.trial(), one.steps)).collect();
        assert_eq!(gone, goes, "{keep:?} {standing:?}");
    }

    #[test]
    fn the_union_of_the_best_and_the_latest_stays() {
        // Determined's defaults.
        check([0, 1, 1], TrialStanding::Over, &[], &[(1, 1), (1, 3), (2, 2), (2, 3)]);
        check([3, 0, 0], TrialStanding::Over, &[], &[(1, 1), (1, 3), (1, 4), (2, 2), (2, 4)]);
        check(
            [0, 0, 0],
            TrialStanding::MayGoOn,
            &[],
            &[(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)],
        );
        check([0, 0, 2], TrialStanding::Over, &[], &[(1, 1), (1, 2), (2, 1), (2, 2)]);
    }

    #[test]
    fn what_trains_and_what_somebody_needs_stays() {
        check([0, 0, 0], TrialStanding::Live, &[], &[]);
        let goes = [(1, 1), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4)];
        check([0, 0, 0], TrialStanding::Over, &[(1, 2)], &goes);
    }

    #[test]
    fn what_is_only_to_recover_from_is_no_latest_unless_it_is_gone_on_with() {
        let mut all = all();
        all[3].recovery = true;
        let there: Vec<&Checkpoint> = all.iter().take(4).collect();
        let keep = Keep { experiment_best: 0, trial_best: 0, trial_latest: 1 };
        let goes = |standing| {
            let gone = superfluous(&there, keep, |_| standing, |_, _| false);
            gone.iter().map(|one| one.steps).collect::<Vec<_>>()
        };
        assert_eq!(goes(TrialStanding::Over), [1, 2, 4]);
        assert_eq!(goes(TrialStanding::MayGoOn), [1, 2]);
    }
}
