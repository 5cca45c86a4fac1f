//! Searches on known results: lengths and reasons as Determined's rules give them, worked out by hand.

use crate::{KnownCurve, SearchFile, plan, replay};

/// Each trial as `length` or `length: reason`, for a searcher and one curve per line.
fn replayed(searcher: &str, curves: &str) -> Vec<(u64, String)> {
    let text = format!(
        "searcher: {{metric: loss, {searcher}}}\nhyperparameters: {{x: {{uniform: [0, 1]}}}}\n"
    );
    let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let mut search = file.search(1).unwrap_or_else(|error| panic!("{error}"));
    let curves = KnownCurve::read(curves).unwrap_or_else(|error| panic!("{error}"));
    replay(&mut search, &curves).unwrap_or_else(|error| panic!("{error}"));
    assert!(search.is_over(), "every trial has an end");
    search.trials().iter().map(|trial| (trial.length(), trial.reason.clone())).collect()
}

fn lengths(searcher: &str, curves: &str) -> Vec<u64> {
    replayed(searcher, curves).into_iter().map(|(length, _)| length).collect()
}

const HALVING: &str =
    "name: async_halving, num_rungs: 3, divisor: 2, max_time: 4, time_metric: batches";

#[test]
fn the_stopping_form_stops_what_is_worse_than_most() {
    // All four report at 1 in the order of their making: of n so far max(n / 2, 1) go on.
    let searcher = format!("{HALVING}, max_trials: 4, max_concurrent_trials: 4");
    let ends = replayed(&searcher, "0.5\n0.4\n0.3\n0.6\n");
    let shown: Vec<String> = ends.iter().map(|(length, why)| format!("{length} {why}")).collect();
    assert_eq!(
        shown,
        [
            "4 reached the top rung at 4",
            "4 reached the top rung at 4",
            "4 reached the top rung at 4",
            "1 stopped at rung 1 of 3 at 1: place 4 of 4, the best 2 go on",
        ]
    );
}

#[test]
fn each_stop_makes_a_new_trial_and_a_trial_that_ends_by_itself_does_not() {
    let searcher = format!("{HALVING}, max_trials: 5, max_concurrent_trials: 2");
    // At time 1: trial 1 goes on, trial 2 is second of two and stops; trial 3 takes its place.
    // At time 2: trial 1 passes rung 2; trial 3 is third of three and stops; trial 4 begins.
    // At time 3: trial 4 is the best of four. At time 4: trials 1 and 4 report; trial 1 is at the top, and trial 5
    // begins; trial 4 is the best of two at rung 2 and goes on.
    // At time 5: trial 5 is last of five and stops. At time 6: trial 4 is at the top.
    assert_eq!(lengths(&searcher, "2\n3\n4\n1\n5\n"), [4, 1, 1, 4, 1]);
    // Trial 1 has nothing more to tell after 1: nobody takes its place, and only trial 2's line goes on.
    let ends = replayed(&searcher, "[[1, 2]]\n3\n4\n5\n6\n");
    let shown: Vec<u64> = ends.iter().map(|(length, _)| *length).collect();
    assert_eq!(shown, [1, 1, 1, 1, 1]);
    assert_eq!(ends[0].1, "ended by itself at 1");
}

#[test]
fn ties_go_before_equals_in_the_stopping_form_and_after_in_the_promotion_form() {
    let four = "max_trials: 4, max_concurrent_trials: 4";
    // Each equal goes before those that are there: place 1 every time.
    assert_eq!(lengths(&format!("{HALVING}, {four}"), "1\n1\n1\n1\n"), [4, 4, 4, 4]);
    // Rungs add up to 1, 3, 7. Of four equals the first two are promoted, of two the first.
    let promotion = format!("{HALVING}, {four}, stop_once: false");
    assert_eq!(lengths(&promotion, "1\n1\n1\n1\n"), [7, 3, 1, 1]);
}

#[test]
fn one_validation_may_fill_several_rungs() {
    let searcher = format!("{HALVING}, max_trials: 3, max_concurrent_trials: 3");
    // Trial 1 is measured at 4 only: it stands in all three rungs then.
    let ends = replayed(&searcher, "[[4, 1]]\n2\n3\n");
    assert_eq!(ends[0], (4, "reached the top rung at 4".to_string()));
    assert_eq!(ends[1], (4, "reached the top rung at 4".to_string()));
    assert_eq!(ends[2].0, 1);
}

