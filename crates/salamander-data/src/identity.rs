//! What tells a dataset from others, on whatever host and in whatever folder it lies: processes that train together
//! compare it before they begin.

use std::path::Path;

use salamander_core::seed::derive;

use crate::preprocess::fnv1a;
use crate::{Dataset, Error};

/// Records that are looked at: the first, one in the middle and the last. Every process of a run reads them when it
/// starts, and in some formats each of them costs a block of many.
const SAMPLE: u64 = 3;

impl Dataset {
    /// A hash over the names of all files, their records and bytes, and over the values of a few records: the same
    /// wherever the same files are. Files that differ in other records only, and in no size, are not told apart.
    pub fn identity(&self) -> u64 {
        let mut state = self.len();
        for shard in self.shards() {
            let name = Path::new(&shard.name);
            let own = name.file_name().map_or(0, |name| fnv1a(name.as_encoded_bytes()));
            // What is not a file of this host has no size here.
            let bytes = std::fs::metadata(name).map_or(0, |file| file.len());
            state = derive(state, &[own, shard.records, bytes]);
        }
        self.sample().fold(state, |state, record| derive(state, &[record, self.content(record)]))
    }

    /// Records from the first to the last.
    fn sample(&self) -> impl Iterator<Item = u64> {
        let (len, looked) = (self.len(), self.len().min(SAMPLE));
        (0..looked).map(move |at| match looked {
            1 => 0,
            _ => (u128::from(at) * u128::from(len - 1) / u128::from(looked - 1)) as u64,
        })
    }

    /// A hash of a record's values; 0 for one that cannot be read, which is somebody else's matter.
    fn content(&self, record: u64) -> u64 {
        let mut found = 0;
        let read: Result<(), Error> = self.read(&[record], &mut |_, row| {
            for (name, value) in row.columns() {
                found = derive(found, &[fnv1a(format!("{name}: {value:?}").as_bytes())]);
            }
            Ok(())
        });
        read.map_or(0, |()| found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::open;

    /// The identity of a file with this text in a folder of its own.
    fn identity(name: &str, text: &str) -> u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let reader = open(&[path], None).expect("it opens");
        Dataset::new(Arc::from(reader)).expect("counted").identity()
    }

    #[test]
    fn the_same_files_have_one_identity_in_any_folder_and_others_have_another() {
        let rows = |value: &str| format!("x,y\n1,2\n{value},4\n5,6\n");
        let first = identity("points.csv", &rows("3"));
        assert_eq!(identity("points.csv", &rows("3")), first);
        for (name, text) in [
            ("other.csv", rows("3")),
            ("points.csv", rows("7")),
            ("points.csv", rows("3.0")),
            ("points.csv", format!("{}7,8\n", rows("3"))),
        ] {
            assert_ne!(identity(name, &text), first, "{name}: {text}");
        }
    }

    #[test]
    fn the_first_and_the_last_record_are_looked_at() {
        let text = |rows: u64| (0..rows).map(|row| format!("{row},0\n")).collect::<String>();
        for rows in [1, 2, 8, 9, 1000] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("points.csv");
            std::fs::write(&path, format!("x,y\n{}", text(rows))).expect("written");
            let dataset = Dataset::new(Arc::from(open(&[path], None).expect("it opens")));
            let sample: Vec<u64> = dataset.expect("counted").sample().collect();
            assert_eq!((sample.first(), sample.last()), (Some(&0), Some(&(rows - 1))));
            assert!(sample.is_sorted_by(|left, right| left < right), "{sample:?}");
        }
    }
}
