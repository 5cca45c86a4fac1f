//! All records of a reader numbered in one row, because training speaks of record 4711, not of files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::preprocess::fnv1a;
use crate::{ColumnInfo, Error, Reader, RecordCache, Row, Shard};

/// The records of all shards, numbered from 0 in the order of the shards.
#[derive(Clone)]
pub struct Dataset {
    reader: Arc<dyn Reader>,
    shards: Vec<Shard>,
    /// Number of each shard's first record, and at the end the number of all records.
    starts: Vec<u64>,
    cache: Option<Arc<RecordCache>>,
}

impl Dataset {
    /// Asks the reader for its shards and counts them up.
    pub fn new(reader: Arc<dyn Reader>) -> Result<Dataset, Error> {
        let shards = reader.shards()?;
        let mut starts = Vec::with_capacity(shards.len() + 1);
        let mut total: u64 = 0;
        starts.push(total);
        for shard in &shards {
            total = total.checked_add(shard.records).ok_or_else(|| {
                let reason = format!("{} records are more than can be counted", shard.records);
                Error::form(&shard.name, reason)
            })?;
            starts.push(total);
        }
        Ok(Dataset { reader, shards, starts, cache: None })
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shards in order.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Keeps what records are decoded to, where decoding is slow, in at most so many bytes of memory, and in a file of
    /// this folder once all records are there.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize, folder: Option<&Path>) -> Dataset {
        self.cache = self.reader.fingerprint().and_then(|text| {
            let fingerprint = fnv1a(text.as_bytes());
            let places: String =
                self.shards.iter().map(|shard| format!("{}\n", shard.name)).collect();
            let name = format!("decoded-{:016x}.cache", fnv1a(places.as_bytes()));
            let file = folder.map(|folder| folder.join(name));
            RecordCache::new(self.len(), fingerprint, bytes, file).map(Arc::new)
        });
        self
    }

    /// What records were decoded to.
    pub fn cache(&self) -> Option<&RecordCache> {
        self.cache.as_deref()
    }

    /// The columns that records can have, where the reader knows them without reading.
    pub fn columns(&self) -> Option<Vec<ColumnInfo>> {
        self.reader.columns()
    }

    /// The columns that records of one shard can have, where the reader knows them without reading.
    pub fn columns_of(&self, shard: usize) -> Option<Vec<ColumnInfo>> {
        self.reader.columns_of(shard)
    }

    /// The shard of a record and the record's number in it.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`Dataset::len`].
    pub fn locate(&self, index: u64) -> (usize, u64) {
        assert!(index < self.len(), "record {index} of a dataset of {}", self.len());
        let shard = self.starts.partition_point(|&start| start <= index) - 1;
        (shard, index - self.starts[shard])
    }

    /// All records of the shard that a record is in.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`Dataset::len`].
    pub fn part_of(&self, index: u64) -> Range<u64> {
        let (shard, _) = self.locate(index);
        self.starts[shard]..self.starts[shard + 1]
    }

    /// The record's name for people, such as `mnist/train.recordio record 17`.
    pub fn describe(&self, index: u64) -> String {
        if index >= self.len() {
            return format!("record {index} (past the end of {} records)", self.len());
        }
        let (shard, record) = self.locate(index);
        format!("{} record {record}", self.shards[shard].name)
    }

