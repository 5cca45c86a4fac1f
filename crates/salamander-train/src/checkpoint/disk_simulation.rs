//! Checkpoints and rows on a disk that fails as disks do: what was written is there after any crash, and what is
//! damaged is never taken for a state.

use std::path::Path;
use std::sync::Arc;

use salamander_core::environment;
use salamander_core::progress::StepCount;
use salamander_core::seed::derive;
use salamander_files::faulty::FaultyDisk;
use salamander_files::{Disk, put_back};
use salamander_ps::{Engine, EngineOptions, TableRows, TableSpec, partition_of};

use super::super::{Snapshot, read_on};
use super::*;

const FOLDER: &str = "run/checkpoints";
const SEEDS: u64 = 10_000;
/// Most of the time of a seed would go by with partitions that are all alike; these take some sectors.
const PARTITIONS: u16 = 8;

/// How many seeds are tried; `SALAMANDER_SEEDS` asks for more.
fn seeds() -> u64 {
    let asked = std::env::var(environment::SEEDS);
    asked.map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// A server of a few partitions with some rows.
fn engine() -> Engine {
    let here = 0..PARTITIONS;
    let options = EngineOptions { partitions: vec![here], ..EngineOptions::default() };
    let engine = Engine::new(options).expect("sound options");
    let table = engine.declare(TableSpec::new("user", 2)).expect("a sound table");
    let ids: Vec<u64> = (0..).filter(|id| partition_of(*id) < PARTITIONS).take(12).collect();
    let values: Vec<f32> = ids.iter().flat_map(|id| [*id as f32, 0.5]).collect();
    let rows = TableRows { table, ids: &ids, values: &values };
    engine.stage(StepCount(0), 0, &[rows]).expect("staged");
    engine.advance(StepCount(1), 1.0, 1.0).expect("advanced");
    engine
}

fn write_one(disk: &Arc<dyn Disk>, steps: u64, rows: Option<&Engine>) -> Result<PathBuf, Error> {
    let files: Option<Finish> = rows.map(|engine| {
        let (disk, snapshot) = (Arc::clone(disk), engine.snapshot().expect("copied"));
        let write = move |folder: &Path| {
            let path = folder.join("0.rows");
            snapshot.write_on(disk, &path)?;
            Ok(vec![path])
        };
        Box::new(write) as Finish
    });
    write_on(disk, Path::new(FOLDER), &Snapshot::sample(steps), files)
}

/// A run that is killed again and again. Returns how many checkpoints could not be written.
fn lives(seed: u64, engine: &Engine) -> usize {
    let faulty = FaultyDisk::new(seed);
    let disk = faulty.shared();
    disk.create_folder(Path::new(FOLDER)).expect("made");
    disk.sync_folder(Path::new("run")).expect("synced");
    let random = |names: &[u64]| derive(seed, names);
    let (mut whole, mut failed): (Vec<u64>, usize) = (Vec::new(), 0);
    for life in 0..3 {
        faulty.fail((random(&[life, 1]) % 100) as u32, (random(&[life, 2]) % 100) as u32);
        for turn in 0..random(&[life, 3]) % 4 {
            // A resumed run comes by the same steps again.
            let steps = 1 + random(&[life, turn]) % 5;
            let rows = (random(&[life, turn, 1]) % 4 == 0).then_some(engine);
            match write_one(&disk, steps, rows) {
                Ok(_) if whole.contains(&steps) => {}
                Ok(_) => whole.push(steps),
                Err(_) => failed += 1,
            }
        }
        faulty.fail(0, 0);
        faulty.crash();
        put_back(&*disk, Path::new(FOLDER)).expect("put back");
        for steps in &whole {
            let path = Path::new(FOLDER).join(super::super::id(StepCount(*steps)));
            let found =
                read_on(&*disk, &path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(found.state.progress.steps.0, *steps, "seed {seed}");
        }
    }
    if let Some(steps) = whole.pop() {
        rot(seed, &faulty, steps);
    }
    failed
}

/// A flipped bit in any file is found, and the checkpoint is written again.
fn rot(seed: u64, faulty: &FaultyDisk, steps: u64) {
    let disk = faulty.shared();
    let path = Path::new(FOLDER).join(super::super::id(StepCount(steps)));
    let names = disk.names(&path).expect("there");
    let name = &names[derive(seed, &[9]) as usize % names.len()];
    let before = disk.read(&path.join(name)).expect("there");
    faulty.flip_a_bit(&path.join(name));
    assert_ne!(disk.read(&path.join(name)).expect("there"), before);
    match read_on(&*disk, &path) {
        // Only what the manifest says about times and names, which no state is made of.
        Ok(found) => {
            assert!(name == super::super::MANIFEST && found.state.progress.steps.0 == steps)
        }
        Err(_) => {
            write_one(&disk, steps, None).expect("written again");
            read_on(&*disk, &path).expect("intact again");
        }
    }
}

#[test]
fn a_checkpoint_that_was_written_survives_every_disk() {
    let (engine, seeds) = (engine(), seeds());
    let failed: usize = (0..seeds).map(|seed| lives(seed, &engine)).sum();
    assert!(failed as u64 > seeds / 10, "disks have failed: {failed}");
}
