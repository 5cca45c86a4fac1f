//! Sums are right, and have the same bits on all members.

use salamander_net::{Error, Fold, Ring};

use crate::group::{Group, WAYS, Way, value};

const LENGTHS: [usize; 10] = [0, 1, 3, 7, 16, 33, 1000, 4096, 65_537, 300_001];

/// Sums all lengths one after the other; the results of each.
fn sum_lengths(mut ring: Ring) -> Vec<Vec<f32>> {
    let mut sums = Vec::new();
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let rank = ring.rank();
        let bucket = ring.bucket(len).expect("a bucket");
        assert_eq!(bucket.len(), len);
        for (index, place) in bucket.iter_mut().enumerate() {
            *place = value(rank, index, round);
        }
        sums.push(ring.all_reduce(len).expect("a sum").to_vec());
    }
    sums
}

fn check(way: Way, size: usize, bf16: bool) {
    let mut group = Group::new(size, way);
    group.options.bf16 = bf16;
    let sums = group.run(1, sum_lengths);
    for (round, len) in LENGTHS.into_iter().enumerate() {
        for index in 0..len {
            let bits = sums[0][round][index].to_bits();
            let same = sums.iter().all(|member| member[round][index].to_bits() == bits);
            assert!(same, "{way:?} {size} {len} {index}: members differ");
            let values = (0..size).map(|rank| value(rank, index, round));
            let found = sums[0][round][index];
            if way == Way::Shm || size <= 2 && !bf16 {
                // The order of ranks, to the bit.
                let expected = values.fold(-0.0f32, |sum, value| sum + value);
                assert_eq!(found, expected, "{way:?} {size} {len} {index}");
            } else {
                let expected: f64 = values.clone().map(f64::from).sum();
                let size_of_all: f64 = values.map(|value| f64::from(value.abs())).sum();
                // Each of the hops may round once.
                let last_place = if bf16 { 1.0 / 256.0 } else { 1.0 / (1 << 23) as f64 };
                let allowed = size_of_all * last_place * size as f64;
                let error = (f64::from(found) - expected).abs();
                assert!(error <= allowed, "{way:?} {size} {len} {index}: {found} {expected}");
            }
        }
    }
}

#[test]
fn shared_memory_sums_in_rank_order() {
    (1..=8).for_each(|size| check(Way::Shm, size, false));
}

#[test]
fn sums_over_tls_are_the_same_everywhere() {
    (1..=5).for_each(|size| check(Way::Tls, size, false));
    check(Way::Tls, 3, true);
}

#[test]
fn tcp_sums_are_the_same_everywhere() {
    (1..=8).for_each(|size| check(Way::Tcp, size, false));
}

#[test]
fn mixed_sums_are_the_same_everywhere() {
    (3..=8).for_each(|size| check(Way::Mixed, size, false));
}

#[test]
fn sums_in_16_bits_are_close_and_the_same_everywhere() {
    (1..=6).for_each(|size| check(Way::Tcp, size, true));
    check(Way::Mixed, 5, true);
    check(Way::Shm, 3, true);
}

#[test]
fn transports_have_their_names() {
    let check = |way, size, expected: &str| {
        let names = Group::new(size, way).run(1, |mut ring| {
            ring.barrier().expect("all are connected");
            (ring.transport(), ring.size())
        });
        assert!(names.iter().all(|name| *name == (expected, size)), "{names:?}");
    };
    check(Way::Shm, 1, "alone");
    check(Way::Shm, 2, "shm");
    check(Way::Tcp, 2, "tcp");
    check(Way::Tls, 2, "tls");
    check(Way::Mixed, 3, "mixed");
}

#[test]
fn bucket_keeps_its_values_between_sums() {
    for way in WAYS {
        Group::new(3, way).run(1, |mut ring| {
            ring.bucket(100).expect("a bucket").fill(1.0);
            ring.all_reduce(50).expect("a sum");
            let values = ring.bucket(100).expect("the same bucket");
            assert!(values[..50].iter().all(|value| *value == 3.0));
            assert!(values[50..].iter().all(|value| *value == 1.0));
            ring.all_reduce(100).expect("a sum");
            assert_eq!(ring.bucket(100).expect("the same bucket")[99], 3.0);
            assert!(ring.bytes_moved() > 0);
        });
    }
}

#[test]
fn different_lengths_are_a_mismatch() {
    for way in WAYS {
        let errors = Group::new(2, way).run(1, |mut ring| {
            let len = 100 + ring.rank();
            ring.bucket(1000).expect("a bucket");
            ring.all_reduce(len).expect_err("lengths differ")
        });
        let mismatch = |error: &Error| matches!(error, Error::Mismatch(_));
        assert!(errors.iter().any(mismatch), "{way:?} {errors:?}");
        let lost = |error: &Error| matches!(error, Error::Lost { .. });
        assert!(errors.iter().all(|error| mismatch(error) || lost(error)), "{way:?} {errors:?}");
    }
}

#[test]
fn different_collectives_are_a_mismatch() {
    for way in WAYS {
        let errors = Group::new(2, way).run(1, |mut ring| {
            ring.bucket(10).expect("a bucket");
            match ring.rank() {
                0 => ring.all_reduce(10).map(drop).expect_err("the other one gathers"),
                _ => ring.all_gather(b"x").map(drop).expect_err("the other one sums"),
            }
        });
        let mismatch = |error: &Error| matches!(error, Error::Mismatch(_));
        assert!(errors.iter().any(mismatch), "{way:?} {errors:?}");
    }
}

