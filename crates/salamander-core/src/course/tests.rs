//! Whole courses, walked step by step.

use super::*;
use crate::metrics::Metric;
use crate::report::Measured;

/// Ten records in batches of four: three steps, the last one short.
fn course(settings: &str, validation: u64) -> Course {
    let text = format!("hyperparameters: {{global_batch_size: 4}}\n{settings}");
    let experiment = Experiment::parse(&text, &[]).expect("an experiment");
    let sizes = DataSizes { training: 10, validation };
    Course::new(&experiment, Schedule::default(), sizes).expect("a course")
}

fn metrics(loss: f64) -> Metrics {
    Metrics::new().with("loss", Metric::mean(loss, 1.0))
}

fn pass(records: u64) -> PassDone {
    let tally = Tally { applied: records, ..Tally::default() };
    PassDone { tally, loss: records as f64, ..PassDone::default() }
}

/// Walks through a course; a validation finds the next of these losses. Returns what was done, as text: `0.2` is the
/// third step of the first epoch, `v` a validation, `s` a checkpoint, `b` one of the best state, `e0` the report of an
/// epoch, `.` the end.
fn walk(course: &mut Course, losses: &[f64]) -> String {
    let mut losses = losses.iter();
    let mut done = Vec::new();
    loop {
        let told = match course.next() {
            Next::Step(place) => {
                done.push(format!("{}.{}", place.epoch, place.step));
                let step = course.pass_done(place, 1, pass(1)).expect("its only pass");
                course.step_done(step, Wishes::default(), Duration::ZERO)
            }
            Next::Validate => {
                done.push("v".to_string());
                let loss = losses.next().copied().unwrap_or(1.0);
                course.validated(metrics(loss), false, Duration::ZERO).expect("it has a loss")
            }
            Next::Save => {
                done.push(if course.saved().is_some() { "b" } else { "s" }.to_string());
                None
            }
            Next::Finished => break,
        };
        done.extend(told.map(|epoch| format!("e{}", epoch.epoch)));
        assert!(done.len() < 100, "{done:?}");
    }
    done.push(".".to_string());
    done.join(" ")
}

fn check(settings: &str, validation: u64, losses: &[f64], expected: &str) {
    assert_eq!(walk(&mut course(settings, validation), losses), expected, "{settings}");
}

#[test]
fn what_follows_a_step_is_what_the_experiment_says() {
    let two = "max_length: {epochs: 2}\n";
    let with = |more: &str| format!("{two}{more}");
    check(two, 0, &[], "0.0 0.1 0.2 e0 s 1.0 1.1 1.2 e1 s .");
    check(two, 5, &[2.0, 1.0], "0.0 0.1 0.2 v e0 b 1.0 1.1 1.2 v e1 b .");
    // The last state is kept whatever the validation says.
    check(two, 5, &[1.0, 2.0], "0.0 0.1 0.2 v e0 b 1.0 1.1 1.2 v e1 b .");
    check("max_length: {epochs: 1}", 5, &[f64::NAN], "0.0 0.1 0.2 v e0 s .");
    check(&with("checkpoint_policy: none"), 0, &[], "0.0 0.1 0.2 e0 1.0 1.1 1.2 e1 s .");
    check(
        &with("checkpoint_policy: all"),
        5,
        &[1.0, 2.0],
        "0.0 0.1 0.2 v e0 b 1.0 1.1 1.2 v e1 b .",
    );
    let initial = "perform_initial_validation: true";
    check(&with(initial), 0, &[], "0.0 0.1 0.2 e0 s 1.0 1.1 1.2 e1 s .");
    check(&with(initial), 5, &[3.0, 2.0], "v 0.0 0.1 0.2 v e0 b 1.0 1.1 1.2 v e1 b .");
    let often = "min_validation_period: {batches: 2}\ncheckpoint_policy: none";
    check(&with(often), 5, &[], "0.0 0.1 v e0 0.2 e0 1.0 v e1 1.1 1.2 v e1 b .");
    let rarely = "min_validation_period: {epochs: 2}";
    check(&with(rarely), 5, &[], "0.0 0.1 0.2 e0 1.0 1.1 1.2 v e1 b .");
    let saves = "min_checkpoint_period: {batches: 2}\ncheckpoint_policy: none";
    check(&with(saves), 0, &[], "0.0 0.1 s 0.2 e0 1.0 s 1.1 1.2 e1 s .");
    check("max_length: {batches: 4}", 5, &[2.0, 1.0], "0.0 0.1 0.2 v e0 b 1.0 v e1 b .");
    let stop = "max_length: {epochs: 9}\nearly_stop: {patience: 0}";
    check(stop, 5, &[1.0, 2.0], "0.0 0.1 0.2 v e0 b 1.0 1.1 1.2 v e1 b .");
}