    /// Reads any records in any order: `each` gets the position in `indices` and the row. Records are
    /// visited in the order of the files, neighbours together, whatever the order of `indices`.
    pub fn read(
        &self,
        indices: &[u64],
        each: &mut dyn FnMut(usize, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut order: Vec<(u64, usize)> =
            indices.iter().enumerate().map(|(position, &index)| (index, position)).collect();
        order.sort_unstable();
        if let Some(&(record, _)) = order.last().filter(|&&(index, _)| index >= self.len()) {
            return Err(Error::Range { path: "dataset".into(), record, records: self.len() });
        }
        let mut rest = &order[..];
        while let Some(&(first, _)) = rest.first() {
            let (shard, record) = self.locate(first);
            let (run, after) = rest.split_at(run_length(rest, self.starts[shard + 1]));
            self.read_run(shard, record, run, each)?;
            rest = after;
        }
        Ok(())
    }

    /// Reads neighbouring records of one shard from `start` on.
    fn read_run(
        &self,
        shard: usize,
        start: u64,
        run: &[(u64, usize)],
        each: &mut dyn FnMut(usize, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let name = Path::new(&self.shards[shard].name);
        let mut seen = 0;
        let read = self.reader.read(shard, start..start + run.len() as u64, &mut |record, row| {
            let expected = start + seen as u64;
            let Some(&(_, position)) = run.get(seen).filter(|_| record == expected) else {
                let reason = format!("the reader gave it where record {expected} was due");
                return Err(Error::Rejected(reason).at(name, None, record));
            };
            seen += 1;
            each(position, row)
        });
        // Readers that know a chunk have said more already.
        read.map_err(|error| error.at(name, None, start + (seen as u64).saturating_sub(1)))?;
        if seen < run.len() {
            let record = start + seen as u64;
            return Err(Error::Rejected("the reader left it out".into()).at(name, None, record));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dataset").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// How many of the sorted records follow each other without gap or repetition before `end`.
fn run_length(order: &[(u64, usize)], end: u64) -> usize {
    let first = order.first().map_or(0, |&(index, _)| index);
    order.iter().zip(first..end).take_while(|((index, _), expected)| index == expected).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;
    use crate::Value;
    use crate::reader::Each;

    /// Shards of numbers, which remembers the ranges it was asked for.
    #[derive(Default)]
    struct Numbers {
        counts: Vec<u64>,
        asked: Mutex<Vec<(usize, Range<u64>)>>,
        drops_last: bool,
    }

    impl Reader for Numbers {
        fn shards(&self) -> Result<Vec<Shard>, Error> {
            let shard = |(number, &records)| Shard { name: format!("s{number}"), records };
            Ok(self.counts.iter().enumerate().map(shard).collect())
        }

        fn read(
            &self,
            shard: usize,
            records: Range<u64>,
            each: &mut Each<'_>,
        ) -> Result<(), Error> {
            self.asked.lock().unwrap().push((shard, records.clone()));
            let end = records.end - u64::from(self.drops_last);
            for record in records.start..end {
                let value = Value::Ints(vec![shard as i64, record as i64].into());
                each(record, Row::new(vec![("at".into(), value)]))?;
            }
            Ok(())
        }
    }

    fn dataset(counts: &[u64]) -> (Dataset, Arc<Numbers>) {
        let reader = Arc::new(Numbers { counts: counts.to_vec(), ..Numbers::default() });
        (Dataset::new(Arc::clone(&reader) as Arc<dyn Reader>).unwrap(), reader)
    }

    #[test]
    fn records_are_found_across_empty_shards() {
        let (dataset, _) = dataset(&[0, 2, 0, 0, 3, 0]);
        assert_eq!((dataset.len(), dataset.is_empty()), (5, false));
        let check = |index, expected| assert_eq!(dataset.locate(index), expected);
        check(0, (1, 0));
        check(1, (1, 1));
        check(2, (4, 0));
        check(4, (4, 2));
        assert_eq!(dataset.describe(3), "s4 record 1");
        assert_eq!(dataset.describe(5), "record 5 (past the end of 5 records)");
    }

    #[test]
    fn neighbours_are_read_together() {
        let check = |indices: &[u64], expected: &[(usize, Range<u64>)]| {
            let (dataset, reader) = dataset(&[3, 0, 4]);
            dataset.read(indices, &mut |_, _| Ok(())).unwrap();
            assert_eq!(*reader.asked.lock().unwrap(), expected);
        };
        check(&[], &[]);
        check(&[2, 0, 1], &[(0, 0..3)]);
        check(&[3, 2], &[(0, 2..3), (2, 0..1)]);
        check(&[6, 4, 3], &[(2, 0..2), (2, 3..4)]);
        check(&[1, 1, 2], &[(0, 1..2), (0, 1..3)]);
    }

    #[test]
    fn errors_name_the_record() {
        let check = |result: Result<(), Error>, expected: &str| {
            assert_eq!(result.unwrap_err().to_string(), expected);
        };
        let (set, _) = dataset(&[3, 4]);
        check(
            set.read(&[4], &mut |_, _| Err(Error::Rejected("too dark".into()))),
            "s1: record 1: too dark",
        );
        check(
            set.read(&[0], &mut |_, row| row.ints("x").map(|_| ())),
            "s0: record 0: column \"x\": missing (the record has: at)",
        );
        check(
            set.read(&[9, 1], &mut |_, _| Ok(())),
            "dataset: record 9 was asked for, but there are 7",
        );
        let short = Numbers { counts: vec![3], drops_last: true, ..Numbers::default() };
        check(
            Dataset::new(Arc::new(short)).unwrap().read(&[0, 1], &mut |_, _| Ok(())),
            "s0: record 1: the reader left it out",
        );
    }

    proptest! {
        #[test]
        fn every_position_gets_its_record(
            counts in prop::collection::vec(0u64..6, 1..6),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let (dataset, _) = dataset(&counts);
            prop_assume!(!dataset.is_empty());
            let indices: Vec<u64> =
                picks.iter().map(|pick| pick.index(dataset.len() as usize) as u64).collect();
            let mut found = vec![None; indices.len()];
            dataset
                .read(&indices, &mut |position, row| {
                    let at = row.ints("at")?.to_vec();
                    assert_eq!(found[position].replace(at), None);
                    Ok(())
                })
                .unwrap();
            for (index, at) in indices.iter().zip(found) {
                let (shard, record) = dataset.locate(*index);
                prop_assert_eq!(at, Some(vec![shard as i64, record as i64]));
            }
        }
    }
}
