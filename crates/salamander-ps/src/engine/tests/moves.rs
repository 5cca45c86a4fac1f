//! Any placement gives the same rows, and partitions carry everything with them when they move.

use std::ops::Range;

use super::*;

/// Engines that share the partitions, the last one the rest.
fn servers(mode: Mode, cuts: &[u16]) -> Vec<(Range<u16>, Engine)> {
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([1024]);
    let server = |(start, end)| {
        let range: Range<u16> = start..end;
        let options = EngineOptions { partitions: vec![range.clone()], ..options(mode, 2) };
        (range, engine(options))
    };
    starts.zip(ends).map(server).collect()
}

fn owned(range: &Range<u16>) -> impl Fn(u16) -> bool + use<> {
    let range = range.clone();
    move |partition| range.contains(&partition)
}

/// The rows of the pool, each from the server that has it.
fn rows_of(servers: &[(Range<u16>, Engine)], table: u32) -> Vec<f32> {
    let dim = specs()[table as usize].dim;
    let mut all = Vec::new();
    for id in pool() {
        let mut row = vec![0.0; dim];
        let owner = servers.iter().find(|(range, _)| range.contains(&partition_of(id)));
        let (_, engine) = owner.expect("somebody has it");
        engine.pull(TableId(table), &[id], Read::Evaluate, &mut row).expect("it is there");
        all.extend(row);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_placement_gives_the_same_rows(steps in steps(), mode in modes()) {
        let placements = [servers(mode, &[]), servers(mode, &[2]), servers(mode, &[1, 3])];
        for servers in &placements {
            for (at, step) in steps.iter().enumerate() {
                for (range, engine) in servers {
                    apply(engine, mode, at, step, &owned(range));
                }
            }
        }
        for table in 0..5 {
            let expected = rows_of(&placements[0], table);
            prop_assert_eq!(&expected, &rows_of(&placements[1], table));
            prop_assert_eq!(&expected, &rows_of(&placements[2], table));
        }
    }

    /// What is moved in mid-run trains on like what stayed.
    #[test]
    fn moved_partitions_train_on(steps in steps(), mode in modes(), cut in 0usize..60) {
        let whole = engine(options(mode, 1));
        let (left, right) = (
            engine(options(mode, 2)),
            engine(EngineOptions { partitions: Vec::new(), ..options(mode, 3) }),
        );
        let mut moved = false;
        for (at, step) in steps.iter().enumerate() {
            let between_steps = mode == Mode::Immediate || matches!(step, EngineRequest::Advance);
            if !moved && at >= cut && between_steps {
                apply(&left, mode, at, step, &|_| true);
                apply(&right, mode, at, step, &|_| false);
                let bytes = left.take(&[1, 3, 700]).expect("they are here");
                right.put(&bytes).expect("they are not here");
                prop_assert_eq!(right.partitions(), &[1, 3, 700]);
                moved = true;
            } else {
                let gone = |partition| moved && [1, 3, 700].contains(&partition);
                apply(&left, mode, at, step, &|partition| !gone(partition));
                apply(&right, mode, at, step, &gone);
            }
            apply(&whole, mode, at, step, &|_| true);
        }
        prop_assume!(moved);
        for (at, spec) in specs().iter().enumerate() {
            let table = TableId(at as u32);
            let expected = there(whole.changed(table, 0).expect("known"), spec.dim);
            let mut got = there(left.changed(table, 0).expect("known"), spec.dim);
            got.extend(there(right.changed(table, 0).expect("known"), spec.dim));
            got.sort_unstable();
            prop_assert_eq!(got, expected, "{}", &spec.name);
        }
        if mode == Mode::Immediate {
            let expected = whole.applied().expect("the threads live").remove(0).applied;
            for held in right.applied().expect("the threads live") {
                prop_assert_eq!(&held.applied, &expected);
            }
        }
    }

    #[test]
    fn damaged_moves_are_refused(at in 0usize..10_000, flip in 1u8..=255, cut: bool) {
        let left = engine(options(Mode::Staged, 1));
        left.set(load(0, 1, &[1, 2, 3, 4, 5]).rows()).expect("set");
        let mut bytes = left.take(&[0, 1, 2]).expect("they are here");
        let at = at % bytes.len();
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= flip;
        }
        let right = engine(EngineOptions { partitions: Vec::new(), ..options(Mode::Staged, 2) });
        prop_assert!(right.put(&bytes).is_err());
        prop_assert_eq!(right.partitions(), Vec::<u16>::new());
    }
}

#[test]
fn moves_wait_for_the_step() {
    let engine = engine(options(Mode::Staged, 1));
    engine.stage(StepCount(0), 0, &[load(0, 0, &[1]).rows()]).expect("staged");
    assert!(matches!(engine.take(&[1]), Err(Error::Request(_))));
    engine.advance(StepCount(1), 1.0, 1.0).expect("the next step");
    let bytes = engine.take(&[1]).expect("it is here");
    assert!(matches!(engine.take(&[1]), Err(Error::NotHere(1))));
    engine.advance(StepCount(2), 1.0, 1.0).expect("the next step");
    let refused = engine.put(&bytes);
    assert!(matches!(
        refused,
        Err(Error::OutOfStep(OutOfStep { current: StepCount(2), asked: StepCount(1) }))
    ));
    engine.clear(StepCount(1)).expect("the threads live");
    engine.put(&bytes).expect("the same step");
    assert!(matches!(engine.put(&bytes), Err(Error::Request(_))));
}