#[test]
fn what_is_not_a_number_is_worst_and_an_error_nearly_so() {
    let searcher = format!("{HALVING}, max_trials: 3, max_concurrent_trials: 3");
    for name in ["NaN", "\"NaN\"", "\"nan\"", "null", "Infinity", "\"inf\"", "[[1, NaN], [4, 0]]"] {
        assert_eq!(lengths(&searcher, &format!("1\n{name}\n2\n")), [4, 1, 1], "{name}");
    }
    assert_eq!(lengths(&searcher, "1\n-Infinity\n2\n"), [4, 4, 1]);
    assert_eq!(lengths(&searcher, "\"nan\"\n1\n0\n"), [4, 4, 4], "whoever is first goes on");
    let bigger = format!("{searcher}, smaller_is_better: false");
    assert_eq!(lengths(&bigger, "1\nnull\n2\n"), [4, 1, 4]);
    // A failed trial stands last in its rung, and a new one is made for it.
    let searcher = format!("{HALVING}, max_trials: 3, max_concurrent_trials: 1");
    let ends = replayed(&searcher, "[\"error\"]\n[[1, 5], [2, 5], [4, 5]]\n7\n");
    assert_eq!(ends[0], (0, "failed".to_string()));
    assert_eq!(ends[1].0, 4);
    assert_eq!(ends[2].0, 1);
}

#[test]
fn invalid_hyperparameters_are_replaced_and_not_counted() {
    for searcher in [
        format!("{HALVING}, max_trials: 2, max_concurrent_trials: 2"),
        format!("{HALVING}, max_trials: 2, max_concurrent_trials: 2, form: promotion"),
        "name: random, max_trials: 2, max_length: {batches: 4}".to_string(),
        "name: pasha, max_trials: 2, max_time: 4, divisor: 2".to_string(),
    ] {
        let ends = replayed(&searcher, "\"invalid\"\n1\n2\n");
        assert_eq!(ends.len(), 3, "{searcher}");
        assert_eq!(ends[0], (0, "its hyperparameters are invalid".to_string()), "{searcher}");
    }
    // A point of a grid is not replaced.
    let text = "searcher: {name: grid, metric: loss, max_length: {batches: 4}}\n\
                hyperparameters: {x: {choice: [1, 2, 3]}}";
    let file = SearchFile::parse(text, &[]).expect("valid");
    let mut search = file.search(1).expect("a search");
    replay(&mut search, &KnownCurve::read("\"invalid\"\n1\n2\n").expect("curves"))
        .expect("replayed");
    assert_eq!(search.trials().len(), 3);
}

#[test]
fn a_grid_with_an_invalid_point_ends_in_every_scheduler() {
    for scheduler in [
        "max_length: {batches: 4}",
        "scheduler: async_halving, num_rungs: 3, divisor: 2, max_time: 4",
        "scheduler: async_halving, num_rungs: 3, divisor: 2, max_time: 4, form: promotion",
        "scheduler: adaptive_asha, divisor: 2, max_time: 4",
        "scheduler: adaptive_asha, divisor: 2, max_time: 4, form: promotion",
        "scheduler: pasha, divisor: 2, max_time: 4",
        "scheduler: median, max_time: 4, interval: 1",
    ] {
        for (concurrent, refused) in
            [1, 2, 16].into_iter().flat_map(|c| (0..6).map(move |r| (c, r)))
        {
            let text = format!(
                "searcher: {{metric: loss, name: grid, max_concurrent_trials: {concurrent}, {scheduler}}}\n\
                 hyperparameters: {{x: {{choice: [1, 2, 3, 4, 5, 6]}}}}"
            );
            let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            let mut search = file.search(1).unwrap_or_else(|error| panic!("{error}"));
            let curve = |point| match point == refused {
                true => "\"invalid\"\n".to_string(),
                false => format!("{}\n", (point * 5) % 6),
            };
            let curves: String = (0..6).map(curve).collect();
            let curves = KnownCurve::read(&curves).expect("curves");
            replay(&mut search, &curves).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(search.is_over() && !search.has_failed(), "{text}, {refused} is refused");
            let is_over = |trial: &crate::Trial| trial.state.is_over();
            assert!(search.trials().iter().all(is_over), "{text}, {refused} is refused");
        }
    }
}

