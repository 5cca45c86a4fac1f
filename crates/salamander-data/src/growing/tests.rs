//! Folders that grow, are broken off, and are gone on with.

use std::fs;
use std::time::Duration;

use super::list::ALIVE;
use super::*;

struct GrowingPlace {
    folder: tempfile::TempDir,
}

impl GrowingPlace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn parts(&self) -> PathBuf {
        self.folder.path().join("parts")
    }

    fn list(&self) -> PathBuf {
        self.parts().join(LIST)
    }

    fn writer(&self) -> PartsWriter {
        PartsWriter::open(&self.parts(), &"tests".into()).unwrap()
    }

    /// Adds so many records.
    fn add(&self, writer: &mut PartsWriter, records: u64) {
        let staged = self.folder.path().join("staged.jsonl");
        let rows: String = (0..records).map(|row| format!("{{\"x\": \"{row}\"}}\n")).collect();
        fs::write(&staged, rows).unwrap();
        let file = format!("part-{}.jsonl", writer.parts().len());
        writer.add(&staged, PartFile { file, records, blake3: None, task: None }).unwrap();
    }

    fn append(&self, text: &str) {
        fs::create_dir_all(self.parts()).unwrap();
        let mut before = fs::read_to_string(self.list()).unwrap_or_default();
        before.push_str(text);
        fs::write(self.list(), before).unwrap();
    }

    fn seen(&self) -> GrowingFolder {
        GrowingFolder::new(&self.parts(), None)
    }
}

fn look(seen: &mut GrowingFolder) -> Result<bool, Error> {
    seen.look(&OpenOptions::default())
}

#[test]
fn a_folder_grows_while_it_is_read() {
    let place = GrowingPlace::new();
    let mut seen = place.seen();
    assert!(!look(&mut seen).unwrap(), "it is not there yet");
    assert_eq!(seen.producer(Instant::now()).unwrap(), Producer::Unknown);
    let mut writer = place.writer();
    assert!(!look(&mut seen).unwrap(), "there are no partitions yet");
    assert_eq!(seen.producer(Instant::now()).unwrap(), Producer::AtWork);
    place.add(&mut writer, 3);
    place.add(&mut writer, 0);
    assert!(look(&mut seen).unwrap());
    let (first, early) = (seen.identity().unwrap(), seen.dataset().unwrap());
    place.add(&mut writer, 2);
    assert!(look(&mut seen).unwrap());
    assert!(!look(&mut seen).unwrap());
    assert_eq!((seen.records(), seen.parts(), seen.total()), (5, 3, None));
    assert_eq!((early.len(), seen.dataset().unwrap().len()), (3, 5));
    writer.end().unwrap();
    assert!(look(&mut seen).unwrap());
    assert_eq!((seen.total(), seen.identity().unwrap()), (Some(5), first));
    drop(writer);
    assert_eq!(seen.producer(Instant::now()).unwrap(), Producer::Gone);
    let all = seen.dataset().unwrap();
    let mut found = Vec::new();
    let mut each = |_, row: crate::Row<'_>| {
        found.push(row.text("x")?.to_owned());
        Ok(())
    };
    all.read(&[0, 1, 2, 3, 4], &mut each).unwrap();
    assert_eq!(found, ["0", "1", "2", "0", "1"]);
    assert_eq!((all.part_of(2), all.part_of(3)), (0..3, 3..5));
}

#[test]
fn who_goes_on_finds_what_is_there_and_no_torn_line() {
    let place = GrowingPlace::new();
    place.add(&mut place.writer(), 3);
    place.append("{\"part\": {\"file\": \"part-1.jsonl\", \"rec");
    let mut seen = place.seen();
    look(&mut seen).unwrap();
    assert_eq!(seen.records(), 3, "a torn line does not count");
    let mut writer = place.writer();
    assert_eq!(writer.parts().len(), 1);
    place.add(&mut writer, 4);
    writer.end().unwrap();
    look(&mut seen).unwrap();
    assert_eq!(seen.total(), Some(7));
    drop(writer);
    assert!(place.writer().is_ended());
    let other = PartsWriter::open(&place.parts(), &"others".into()).unwrap_err().to_string();
    assert!(other.contains("made by something else"), "{other}");
}

