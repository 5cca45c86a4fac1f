//! Damage, leftovers and panics around the checkpoints of a folder.

use std::collections::HashMap;

use salamander_core::experiment::{CheckpointPolicy, CheckpointStorage};
use salamander_core::layout::COUNTED;
use salamander_core::progress::StepCount;
use tempfile::TempDir;

use super::super::{MODEL, OPTIMIZER, OptimizerStates, remove_leftovers};
use super::*;
use crate::optimize::ParamState;
use crate::params::TensorSource as _;

fn id(steps: u64) -> String {
    super::super::id(StepCount(steps))
}

fn run() -> (TempDir, Keeping) {
    let run = tempfile::tempdir().expect("a folder");
    let folder = run.path().join("run/checkpoints");
    fs::create_dir_all(&folder).expect("made");
    let (policy, storage) = (CheckpointPolicy::Best, CheckpointStorage::default());
    (run, Keeping { folder, policy, storage })
}

fn written(keeping: &Keeping, steps: u64) -> PathBuf {
    write(&keeping.folder, &Snapshot::sample(steps), None).expect("written")
}

/// Flips a bit of the model in a checkpoint.
fn damage(checkpoint: &Path) {
    let file = checkpoint.join(MODEL);
    let mut bytes = fs::read(&file).expect("there");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&file, bytes).expect("written");
    assert!(read(checkpoint).is_err());
}

fn entries(keeping: &Keeping) -> Vec<String> {
    let mut names: Vec<String> = beginning_with("", &keeping.folder).collect();
    names.sort();
    names
}

#[test]
fn a_damaged_checkpoint_is_written_again() {
    let (_run, keeping) = run();
    let path = written(&keeping, 5);
    damage(&path);
    written(&keeping, 5);
    assert_eq!(read(&path).expect("intact again").state.progress.steps.0, 5);
    assert_eq!(entries(&keeping), [id(5)]);
}

#[test]
fn a_model_is_used_without_its_optimizer_which_is_verified_all_the_same() {
    let (_run, keeping) = run();
    let kept = ParamState { steps: 5, slots: vec![vec![0.5]] };
    let params = HashMap::from([("w".to_string(), kept)]);
    let optimizers = OptimizerStates::from([("train".to_string(), params)]);
    let snapshot = Snapshot { optimizers, ..Snapshot::sample(5) };
    let path = write(&keeping.folder, &snapshot, None).expect("written");
    let whole = CheckpointStore::find(&keeping.folder, &Which::Latest).expect("intact");
    let used = CheckpointStore::find_to_use(&keeping.folder, &Which::Latest).expect("intact");
    assert_eq!(whole.state.optimizers, snapshot.optimizers);
    let mut weights = used.weights.as_ref().expect("its weights");
    let names = weights.names();
    let read = |name: String| (name.clone(), weights.read(&name).expect("read"));
    let found: HashMap<_, _> = names.into_iter().map(read).collect();
    assert_eq!((found, used.experiment), (whole.state.model, whole.experiment));
    assert!(used.state.optimizers.is_empty() && used.state.model.is_empty());
    let (found, text) = CheckpointStore::experiment(&keeping.folder, &Which::Latest).expect("read");
    assert_eq!((found, text.as_str()), (path.clone(), "entrypoint: x\n"));
    let file = path.join(OPTIMIZER);
    let mut bytes = fs::read(&file).expect("there");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&file, bytes).expect("written");
    assert!(CheckpointStore::find_to_use(&keeping.folder, &Which::Latest).is_err());
}