#[test]
fn wishes_end_training_with_a_checkpoint() {
    let check = |wishes: Wishes, validation: u64, expected: &str, ending: Ending| {
        let mut course = course("max_length: {epochs: 2}", validation);
        let Next::Step(place) = course.next() else { panic!("a step") };
        let step = course.pass_done(place, 1, pass(1)).expect("its only pass");
        let told = course.step_done(step, wishes, Duration::ZERO);
        let told = told.map_or(String::new(), |epoch| format!("e{} ", epoch.epoch));
        assert_eq!(told + &walk(&mut course, &[]), expected, "{wishes:?}");
        assert_eq!(course.ending(), ending);
    };
    let interrupt = Wishes { interrupt: true, ..Wishes::default() };
    let stop = Wishes { stop: true, ..Wishes::default() };
    check(interrupt, 5, "s .", Ending::Interrupted);
    check(stop, 0, "e0 s .", Ending::Completed);
    check(stop, 5, "v e0 b .", Ending::Completed);
    check(Wishes { interrupt: true, stop: true, save: false }, 0, "e0 s .", Ending::Completed);
}

#[test]
fn a_run_that_was_interrupted_goes_on() {
    let mut course = course("max_length: {epochs: 1}", 0);
    course.interrupt();
    assert_eq!(walk(&mut course, &[]), "s .");
    course.resume();
    assert_eq!(walk(&mut course, &[]), "0.0 0.1 0.2 e0 s .");
    course.interrupt();
    assert_eq!(course.next(), Next::Finished, "there is nothing left to interrupt");
}

#[test]
fn a_pause_is_an_end_that_goes_on() {
    let at = |pause: &str| format!("searcher: {{max_length: {{epochs: 2}}{pause}}}");
    let mut course = course(&at(", pause_at: {batches: 4}"), 5);
    assert_eq!(walk(&mut course, &[2.0, 1.0]), "0.0 0.1 0.2 v e0 b 1.0 v e1 b .");
    assert_eq!(course.ending(), Ending::Completed);
    assert_eq!(course.start(0, 1, true).total.0, 6, "the schedule knows the whole length");
    let paused = course.progress().clone();
    course.restore(paused.clone());
    assert_eq!(course.next(), Next::Finished, "nothing is done twice");
    let mut later = super::tests::course(&at(""), 5);
    later.restore(paused);
    assert_eq!(walk(&mut later, &[0.5]), "1.1 1.2 v e1 b .");
}

#[test]
fn several_passes_are_one_step() {
    let mut course = course("", 0);
    let Next::Step(place) = course.next() else { panic!("a step") };
    assert!(course.pass_done(place, 2, pass(4)).is_none());
    assert_eq!(course.pass(), 1);
    let second = PassDone { overflow: true, ..pass(4) };
    let step = course.pass_done(place, 2, second).expect("the last pass");
    assert!(step.report.skipped, "one of its passes was");
    assert_eq!((step.report.loss, step.report.records, step.report.steps.0), (1.0, 0, 1));
    assert_eq!(course.progress().ledger.lines()[0].overflowed, 4);
}