/// Where the lock of another host is not seen, which is free here, or is not there at all.
#[test]
fn who_writes_on_another_host_is_heard_and_missed() {
    let place = GrowingPlace::new();
    place.add(&mut place.writer(), 1);
    let (mut seen, begin) = (place.seen(), Instant::now());
    let mut at = |seconds| seen.producer(begin + Duration::from_secs(seconds)).unwrap();
    assert_eq!(at(0), Producer::Gone);
    let beat = |text: &str| fs::write(place.parts().join(ALIVE), text).unwrap();
    beat("another-host 1 0\n");
    assert_eq!(at(1), Producer::AtWork);
    assert_eq!(at(60), Producer::Unknown);
    beat("another-host 1 1\n");
    assert_eq!(at(61), Producer::AtWork);
    fs::remove_file(place.parts().join(LOCK)).unwrap();
    assert_eq!((at(62), at(120)), (Producer::AtWork, Producer::Unknown));
    fs::remove_file(place.parts().join(ALIVE)).unwrap();
    assert_eq!(at(121), Producer::Unknown);
}

/// A lock alone says that somebody writes; a writer that has beaten and does no more may hang.
#[test]
fn who_holds_the_lock_and_is_silent_is_not_known_to_work() {
    let place = GrowingPlace::new();
    place.add(&mut place.writer(), 1);
    let lock = File::open(place.parts().join(LOCK)).unwrap();
    lock.lock().unwrap();
    let (mut seen, begin) = (place.seen(), Instant::now());
    let mut at = |seconds| seen.producer(begin + Duration::from_secs(seconds)).unwrap();
    assert_eq!((at(0), at(600)), (Producer::AtWork, Producer::AtWork));
    fs::write(place.parts().join(ALIVE), "some-host 1 0\n").unwrap();
    assert_eq!((at(601), at(700)), (Producer::AtWork, Producer::Unknown));
}

#[test]
fn one_process_writes_at_a_time() {
    let place = GrowingPlace::new();
    let _writer = place.writer();
    let refused = PartsWriter::open(&place.parts(), &"tests".into()).unwrap_err().to_string();
    assert!(refused.ends_with("another process writes partitions here"), "{refused}");
}

#[test]
fn what_a_list_cannot_mean_is_named() {
    let check = |text: &str, expected: &str| {
        let place = GrowingPlace::new();
        place.add(&mut place.writer(), 3);
        place.append(text);
        let error = look(&mut place.seen()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("{\"prat\": 1}\n", "salamander-parts.jsonl: line 3: unknown variant `prat`");
    check("{\"part\": {\"file\": \"../a.jsonl\", \"records\": 1}}\n", "name a file of this folder");
    check(
        "{\"part\": {\"file\": \"part-0.jsonl\", \"records\": 4}}\n",
        "part-0.jsonl: it has 3 records, and salamander-parts.jsonl says 4",
    );
    check("{\"part\": {\"file\": \"none.jsonl\", \"records\": 1}}\n", "none.jsonl");
    check(
        "{\"end\": {\"parts\": 2, \"records\": 3}}\n",
        "line 3: the end has 2 partitions with 3 records, and before it stand 1 with 3",
    );
    let ended = "{\"end\": {\"parts\": 1, \"records\": 3}}\n";
    check(&ended.repeat(2), "line 4: it stands behind the end");
}

#[test]
fn what_was_read_must_stay() {
    let place = GrowingPlace::new();
    place.add(&mut place.writer(), 3);
    let mut seen = place.seen();
    look(&mut seen).unwrap();
    fs::write(place.list(), "").unwrap();
    let error = look(&mut seen).unwrap_err().to_string();
    assert!(error.contains("it no longer names the partitions"), "{error}");
}

#[test]
fn a_finished_folder_is_data_like_any_other_and_an_unfinished_one_is_not() {
    let place = GrowingPlace::new();
    let mut writer = place.writer();
    (0..12).for_each(|_| place.add(&mut writer, 1));
    let error = crate::files(&[place.parts()], None).unwrap_err().to_string();
    assert!(error.contains("its end is not marked"), "{error}");
    writer.end().unwrap();
    let files = crate::files(&[place.parts()], None).unwrap();
    let expected: Vec<PathBuf> =
        (0..12).map(|number| place.parts().join(format!("part-{number}.jsonl"))).collect();
    assert_eq!(files, expected, "not by name, but in the order in which they came");
}