#[test]
fn promotion_waits_until_it_is_among_the_best() {
    let searcher = format!("{HALVING}, max_trials: 8, max_concurrent_trials: 8, form: promotion");
    let ends = replayed(&searcher, "8\n7\n6\n5\n4\n3\n2\n1\n");
    // Everyone is best when it comes, so that with n >= 2 the newest is promoted each time it is in the top half.
    let at_least = |length: u64| ends.iter().filter(|(own, _)| *own >= length).count();
    assert_eq!((at_least(1), at_least(3)), (8, 7));
    assert_eq!(ends[7], (7, "reached the top rung at 7".to_string()));
    assert_eq!(
        ends[0],
        (1, "never promoted from rung 1 of 3 at 1: not among the best 4 of 8".to_string())
    );
}

#[test]
fn random_and_grid_train_everything_and_refill() {
    let random = "name: random, max_trials: 20, max_length: {epochs: 3}";
    let curves: String = (0..20).map(|n| format!("{n}\n")).collect();
    assert_eq!(lengths(random, &curves), [3; 20]);
    assert_eq!(lengths("name: single, max_length: {epochs: 3}", "1\n"), [3]);
}

#[test]
fn the_median_rule_stops_the_worse_half_after_its_grace() {
    let searcher =
        "name: median, max_trials: 6, max_time: 10, interval: 2, grace: 4, min_samples: 3";
    assert_eq!(lengths(searcher, "1\n2\n3\n4\n5\n6\n"), [10, 10, 10, 4, 4, 4]);
}

#[test]
fn a_population_replaces_its_worst_and_all_go_to_the_end() {
    let searcher = "name: pbt, max_trials: 8, max_time: 12, interval: 4";
    let text = format!(
        "searcher: {{metric: loss, {searcher}}}\nhyperparameters: {{x: {{uniform: [0, 1]}}}}\n"
    );
    let file = SearchFile::parse(&text, &[]).expect("valid");
    let mut search = file.search(1).expect("a search");
    let before = file.search(1).expect("a search").begin().len();
    let curves = KnownCurve::read("1\n2\n3\n4\n5\n6\n7\n8\n").expect("curves");
    replay(&mut search, &curves).expect("replayed");
    assert_eq!((before, search.trials().len()), (8, 8));
    assert!(search.trials().iter().all(|trial| trial.length() == 12));
    let mut fresh = file.search(1).expect("a search");
    fresh.begin();
    let moved = search.trials().iter().zip(fresh.trials()).map(|(a, b)| a.hparams() != b.hparams());
    assert_eq!(
        moved.collect::<Vec<bool>>(),
        [false, false, false, false, false, false, true, true]
    );
}

#[test]
fn an_invalid_copy_of_a_population_is_replaced_up_to_the_next_meeting() {
    use crate::{Ending, Instruction, SearchEvent, TrialId};
    let text = "searcher: {metric: loss, name: pbt, max_trials: 4, max_time: 12, interval: 4}\n\
                hyperparameters: {x: {uniform: [0, 1]}}\n";
    let file = SearchFile::parse(text, &[]).expect("valid");
    let mut search = file.search(1).expect("a search");
    search.begin();
    let measure = |search: &mut crate::Search, trial: u64, length| {
        let trial = TrialId(trial);
        search.step(SearchEvent::Report { trial, length, metric: trial.0 as f64 })
    };
    let met: Vec<_> = (1..=4).flat_map(|trial| measure(&mut search, trial, 4)).collect();
    let is_copy = |action: &crate::TrialAction| {
        action.trial == TrialId(4) && matches!(action.what, Instruction::Copy { until: 8, .. })
    };
    assert!(met.iter().any(is_copy), "{met:?}");
    // The model refuses what the copy drew; another takes its place and trains as far as the others.
    let ended = SearchEvent::Ended { trial: TrialId(4), how: Ending::Invalid };
    let replaced = search.step(ended);
    let made: Vec<_> = replaced.iter().map(|action| (action.trial, &action.what)).collect();
    assert_eq!(made, [(TrialId(5), &Instruction::Create { until: 8 })]);
    for length in [8, 12] {
        [1, 2, 3, 5].into_iter().for_each(|trial| drop(measure(&mut search, trial, length)));
    }
    assert!(search.is_over(), "{:?}", search.trials());
}