#[test]
fn steps_ahead_are_those_that_come() {
    let mut course = course("max_length: {batches: 4}", 0);
    let ahead: Vec<(u64, u64)> = course.steps().map(|place| (place.epoch, place.step)).collect();
    assert_eq!(ahead, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!(walk(&mut course, &[]), "0.0 0.1 0.2 e0 s 1.0 e1 s .");
    assert_eq!(course.steps().count(), 0);
}

/// Tells of micro-batches in this order; returns the reports of steps, and what comes next.
fn tell(course: &mut Course, collected: &mut Collected, names: &[(u64, u32)]) -> Vec<u64> {
    let mut steps = Vec::new();
    for (step, k) in names {
        let name = MicroBatch { epoch: course.progress().epoch, step: *step, k: *k };
        let tally = Tally { applied: 2, ..Tally::default() };
        let measured = Measured { tally, loss: 1.0, metrics: metrics(1.0), ..Measured::default() };
        if let Some(done) = course.measured(collected, name, &measured) {
            steps.push(done.report.step);
            assert_eq!(course.step_done(done, Wishes::default(), Duration::ZERO), None);
        }
    }
    steps
}

#[test]
fn micro_batches_in_any_order_come_to_the_same_end() {
    let settings = "strategy: ps\nworkers: 2\nmax_length: {epochs: 1}";
    let mut course = course(settings, 5);
    let mut collected = Collected::new(course.plan());
    // The last step has only one micro-batch of two records.
    let names = [(2, 0), (1, 1), (1, 1), (0, 0), (1, 0), (0, 1), (0, 0)];
    assert_eq!(tell(&mut course, &mut collected, &names), [2, 1, 0]);
    assert_eq!((course.progress().steps.0, course.progress().records), (3, 10));
    assert_eq!(course.epoch_done(&mut collected, 0, Duration::ZERO), None, "it has ended");
    assert_eq!(walk(&mut course, &[]), "v e0 b .");
}

#[test]
fn an_epoch_ends_although_a_killed_master_took_reports_with_it() {
    let mut course = course("strategy: ps\nworkers: 2\nmax_length: {epochs: 2}", 0);
    let mut collected = Collected::new(course.plan());
    assert_eq!(tell(&mut course, &mut collected, &[(0, 0), (0, 1), (1, 0)]), [0]);
    let told = course.epoch_done(&mut collected, 0, Duration::from_secs(3)).expect("a report");
    assert_eq!((told.steps.0, told.complete, told.seconds), (3, true, 3.0));
    assert_eq!((course.progress().steps.0, course.progress().batches), (3, 3));
    assert_eq!((course.progress().records, course.progress().epoch), (6, 1));
    assert_eq!(course.next(), Next::Save);
    // What the killed master had not heard comes too late, and so does what nobody can have computed.
    for (epoch, step, k) in [(0, 1, 1), (0, 2, 0), (1, 9, 0), (1, 0, 7)] {
        let name = MicroBatch { epoch, step, k };
        assert!(course.measured(&mut collected, name, &Measured::default()).is_none(), "{name:?}");
    }
}

#[test]
fn a_checkpoint_that_is_due_is_not_lost_to_the_step_after_it() {
    let settings = "strategy: ps\nworkers: 2\nmax_length: {epochs: 2}\n\
                    min_checkpoint_period: {batches: 2}\ncheckpoint_policy: none";
    let mut course = course(settings, 0);
    let mut collected = Collected::new(course.plan());
    course.epoch_done(&mut collected, 0, Duration::ZERO).expect("a report");
    course.saved();
    // One report of two steps, the fourth and the fifth batch of the run: nobody looks in between.
    let names = [(0, 0), (0, 1), (1, 0), (1, 1)];
    assert_eq!(tell(&mut course, &mut collected, &names), [0, 1]);
    assert_eq!(course.next(), Next::Save);
}

#[test]
fn steps_that_others_were_at_come_before_the_validation() {
    let settings = "strategy: ps\nworkers: 2\nmax_length: {epochs: 1}\n\
                    min_validation_period: {batches: 1}\nmin_checkpoint_period: {batches: 2}\n\
                    checkpoint_policy: none";
    let mut course = course(settings, 5);
    let mut collected = Collected::new(course.plan());
    let names = [(0, 0), (0, 1), (1, 0)];
    assert_eq!(tell(&mut course, &mut collected, &names), [0]);
    assert_eq!((course.next(), course.ends_epoch()), (Next::Validate, false));
    assert_eq!(tell(&mut course, &mut collected, &[(1, 1)]), [1], "it was under way");
    let told = course.validated(metrics(1.0), false, Duration::ZERO).expect("it has a loss");
    assert!(told.is_some_and(|epoch| !epoch.complete));
    assert_eq!(course.next(), Next::Save, "the second step asked for it");
    assert_eq!(course.saved(), Some(1.0));
    assert!(matches!(course.next(), Next::Step(place) if place.step == 2));
}

#[test]
fn strategy_ps_refuses_a_part_of_an_epoch() {
    let experiment = Experiment::parse("strategy: ps\nmax_length: {batches: 7}", &[]);
    let sizes = DataSizes { training: 1000, validation: 0 };
    let course = Course::new(&experiment.expect("read"), Schedule::default(), sizes);
    let error = course.expect_err("refused").to_string();
    assert!(error.starts_with("searcher.max_length: strategy ps trains whole epochs"), "{error}");
}

#[test]
fn a_checkpoint_to_recover_from_is_due_by_time_whatever_the_policy() {
    let at = Duration::from_secs;
    let step = |course: &mut Course, now: u64| {
        let Next::Step(place) = course.next() else { panic!("no step: {:?}", course.next()) };
        let done = course.pass_done(place, 1, pass(1)).expect("its only pass");
        let wishes = Wishes { save: course.recovery_due(at(now)), ..Wishes::default() };
        course.step_done(done, wishes, at(now));
    };
    for policy in ["best", "all", "none"] {
        let text = format!("checkpoint_policy: {policy}\nmax_length: {{epochs: 9}}");
        let mut course = course(&text, 0);
        step(&mut course, 59);
        assert!(matches!(course.next(), Next::Step(_)), "{policy}");
        step(&mut course, 60);
        assert_eq!((course.next(), course.is_recovery()), (Next::Save, true), "{policy}");
        assert_eq!(course.saved(), None);
        assert!(!course.recovery_due(at(119)) && course.recovery_due(at(120)), "{policy}");
        // One of the end of an epoch, which all but `none` keep, is as good.
        step(&mut course, 100);
        assert_eq!(course.is_recovery(), policy == "none");
        assert_eq!(course.recovery_due(at(120)), policy == "none");
    }
    let mut never = course("recovery_period: 0", 0);
    step(&mut never, 1_000_000);
    assert!(matches!(never.next(), Next::Step(_)));
}