#[test]
fn sum_beyond_the_bucket_is_an_error() {
    let mut ring = Group::new(1, Way::Shm).run(1, |ring| ring).pop().expect("a member");
    ring.bucket(10).expect("a bucket");
    assert!(matches!(ring.all_reduce(11), Err(Error::Mismatch(_))));
}

/// The parts of a member: each has its own values.
fn fold_lengths(mut ring: Ring, fold: &Fold) -> Vec<Vec<u32>> {
    let mut sums = Vec::new();
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let rank = ring.rank();
        let bucket = ring.bucket(fold.bucket_len(len)).expect("a bucket");
        for part in 0..fold.parts(rank) {
            let place = bucket[Fold::part(len, part)].iter_mut().enumerate();
            place.for_each(|(index, place)| *place = value(8 * rank + part, index, round));
        }
        let folded = ring.fold(len, fold).expect("a sum");
        sums.push(folded.iter().map(|value| value.to_bits()).collect());
    }
    sums
}

/// Parts of each member and joins after each part, and what they come to on all transports.
fn check_fold(parts: &[usize], joins: &[u32]) {
    let fold = Fold::new(parts.to_vec(), joins.to_vec()).expect("one sum");
    let owners = parts.iter().enumerate();
    let all: Vec<usize> =
        owners.flat_map(|(rank, parts)| (0..*parts).map(move |part| 8 * rank + part)).collect();
    let expected = |index: usize, round: usize| {
        let mut stack: Vec<f32> = Vec::new();
        for (part, joins) in all.iter().zip(joins) {
            stack.push(value(*part, index, round));
            for _ in 0..*joins {
                let (right, left) = (stack.pop().expect("two"), stack.pop().expect("two"));
                stack.push(left + right);
            }
        }
        stack[0].to_bits()
    };
    for way in WAYS {
        let sums = Group::new(parts.len(), way).run(1, |ring| fold_lengths(ring, &fold));
        for (round, len) in LENGTHS.into_iter().enumerate() {
            let right: Vec<u32> = (0..len).map(|index| expected(index, round)).collect();
            let all = sums.iter().all(|member| member[round] == right);
            assert!(all, "{way:?} {parts:?} {len}");
        }
    }
}

#[test]
fn folds_have_the_same_bits_over_every_transport() {
    check_fold(&[1], &[0]);
    check_fold(&[3], &[0, 1, 1]);
    check_fold(&[1, 1], &[0, 1]);
    check_fold(&[1, 2, 2], &[0, 1, 0, 1, 2]);
    check_fold(&[1, 1, 1, 1], &[0, 1, 0, 2]);
    check_fold(&[0, 2, 0, 1, 3], &[0, 0, 1, 0, 0, 4]);
    check_fold(&[1; 8], &[0, 1, 0, 2, 0, 1, 0, 3]);
}

#[test]
fn folds_are_mixed_with_other_collectives() {
    for way in WAYS {
        let fold = Fold::new(vec![1, 1, 1, 1], vec![0, 1, 0, 2]).expect("one sum");
        Group::new(4, way).run(1, |mut ring| {
            for round in 0..20 {
                let rank = ring.rank();
                ring.bucket(5000).expect("a bucket")[..5000].fill((rank + round) as f32);
                assert_eq!(ring.fold(5000, &fold).expect("a sum")[4999], (6 + 4 * round) as f32);
                assert_eq!(ring.all_gather(&[rank as u8]).expect("all")[3], [3]);
                let state = if rank == 1 { vec![7; 10_000] } else { Vec::new() };
                assert_eq!(ring.broadcast(1, state, 1 << 20).expect("a state").len(), 10_000);
            }
        });
    }
}

#[test]
fn different_folds_are_a_mismatch() {
    let orders = [[&[0, 1, 1][..], &[0, 0, 2]], [&[0, 1, 0, 2], &[0, 1, 1, 1]]];
    for (way, [most, one]) in WAYS.into_iter().flat_map(|way| orders.map(|order| (way, order))) {
        let errors = Group::new(most.len(), way).run(1, |mut ring| {
            let joins = if ring.rank() == 1 { one } else { most };
            let fold = Fold::new(vec![1; joins.len()], joins.to_vec()).expect("one sum");
            ring.bucket(100).expect("a bucket");
            ring.fold(100, &fold).map(drop).expect_err("the orders differ")
        });
        assert!(errors.iter().any(|error| matches!(error, Error::Mismatch(_))), "{errors:?}");
    }
}

#[test]
fn folds_in_16_bits_are_close_and_the_same_everywhere() {
    let mut group = Group::new(3, Way::Tcp);
    group.options.bf16 = true;
    let fold = Fold::new(vec![2, 0, 1], vec![0, 1, 1]).expect("one sum");
    let sums = group.run(1, |mut ring| {
        let bucket = ring.bucket(fold.bucket_len(100)).expect("a bucket");
        bucket.fill(1.0);
        ring.fold(100, &fold).expect("a sum").to_vec()
    });
    assert!(sums.iter().all(|sums| *sums == [3.0; 100]), "{sums:?}");
}