#[test]
fn progressive_halving_goes_no_further_than_the_order_changes() {
    let searcher =
        "name: pasha, max_trials: 64, max_time: 64, divisor: 2, max_concurrent_trials: 4";
    // Always the same order: the second rung is the last.
    let curves: String = (0..64).map(|n| format!("{}\n", (n * 37) % 64)).collect();
    let longest = lengths(searcher, &curves).into_iter().max();
    assert_eq!(longest, Some(8), "rungs at 4 and 8 of 64");
    // The order turns over at every rung: all rungs are needed.
    let turning = |n: u64| {
        let value = |rung: u64| if rung.is_multiple_of(2) { n } else { 64 - n };
        let points: Vec<String> =
            (0..5).map(|rung| format!("[{}, {}]", 4 << rung, value(rung))).collect();
        format!("[{}]\n", points.join(", "))
    };
    let curves: String = (0..64).map(|n| turning((n * 37) % 64)).collect();
    assert_eq!(lengths(searcher, &curves).into_iter().max(), Some(64));
}

#[test]
fn a_target_ends_the_search() {
    let searcher =
        "name: random, max_trials: 50, max_concurrent_trials: 2, max_time: 5, target: 0.5";
    let ends = replayed(searcher, "3\n2\n0.5\n1\n");
    assert_eq!(ends.len(), 4);
    assert_eq!(ends[3], (0, "trial 3 has reached the target 0.5".to_string()));
}

#[test]
fn a_plan_lets_one_of_divisor_go_on() {
    let check = |searcher: &str, expected: &[(u64, usize)]| {
        let text = format!("searcher: {{metric: loss, {searcher}}}");
        let file = SearchFile::parse(&text, &[]).expect("valid");
        let method = file.method(1).expect("a method");
        let mut counts = std::collections::BTreeMap::<u64, usize>::new();
        for trial in plan(&method, file.space()).expect("a plan") {
            *counts.entry(trial.length).or_default() += 1;
        }
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected, "{searcher}");
    };
    // 70 at [1, 4, 16, 64], 22 at [4, 16, 64], 8 at [16, 64].
    check(
        "name: adaptive_asha, max_trials: 100, max_time: 64",
        &[(1, 53), (4, 13 + 17), (16, 3 + 4 + 6), (64, 1 + 1 + 2)],
    );
    check("name: random, max_trials: 3, max_length: {records: 50}", &[(50, 3)]);
    // Three brackets have a trial each, and a grid of constants has one point.
    check(
        "name: grid, scheduler: adaptive_asha, bracket_rungs: [1, 2, 3], max_time: 16",
        &[(16, 1)],
    );
    check("name: async_halving, num_rungs: 3, max_trials: 3, max_time: 16", &[(1, 2), (16, 1)]);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let check = |searcher: &str, expected: &str| {
        let text = format!("searcher: {{{searcher}}}\nhyperparameters: {{x: {{uniform: [0, 1]}}}}");
        let refused = SearchFile::parse(&text, &[]).and_then(|file| file.method(1));
        assert_eq!(refused.expect_err(searcher).to_string(), expected);
    };
    check(
        "name: single, scheduler: async_halving",
        "line 1: searcher.scheduler: async_halving compares trials, and single has only one: write \
         name: random",
    );
    check(
        "name: tpe, scheduler: pbt, max_trials: 9",
        "line 1: searcher.scheduler: pbt proposes by itself, from its best trials: write name: \
         random, or another scheduler",
    );
    check(
        "name: adaptive_asha, scheduler: median, max_trials: 9",
        "line 1: searcher.name: adaptive_asha with the scheduler median: write what proposes \
         (random, grid or tpe) as the name",
    );
    check("name: random", "line 1: searcher.max_trials: say how many trials there may be");
    check(
        "name: random, max_trials: 4, divisor: 3",
        "line 1: searcher.divisor: only async_halving, adaptive_asha or pasha has a use for it",
    );
    check(
        "name: async_halving, max_trials: 4, divisor: 1",
        "line 1: searcher.divisor: must be above 1",
    );
    check(
        "name: random, max_trials: 1000001",
        "line 1: searcher.max_trials: a search has at most 1000000 trials",
    );
    check(
        "name: async_halving, max_trials: 4, num_rungs: 65",
        "line 1: searcher.num_rungs: a bracket has at most 64 rungs",
    );
    check(
        "name: pasha, max_trials: 4, max_rungs: 4000000000",
        "line 1: searcher.max_rungs: a bracket has at most 64 rungs",
    );
    check(
        "name: adaptive_asha, max_trials: 4, bracket_rungs: [2, 65]",
        "line 1: searcher.bracket_rungs: a bracket has at most 64 rungs",
    );
    check("name: grid", "line 2: hyperparameters.x: a grid needs a \"count\" of the values to try");
    check(
        "name: randon",
        "line 1: searcher.name: \"randon\" is not known here (did you mean \"random\"?)",
    );
}

