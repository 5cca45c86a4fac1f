//! Whole courses, walked step by step.

use super::*;
use crate::metrics::Metric;
use crate::report::Measured;

/// Ten records in batches of four: three steps, the last one short.
fn course(settings: &str, validation: u64) -> Course {
    course_over(10, settings, validation).expect("a course")
}

fn course_over(training: u64, settings: &str, validation: u64) -> Result<Course, Error> {
    let text = format!("hyperparameters: {{global_batch_size: 4}}\n{settings}");
    let experiment = Experiment::parse(&text, &[]).expect("an experiment");
    Course::new(&experiment, Schedule::default(), DataSizes { training, validation })
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
    walk_streamed(course, losses, &mut |_| {})
}

/// The same; `wait` is called before whatever comes next.
fn walk_streamed(course: &mut Course, losses: &[f64], wait: &mut dyn FnMut(&mut Course)) -> String {
    let mut losses = losses.iter();
    let mut done = Vec::new();
    loop {
        wait(course);
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
fn streamed_data_takes_the_course_of_data_that_is_there() {
    let check = |settings: &str, validation, arriving: &[u64]| {
        let expected = walk(&mut course(settings, validation), &[2.0, 1.0]);
        let mut streamed = course_over(UNCOUNTED, settings, validation).expect("a course");
        let mut arriving = arriving.iter();
        let mut wait = |course: &mut Course| {
            while let Next::Step(place) = course.next()
                && !course.is_ready(place)
            {
                assert_eq!(course.start(0, 1, true).total.0, 0, "nobody knows it yet");
                match arriving.next() {
                    Some(there) => course.records_there(*there),
                    None => course.counted(10).expect("it has them"),
                }
            }
        };
        assert_eq!(walk_streamed(&mut streamed, &[2.0, 1.0], &mut wait), expected, "{settings}");
        let complete = streamed.progress().epoch > 0;
        assert!(!complete || streamed.start(0, 1, true).records == 10);
    };
    for arriving in [&[1, 4, 5, 8, 9, 10][..], &[10], &[]] {
        for settings in [
            "max_length: {epochs: 2}",
            "max_length: {batches: 2}",
            "max_length: {records: 8}",
            "max_length: {epochs: 2}\nmin_validation_period: {batches: 2}",
            "max_length: {epochs: 2}\noptimizations: {aggregation_frequency: 2}",
            "searcher: {max_length: {epochs: 2}, pause_at: {epochs: 1}}",
        ] {
            check(settings, 5, arriving);
            check(settings, 0, arriving);
        }
    }
}

#[test]
fn a_step_of_streamed_data_waits_until_others_follow_or_all_are_counted() {
    let mut course = course_over(UNCOUNTED, "", 0).expect("a course");
    let Next::Step(first) = course.next() else { panic!("a step") };
    for (there, ready) in [(0, 0), (4, 0), (5, 1), (8, 1), (9, 2)] {
        course.records_there(there);
        assert_eq!(course.ready_steps().count(), ready, "{there} records");
        assert_eq!(course.is_ready(first), ready > 0, "{there} records");
    }
    course.counted(10).expect("it has them");
    assert_eq!(course.ready_steps().count(), 3);
    let before = course.fingerprint();
    course.uncount();
    assert_ne!(course.fingerprint(), before);
    assert!(!course.is_ready(first));
}

#[test]
fn what_needs_the_whole_length_or_has_other_data_is_refused() {
    let cosine = "schedule: {curve: {cosine: {floor: 0.1}}}";
    let error = course_over(UNCOUNTED, cosine, 0).expect_err("no length").to_string();
    assert!(error.starts_with("schedule: a curve over all of training"), "{error}");
    course_over(10, cosine, 0).expect("the length is known");
    course_over(UNCOUNTED, "schedule: {curve: {cosine: {over: 9}}}", 0).expect("it is given");
    let mut course = course_over(UNCOUNTED, "", 0).expect("a course");
    course.restore(Progress { step: 3, ..Progress::default() });
    let error = course.counted(10).expect_err("three steps are all of it").to_string();
    assert!(error.starts_with("data.training: it has 10 records, and 3 steps"), "{error}");
    course.counted(13).expect("a fourth one is left");
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
