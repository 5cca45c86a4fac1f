//! The journal on a disk that fails as disks do: what an append returned for is there after any crash, and nothing is
//! there that was not appended.

use std::path::Path;

use salamander_core::environment;
use salamander_core::seed::derive;
use salamander_files::faulty::FaultyDisk;

use super::*;

const SEEDS: u64 = 10_000;

/// How many seeds are tried; `SALAMANDER_SEEDS` asks for more.
fn seeds() -> u64 {
    let asked = std::env::var(environment::SEEDS);
    asked.map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Masters that come and go on one disk. Returns how many appends failed, and how often the journal was torn.
fn lives(seed: u64) -> (usize, usize) {
    let disk = FaultyDisk::new(seed);
    let path = Path::new("run/journal");
    let random = |n: &[u64]| derive(seed, n);
    // What was waited for, and everything that was ever handed over after it, in order.
    let (mut certain, mut perhaps): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut failed, mut torn) = (0, 0);
    let mut next = 0;
    for life in 0..6 {
        disk.fail(0, 0);
        let (mut journal, found) = Journal::<u64>::open_on(&disk, path).expect("readable");
        assert!(found.starts_with(&certain), "seed {seed}: {found:?} lacks some of {certain:?}");
        let rest = &found[certain.len()..];
        assert!(perhaps.starts_with(rest), "seed {seed}: {rest:?} is none of {perhaps:?}");
        torn += usize::from(rest.len() < perhaps.len());
        (certain, perhaps) = (found, Vec::new());
        disk.fail((random(&[life, 1]) % 300) as u32, (random(&[life, 2]) % 300) as u32);
        for turn in 0..random(&[life, 3]) % 12 {
            let records: Vec<u64> = (next..next + 1 + random(&[life, turn]) % 90).collect();
            next += records.len() as u64;
            if random(&[life, turn, 1]) % 4 == 0 {
                if journal.append_lazily(&records).is_ok() {
                    perhaps.extend(records);
                }
            } else if journal.append(&records).is_ok() {
                certain.append(&mut perhaps);
                certain.extend(records);
            } else {
                failed += 1;
                // A master ends when it cannot write; its last words may be in the file all the same.
                perhaps.extend(records);
                break;
            }
        }
        drop(journal);
        if random(&[life, 4]) % 3 > 0 {
            disk.crash();
        }
    }
    (failed, torn)
}

#[test]
fn what_was_waited_for_survives_every_disk() {
    let seeds = seeds();
    let lives: Vec<(usize, usize)> = (0..seeds).map(lives).collect();
    let failed: usize = lives.iter().map(|(failed, _)| failed).sum();
    let torn: usize = lives.iter().map(|(_, torn)| torn).sum();
    let many = |count: usize| count as u64 > seeds / 4;
    assert!(many(failed) && many(torn), "{failed} {torn} of {seeds}");
}

#[test]
fn an_append_that_found_no_room_can_be_tried_again() {
    let (disk, path) = (FaultyDisk::new(1), Path::new("run/journal"));
    let (mut journal, _) = Journal::<u64>::open_on(&disk, path).expect("new");
    journal.append(&[1]).expect("room");
    disk.fail(0, 1000);
    let error = journal.append(&[2, 3]).expect_err("no room");
    assert!(error.is_full(), "{error}");
    disk.fail(1000, 0);
    assert!(!journal.append(&[2, 3]).expect_err("not synced").is_full());
    disk.fail(0, 0);
    journal.append(&[2, 3]).expect("room again");
    drop(journal);
    disk.crash();
    assert_eq!(Journal::<u64>::open_on(&disk, path).expect("whole").1, [1, 2, 3]);
}

#[test]
fn a_full_disk_is_waited_for_as_long_as_somebody_wants_it() {
    let (disk, path) = (FaultyDisk::new(2), Path::new("run/journal"));
    let (mut journal, _) = Journal::<u64>::open_on(&disk, path).expect("new");
    disk.fail(0, 1000);
    let tries = std::cell::Cell::new(0);
    let room_at_last = || {
        tries.set(tries.get() + 1);
        disk.fail(0, if tries.get() < 3 { 1000 } else { 0 });
        true
    };
    journal.append_patiently(&[1], &room_at_last).expect("there is room at last");
    assert_eq!(tries.get(), 3);
    disk.fail(0, 1000);
    assert!(journal.append_patiently(&[2], &|| false).is_err_and(|error| error.is_full()));
    disk.fail(1000, 0);
    let broken = journal.append_patiently(&[2], &|| unreachable!("it is not full"));
    assert!(broken.is_err());
}

#[test]
fn what_a_failed_sync_left_is_on_disk_before_the_next_master_trusts_it() {
    for seed in 0..200 {
        let (disk, path) = (FaultyDisk::new(seed), Path::new("run/journal"));
        let (mut journal, _) = Journal::<u64>::open_on(&disk, path).expect("new");
        disk.fail(1000, 0);
        journal.append(&[1]).expect_err("not synced");
        drop(journal);
        disk.fail(0, 0);
        let (journal, trusted) = Journal::<u64>::open_on(&disk, path).expect("whole");
        drop(journal);
        disk.crash();
        let after = Journal::<u64>::open_on(&disk, path).expect("whole").1;
        assert_eq!(after, trusted, "seed {seed}");
    }
}