#[test]
fn in_fixed_order_arrival_changes_nothing() {
    use crate::{SearchEvent, TrialState};
    let text = format!(
        "searcher: {{{HALVING}, max_trials: 12, max_concurrent_trials: 4, order: fixed}}\n\
         hyperparameters: {{x: {{uniform: [0, 1]}}}}"
    );
    let file = SearchFile::parse(&text, &[]).expect("valid");
    let mut outcomes = Vec::new();
    for seed in 0..50 {
        let mut rng = salamander_core::seed::Rng::new(seed);
        let mut search = file.search(1).expect("a search");
        search.begin();
        while !search.is_over() {
            // Whoever is under way may be the next to report.
            let under_way: Vec<_> = search
                .trials()
                .iter()
                .filter(|trial| trial.state == TrialState::Running && !search.is_waiting(trial.id))
                .map(|trial| (trial.id, trial.until))
                .collect();
            let (trial, length) = under_way[rng.below(under_way.len() as u64) as usize];
            let x = search.trial(trial).expect("known").hparams()["x"].as_f64().expect("a number");
            search.arrive(SearchEvent::Report { trial, length, metric: (x * 9.0).sin() });
        }
        let show = |trial: &crate::Trial| (trial.hparams().to_string(), trial.reports.clone());
        outcomes.push(search.trials().iter().map(show).collect::<Vec<_>>());
    }
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    assert_eq!(outcomes[0].len(), 12);
}

#[test]
fn in_fixed_order_pairs_between_rungs_only_tell_how_far_a_trial_is() {
    let searcher = format!("{HALVING}, max_trials: 3, max_concurrent_trials: 3, order: fixed");
    let searcher = searcher.replace("max_time: 4", "max_time: 16");
    // Rungs at 4, 8, 16. All are looked at 4 first, in the order of their making: trial 1 there at 5.
    let ends = replayed(&searcher, "[[3, 1], [5, 2], [16, 2]]\n3\n[[2, 9]]\n");
    let shown: Vec<String> = ends.iter().map(|(length, why)| format!("{length} {why}")).collect();
    assert_eq!(
        shown,
        [
            "16 reached the top rung at 16",
            "4 stopped at rung 1 of 3 at 4: place 2 of 2, the best 1 go on",
            "2 ended by itself at 2",
        ]
    );
}

/// The brackets of a searcher, each as rungs, trials, trials at a time.
fn shown_brackets(searcher: &str) -> Vec<(Vec<u64>, u64, u64)> {
    let file = SearchFile::parse(&format!("searcher: {{metric: loss, {searcher}}}"), &[]);
    let method = file.and_then(|file| file.method(1)).unwrap_or_else(|error| panic!("{error}"));
    let crate::SchedulerRule::Halving { brackets, .. } = method.rule else { panic!("no brackets") };
    let show = |b: &crate::Bracket| (b.rungs.clone(), b.max_trials, b.max_concurrent_trials);
    brackets.iter().map(show).collect()
}

