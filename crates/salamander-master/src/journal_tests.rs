//! A journal comes back whole, as a prefix, or not at all with a clear error; never as something else.

use std::fs;

use proptest::prelude::*;
use salamander_core::elastic::{MembershipEntry, Term};
use salamander_core::environment;
use salamander_files::mutated::try_mutations;
use tempfile::TempDir;

use super::*;
use crate::record::Record;

fn open(path: &Path) -> Result<Vec<String>, Error> {
    Journal::<String>::open(path).map(|(_, records)| records)
}

fn written(records: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let (mut journal, _) = Journal::open(&path).expect("new");
    let records: Vec<String> = records.iter().map(ToString::to_string).collect();
    let (first, rest) = records.split_at(records.len() / 2);
    journal.append(first).expect("written");
    journal.append_lazily(rest).expect("written");
    (folder, path)
}

#[test]
fn records_come_back_and_more_can_follow() {
    let (_folder, path) = written(&["a", "b"]);
    {
        let (mut journal, records) = Journal::<String>::open(&path).expect("whole");
        assert_eq!(records, ["a", "b"]);
        journal.append(&["c".to_string()]).expect("written");
    }
    assert_eq!(open(&path).expect("whole"), ["a", "b", "c"]);
}

#[test]
fn two_masters_cannot_have_it() {
    let (_folder, path) = written(&["a"]);
    let first = Journal::<String>::open(&path).expect("free");
    assert!(matches!(open(&path), Err(Error { problem: Problem::Locked, .. })));
    drop(first);
    assert!(open(&path).is_ok());
}

#[test]
fn another_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    fs::write(&path, "my only copy").expect("written");
    assert!(matches!(open(&path), Err(Error { problem: Problem::Foreign, .. })));
    assert_eq!(fs::read(&path).expect("there"), b"my only copy");
}

#[test]
fn zeros_of_a_crashed_machine_are_a_torn_tail() {
    let (_folder, path) = written(&["a", "b"]);
    let mut bytes = fs::read(&path).expect("there");
    bytes.extend([0; 4096]);
    fs::write(&path, &bytes).expect("written");
    assert_eq!(open(&path).expect("cut"), ["a", "b"]);
    let kept = fs::metadata(&path).expect("there").len();
    assert!(kept < bytes.len() as u64, "the zeros are gone: {kept}");
    assert_eq!(open(&path).expect("whole"), ["a", "b"]);
    assert_eq!(fs::metadata(&path).expect("there").len(), kept, "and nothing is added");
}

#[test]
fn damage_names_its_place() {
    let (_folder, path) = written(&["a", "b"]);
    let mut bytes = fs::read(&path).expect("there");
    let first = MAGIC.len() + mark(0).len();
    bytes[first + HEADER] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let error = open(&path).expect_err("damaged").to_string();
    let place = format!("damaged at byte {first}: the checksum is wrong");
    assert!(error.contains(&place), "{error}");
}

#[test]
fn a_journal_of_an_earlier_release_is_read_and_its_damage_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let old = [MAGIC.to_vec(), frames(&["a", "b"]).expect("short")].concat();
    fs::write(&path, &old).expect("written");
    assert_eq!(open(&path).expect("whole"), ["a", "b"]);
    let mut damaged = old.clone();
    damaged[MAGIC.len() + HEADER] ^= 1;
    fs::write(&path, &damaged).expect("written");
    assert!(matches!(open(&path), Err(Error { problem: Problem::Damaged { .. }, .. })));
}

#[test]
fn a_copy_says_who_put_it_and_reads_like_the_original() {
    let (folder, path) = written(&["a", "b"]);
    let bytes = fs::read(&path).expect("there");
    let copy = sign(&bytes, [7; 16]);
    assert_eq!((signature(&copy), signature(&bytes)), (Some([7; 16]), None));
    assert_eq!(signature(&sign(&copy, [8; 16])), Some([8; 16]), "the last one counts");
    assert_eq!(records_of::<String>(&copy).expect("whole"), ["a", "b"]);
    let brought = folder.path().join("brought");
    fs::write(&brought, &copy).expect("written");
    assert_eq!(open(&brought).expect("whole"), ["a", "b"]);
}

#[test]
fn an_append_whose_sectors_came_out_of_order_is_cut_off() {
    let (_folder, path) = written(&["a", "b"]);
    let whole = open(&path).expect("whole");
    let before = fs::read(&path).expect("there");
    let (mut journal, _) = Journal::<String>::open(&path).expect("whole");
    journal.append(&["x".repeat(600), "y".repeat(600)]).expect("written");
    drop(journal);
    // Its first sectors never reached the disk, the others did; nor did the mark after it.
    let mut bytes = fs::read(&path).expect("there");
    let end = bytes.len() - mark(0).len();
    bytes.truncate(end);
    bytes[before.len()..before.len() + 512].fill(0);
    fs::write(&path, &bytes).expect("written");
    assert_eq!(open(&path).expect("repaired"), whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_truncation_gives_a_prefix(
        records in prop::collection::vec(".{0,40}", 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let texts: Vec<&str> = records.iter().map(String::as_str).collect();
        let (_folder, path) = written(&texts);
        let bytes = fs::read(&path).expect("there");
        fs::write(&path, &bytes[..cut.index(bytes.len() + 1)]).expect("written");
        let found = open(&path).expect("torn is no damage");
        prop_assert!(records.starts_with(&found));
        // What is appended afterwards is found, too.
        let (mut journal, _) = Journal::<String>::open(&path).expect("whole now");
        journal.append(&["next".to_string()]).expect("written");
        drop(journal);
        let again = open(&path).expect("whole");
        prop_assert_eq!(again.len(), found.len() + 1);
    }

    #[test]
    fn any_flipped_bit_is_found_and_loses_nothing_that_was_waited_for(
        records in prop::collection::vec(".{0,40}", 1..8),
        (at, bit) in (any::<prop::sample::Index>(), 0..8u8),
    ) {
        let texts: Vec<&str> = records.iter().map(String::as_str).collect();
        let (_folder, path) = written(&texts);
        let mut bytes = fs::read(&path).expect("there");
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).expect("written");
        if let Ok(found) = open(&path) {
            prop_assert!(records.starts_with(&found) && found.len() >= records.len() / 2);
        }
    }
}

#[test]
fn no_journal_breaks_who_reads_it() {
    let entry = MembershipEntry::Scaled(2);
    let records = [Record::Restarts(3), Record::Entry { term: Term(1), entry }];
    let journal = [MAGIC.to_vec(), frames(&records).expect("short")].concat();
    let seeds = tempfile::tempdir().expect("a folder");
    fs::write(seeds.path().join("two"), &journal).expect("written");
    fs::write(seeds.path().join("signed"), sign(&journal, [9; 16])).expect("written");
    let (seconds, mut understood) = (std::env::var(environment::FUZZ_SECONDS).ok(), 0);
    let executions = try_mutations(seeds.path(), seconds.as_deref(), |bytes| {
        let Ok(found) = records_of::<Record>(bytes) else { return };
        understood += 1;
        let copy = sign(bytes, [7; 16]);
        assert_eq!(signature(&copy), Some([7; 16]), "a signature is read back");
        if let Ok(again) = records_of::<Record>(&copy) {
            assert!(again.len() <= found.len() + 1, "a signature adds no records");
        }
    });
    println!("{} executions, {understood} understood", executions.expect("tried"));
    assert!(understood > 1, "right ones are");
}