#[test]
fn a_list_that_cannot_be_read_removes_nothing_and_is_an_error() {
    let (_run, keeping) = run();
    let paths: Vec<PathBuf> = (1..=5).map(|steps| written(&keeping, steps)).collect();
    let mut counted = Counted::default();
    (1..=5).for_each(|steps| assert!(counted.add(&id(steps))));
    let mut bytes = counted.to_bytes();
    bytes[3] ^= 1;
    fs::write(keeping.folder.join(COUNTED), &bytes).expect("written");
    keeping.remove_superfluous(&paths[4]);
    assert!(paths.iter().all(|path| path.exists()), "what counts may be among them");
    let error = CheckpointStore::list(&keeping.folder).expect_err("damaged").to_string();
    assert!(error.contains("counted: the list of checkpoints that count is damaged"), "{error}");
    assert!(keeping.newest(&mut |_| {}).is_err() && remove_leftovers(&keeping.folder).is_err());
    fs::write(keeping.folder.join(COUNTED), counted.to_bytes()).expect("written");
    keeping.remove_superfluous(&paths[4]);
    assert_eq!(entries(&keeping), [COUNTED.to_string(), id(4), id(5)]);
}

#[test]
fn the_newest_are_kept_and_those_to_recover_from_take_no_place() {
    let (_run, mut keeping) = run();
    for steps in 1..=6 {
        let recovery = steps != 2 && steps != 3;
        let snapshot = Snapshot { recovery, ..Snapshot::sample(steps) };
        write(&keeping.folder, &snapshot, None).expect("written");
    }
    let mut kept = |policy, save_trial_latest| {
        let storage = CheckpointStorage { save_trial_latest, ..CheckpointStorage::default() };
        (keeping.policy, keeping.storage) = (policy, storage);
        let superfluous =
            keeping.superfluous(&CheckpointStore::list(&keeping.folder).expect("readable"));
        (1..=6).filter(|steps| !superfluous.contains(&id(*steps))).collect::<Vec<u64>>()
    };
    assert_eq!(kept(CheckpointPolicy::All, 1), [2, 3, 5, 6]);
    assert_eq!(kept(CheckpointPolicy::Best, 1), [3, 5, 6]);
    assert_eq!(kept(CheckpointPolicy::None, 0), [5, 6]);
}

#[test]
fn what_killed_writers_left_is_removed() {
    let (_run, keeping) = run();
    let mut counted = Counted::default();
    for steps in [2, 3] {
        written(&keeping, steps);
        assert!(counted.add(&id(steps)));
    }
    fs::write(keeping.folder.join(COUNTED), counted.to_bytes()).expect("written");
    // Of a member that was dropped; half of one; what may still count; what is being written; and half a list.
    let last = written(&keeping, 5);
    for name in ["step-00000001-001-0001", ".step-00000001.tmp", ".step-00000006.77.tmp"] {
        fs::create_dir(keeping.folder.join(name)).expect("made");
    }
    fs::write(keeping.folder.join("counted.77.tmp"), "half").expect("written");
    keeping.remove_superfluous(&last);
    let left = [".step-00000006.77.tmp", COUNTED, "counted.77.tmp", &id(2), &id(3), &id(5)];
    assert_eq!(entries(&keeping), left);
    // Nobody is alive any more.
    remove_leftovers(&keeping.folder).expect("removed");
    assert_eq!(entries(&keeping), [COUNTED.to_string(), id(2), id(3)]);
    remove_leftovers(&keeping.folder.join("nothing")).expect("nothing to do");
}

#[test]
fn a_panic_while_a_checkpoint_is_written_is_told_and_the_writer_lives_on() {
    let (_run, keeping) = run();
    let store = CheckpointStore::open(keeping.clone()).expect("opened");
    let rows: Finish = Box::new(|_| panic!("a row is no row"));
    store.save(Snapshot::sample(1), Some(rows)).expect("handed over");
    let told = store.flush().remove(0).expect_err("it panicked").to_string();
    assert!(told.contains("step-00000001: writing it: a row is no row"), "{told}");
    assert!(entries(&keeping).is_empty(), "half of it is gone");
    store.save(Snapshot::sample(2), None).expect("handed over");
    assert_eq!(store.close().expect("written"), [keeping.folder.join(id(2))]);
}