#[test]
fn adaptive_brackets_in_all_modes() {
    let of = |mode: &str, rest: &str| {
        shown_brackets(&format!("name: adaptive_asha, mode: {mode}, divisor: 3, {rest}"))
    };
    // 3^4 = 81 <= 100 < 243 units and 3^3 = 27 <= 50 < 81 trials: four rungs. Weights 27/4, 9/3, 3/2, 1/1 are 12.25
    // in sum: 50 trials are 27.55, 12.24, 6.12 and 4.08; one is left over.
    let rest = "max_trials: 50, max_time: 100, max_concurrent_trials: 10";
    let (four, three) = (vec![3, 11, 33, 100], vec![11, 33, 100]);
    let (two, one) = (vec![33, 100], vec![100]);
    assert_eq!(
        of("conservative", rest),
        [(four.clone(), 28, 3), (three.clone(), 12, 3), (two.clone(), 6, 2), (one, 4, 2)]
    );
    // Two to four rungs: weights are 11.25 in sum, trials 30, 13.33 and 6.67.
    assert_eq!(of("standard", rest), [(four.clone(), 31, 4), (three, 13, 3), (two, 6, 3)]);
    assert_eq!(of("aggressive", rest), [(four, 50, 10)]);
    // Without a bound on trials at a time: as many as the last bracket has, or the divisor.
    let free = "max_trials: 50, max_time: 100, max_concurrent_trials: 0";
    let at_a_time: Vec<u64> = of("standard", free).into_iter().map(|bracket| bracket.2).collect();
    assert_eq!(at_a_time, [6, 6, 6]);
    // Brackets that the file names come in the order of their rungs; weights 3/2 and 1/1.
    assert_eq!(
        of("standard", "bracket_rungs: [1, 2], max_trials: 10, max_time: 9"),
        [(vec![3, 9], 6, 8), (vec![9], 4, 8)]
    );
    // One trial has one rung.
    assert_eq!(of("conservative", "max_trials: 1, max_time: 9"), [(vec![9], 1, 16)]);
}

#[test]
fn trials_of_several_brackets_are_made_bracket_by_bracket_and_compared_within_theirs() {
    // [1, 2, 4] with two trials, [2, 4] and [4] with one each.
    let searcher = "name: adaptive_asha, mode: conservative, divisor: 2, max_trials: 4, max_time: 4, \
                    max_concurrent_trials: 4";
    // Trial 2 is second of two in the first bracket; trials 3 and 4 are alone in theirs, however bad.
    assert_eq!(lengths(searcher, "2\n3\n50\n60\n"), [4, 1, 4, 4]);
    assert_eq!(lengths(searcher, "2\n1\n50\n60\n"), [4, 4, 4, 4]);
}

#[test]
fn rungs_of_the_same_length_are_passed_together() {
    // max(2 / 64, 1), max(2 / 16, 1), max(2 / 4, 1), 2: one look at 1 is for three rungs.
    let searcher = "name: async_halving, num_rungs: 4, divisor: 4, max_time: 2, max_trials: 3, \
                    max_concurrent_trials: 3";
    let ends = replayed(searcher, "2\n1\n3\n");
    let shown: Vec<u64> = ends.iter().map(|(length, _)| *length).collect();
    assert_eq!(shown, [2, 2, 1]);
    assert_eq!(ends[2].1, "stopped at rung 1 of 4 at 1: place 3 of 3, the best 1 go on");
    // In the promotion form they add up: 1, 2, 3, 5.
    let promotion = format!("{searcher}, stop_once: false");
    assert_eq!(shown_brackets(&promotion)[0].0, [1, 2, 3, 5]);
}

#[test]
fn what_is_not_a_number_waits_for_ever_in_the_promotion_form() {
    let searcher = format!("{HALVING}, max_trials: 4, max_concurrent_trials: 4, stop_once: false");
    // Of two one goes on: the second, which is a number. Of four two: the third joins. At 3 the second is the better.
    assert_eq!(lengths(&searcher, "NaN\n2\n3\nNaN\n"), [1, 7, 3, 1]);
    let bigger = format!("{searcher}, smaller_is_better: false");
    // The third is better than the second when it comes, also at 3.
    assert_eq!(lengths(&bigger, "NaN\n2\n3\nNaN\n"), [1, 3, 7, 1]);
}

#[test]
fn pairs_between_rungs_decide_nothing_and_later_ones_count_for_all_rungs_before() {
    let searcher = format!("{HALVING}, max_trials: 3, max_concurrent_trials: 3, max_rungs: 5");
    let searcher = searcher.replace("max_time: 4", "max_time: 16");
    // Rungs at 4, 8, 16. Trial 1 is looked at 3 and 5: at 5 it stands in the first rung. Trial 2 comes at 4, before it,
    // and trial 3 at 9 stands in two at once, the last of three in the first.
    let ends = replayed(&searcher, "[[3, 1], [5, 2], [16, 2]]\n3\n[[9, 9]]\n");
    let shown: Vec<u64> = ends.iter().map(|(length, _)| *length).collect();
    assert_eq!(shown, [16, 16, 9]);
}
