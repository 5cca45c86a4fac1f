//! Gathering, broadcasting and waiting for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use salamander_net::Error;

use crate::group::{Group, WAYS, Way};

/// Bytes that tell who sent them and how many there are.
fn message(rank: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + rank * 7 + length) as u8).collect()
}

#[test]
fn messages_of_any_length_are_gathered_by_rank() {
    for (way, size) in
        [(Way::Shm, 1), (Way::Shm, 3), (Way::Tcp, 2), (Way::Tcp, 4), (Way::Mixed, 5), (Way::Tls, 3)]
    {
        Group::new(size, way).run(1, |mut ring| {
            for base in [0, 1, 10, 1000, (1 << 20) - 1] {
                let own = message(ring.rank(), base * ring.rank());
                let gathered = ring.all_gather(&own).expect("gathered");
                assert_eq!(gathered.len(), size);
                for (rank, found) in gathered.iter().enumerate() {
                    assert!(*found == message(rank, base * rank), "{way:?} {size} {base} {rank}");
                }
            }
        });
    }
}

#[test]
fn broadcast_reaches_all_from_any_root() {
    for (way, size) in
        [(Way::Shm, 1), (Way::Shm, 4), (Way::Tcp, 2), (Way::Tcp, 4), (Way::Mixed, 3), (Way::Tls, 3)]
    {
        Group::new(size, way).run(1, |mut ring| {
            for root in [0, size - 1] {
                for length in [0, 1, 1000, 1 << 20, 2_500_001] {
                    let own = if ring.rank() == root { message(root, length) } else { Vec::new() };
                    let found = ring.broadcast(root, own, 1 << 30).expect("a broadcast");
                    assert!(found == message(root, length), "{way:?} {size} {root} {length}");
                }
            }
        });
    }
}

#[test]
fn kinds_of_collectives_follow_each_other() {
    for way in WAYS {
        Group::new(4, way).run(1, |mut ring| {
            for round in 0..20 {
                ring.bucket(100 + round).expect("a bucket").fill(1.0);
                assert_eq!(ring.all_reduce(100 + round).expect("a sum")[round], 4.0);
                let own = [ring.rank() as u8];
                assert_eq!(ring.all_gather(&own).expect("gathered"), [[0], [1], [2], [3]]);
                let root = round % 4;
                let own = if ring.rank() == root { vec![7; round] } else { Vec::new() };
                assert_eq!(ring.broadcast(root, own, 100).expect("a broadcast"), vec![7; round]);
                ring.barrier().expect("all are here");
            }
        });
    }
}

#[test]
fn nobody_passes_a_barrier_before_the_last_has_come() {
    for way in WAYS {
        let arrived = AtomicUsize::new(0);
        Group::new(3, way).run(1, |mut ring| {
            for round in 1..4 {
                std::thread::sleep(Duration::from_millis(ring.rank() as u64 * 3));
                arrived.fetch_add(1, Ordering::SeqCst);
                ring.barrier().expect("all are here");
                assert!(arrived.load(Ordering::SeqCst) >= 3 * round, "{way:?}");
            }
        });
    }
}

#[test]
fn too_much_is_refused_before_memory_is_taken() {
    for way in WAYS {
        let errors = Group::new(3, way).run(1, |mut ring| {
            let own = if ring.rank() == 1 { vec![0; 1001] } else { Vec::new() };
            let limit = if ring.rank() == 1 { u64::MAX } else { 1000 };
            ring.broadcast(1, own, limit).map(drop).and_then(|()| ring.barrier())
        });
        let is_too_large = |error: &Result<(), Error>| matches!(error, Err(Error::TooLarge { .. }));
        assert!(is_too_large(&errors[2]), "{way:?} {errors:?}");
        assert!(errors.iter().all(Result::is_err), "{way:?} {errors:?}");
        let errors = Group::new(2, way).run(1, |mut ring| {
            let gathered = ring.all_gather(&vec![0; (32 << 20) + 1]);
            gathered.map(drop).and_then(|()| ring.barrier()).expect_err("64 MB are the limit")
        });
        let is_too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
        assert!(errors.iter().any(is_too_large), "{way:?} {errors:?}");
    }
}
