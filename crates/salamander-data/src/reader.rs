//! The one trait a source of records implements, kept to two functions so that a custom source is short.

use std::ops::Range;
use std::path::Path;

use crate::{ColumnInfo, Error, Row};

/// A shard: a name shown in messages (the file's path) and its number of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The name shown in messages.
    pub name: String,
    /// How many records it has; zero is legal.
    pub records: u64,
}

/// A source of records in shards.
///
/// ```
/// use std::ops::Range;
/// use salamander_data::{Error, Reader, Row, Shard, Value};
///
/// struct Squares;
///
/// impl Reader for Squares {
///     fn shards(&self) -> Result<Vec<Shard>, Error> {
///         Ok(vec![Shard { name: "squares".into(), records: 10 }])
///     }
///
///     fn read(
///         &self,
///         _shard: usize,
///         records: Range<u64>,
///         each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Error>,
///     ) -> Result<(), Error> {
///         for record in records {
///             let square = vec![(record * record) as i64];
///             each(record, Row::new(vec![("square".into(), Value::Ints(square.into()))]))?;
///         }
///         Ok(())
///     }
/// }
/// # let mut sum = 0;
/// # Squares.read(0, 0..4, &mut |_, row| { sum += row.ints("square")?[0]; Ok(()) })?;
/// # assert_eq!(sum, 14);
/// # Ok::<(), Error>(())
/// ```
pub trait Reader: Send + Sync {
    /// All shards, in an order that never changes.
    fn shards(&self) -> Result<Vec<Shard>, Error>;

    /// The columns that records can have, in order, where the source knows them without reading; a record lacks those
    /// that are null in it.
    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        None
    }

    /// The columns that records of one shard can have, where the source knows them without reading.
    fn columns_of(&self, _shard: usize) -> Option<Vec<ColumnInfo>> {
        None
    }

    /// What tells these records from others, where decoding them is worth keeping: nothing for formats that are read as
    /// fast as memory.
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// Calls `each` with (record number in the shard, row) for every record of the range, in order, and
    /// stops at the first error.
    fn read(
        &self,
        shard: usize,
        records: Range<u64>,
        each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// What [`Reader::read`] calls with each record.
pub(crate) type Each<'a> = dyn FnMut(u64, Row<'_>) -> Result<(), Error> + 'a;

/// A source of one shard, as the files of all formats are: what is asked of them is checked here, once.
pub(crate) trait OneShard: Send + Sync {
    /// Where it is, and how many records it has.
    fn extent(&self) -> Extent<'_>;

    /// [`Reader::columns`].
    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        None
    }

    /// [`Reader::fingerprint`].
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// [`Reader::read`] for a range that has records, all of them in the file.
    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error>;
}

/// A file and how many records it has.
pub(crate) struct Extent<'a> {
    pub(crate) path: &'a Path,
    pub(crate) records: u64,
}

impl<T: OneShard> Reader for T {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        let Extent { path, records } = self.extent();
        Ok(vec![Shard { name: path.display().to_string(), records }])
    }

    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        OneShard::columns(self)
    }

    fn columns_of(&self, _shard: usize) -> Option<Vec<ColumnInfo>> {
        OneShard::columns(self)
    }

    fn fingerprint(&self) -> Option<String> {
        OneShard::fingerprint(self)
    }

    fn read(&self, shard: usize, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        if shard != 0 {
            return Err(Error::NoShard { shard, shards: 1 });
        }
        check_range(self.extent(), &records)?;
        if records.is_empty() {
            return Ok(());
        }
        self.read_range(records, each)
    }
}

/// Where the records of a file are: found once, and kept as bytes for the next time.
pub(crate) trait FileIndex: Sized {
    /// The index as bytes.
    fn save(&self) -> Vec<u8>;

    /// The index from what `save` gave, unless that cannot be of a file of `size` bytes.
    fn restore(saved: &[u8], size: u64) -> Option<Self>;
}

/// Refuses a range that reaches past the records of a file.
pub(crate) fn check_range(file: Extent<'_>, asked: &Range<u64>) -> Result<(), Error> {
    let Extent { path, records } = file;
    if asked.is_empty() || asked.end <= records {
        return Ok(());
    }
    Err(Error::Range { path: path.to_owned(), record: asked.start.max(records), records })
}

/// The bytes of records, which must come in order.
#[cfg(test)]
pub(crate) fn collected(
    records: Range<u64>,
    read: impl FnOnce(Range<u64>, &mut CollectBytes<'_>) -> Result<(), Error>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = Vec::new();
    read(records.clone(), &mut |record, bytes| {
        assert_eq!(record, records.start + found.len() as u64);
        found.push(bytes.to_vec());
        Ok(())
    })?;
    Ok(found)
}

/// What is called with each record's bytes.
#[cfg(test)]
type CollectBytes<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Error> + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_past_the_end_are_refused() {
        let check = |records: Range<u64>, expected: Option<&str>| {
            let error = check_range(Extent { path: Path::new("f"), records: 3 }, &records)
                .err()
                .map(|e| e.to_string());
            assert_eq!(error.as_deref(), expected);
        };
        check(0..3, None);
        check(9..9, None);
        check(2..5, Some("f: record 3 was asked for, but there are 3"));
        check(7..8, Some("f: record 7 was asked for, but there are 3"));
    }
}
