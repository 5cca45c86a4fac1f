//! The binary files of CIFAR-10 (<https://www.cs.toronto.edu/~kriz/cifar.html>): a byte for the class, then a picture
//! of 32 x 32 pixels, its red plane, its green plane and its blue plane.

use std::ops::Range;
use std::path::Path;

use crate::format::Definition;
use crate::open::Opened;
use crate::reader::{Each, Extent, OneShard};
use crate::{Blob, Error, Row, Value, sink};

/// Bytes of a picture.
pub(crate) const PICTURE_BYTES: usize = 3 * 32 * 32;
/// Bytes of a record.
const RECORD_BYTES: usize = 1 + PICTURE_BYTES;
/// Classes that there are.
pub(crate) const CLASSES: u8 = 10;

/// Records read at once.
const BLOCK: u64 = 256;

pub(crate) static FORMAT: Definition = Definition {
    endings: &["cifar"],
    is_named: |name| {
        let batch = name.starts_with("data_batch") || name.starts_with("test_batch");
        batch && name.ends_with(".bin")
    },
    open: Some(|opening| Ok(Opened::reader(CifarFile::open(opening.path())?))),
    create: Some(sink::cifar::create),
    ..Definition::named("cifar")
};

/// One of the files: rows of `image` (bytes, plane after plane) and `label` (one integer).
#[derive(Debug)]
pub(crate) struct CifarFile {
    blob: Blob,
    records: u64,
}

impl CifarFile {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<CifarFile, Error> {
        let blob = Blob::open(path)?;
        let (size, record) = (blob.size(), RECORD_BYTES as u64);
        if !size.is_multiple_of(record) {
            let (records, rest) = (size / record, size % record);
            let reason = format!(
                "{size} bytes are {records} records of {record} and {rest} bytes more: not a binary file of CIFAR-10"
            );
            return Err(Error::form(path, reason));
        }
        Ok(CifarFile { blob, records: size / record })
    }
}

impl OneShard for CifarFile {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.records }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.blob.path();
        let file = self.blob.handle()?;
        for start in records.clone().step_by(BLOCK as usize) {
            let count = BLOCK.min(records.end - start) as usize;
            let mut bytes = vec![0; count * RECORD_BYTES];
            let offset = start * RECORD_BYTES as u64;
            file.read_exact_at(&mut bytes, offset).map_err(Error::io(path))?;
            for (position, bytes) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
                let record = start + position as u64;
                let row = row(bytes).and_then(|row| each(record, row));
                row.map_err(|error| error.at(path, None, record))?;
            }
        }
        Ok(())
    }
}

fn row(bytes: &[u8]) -> Result<Row<'_>, Error> {
    let class = bytes[0];
    check_class(i64::from(class))?;
    let label = Value::Ints(vec![i64::from(class)].into());
    Ok(Row::new(vec![("image".into(), Value::Bytes(&bytes[1..])), ("label".into(), label)]))
}

/// Refuses what is no class.
pub(crate) fn check_class(class: i64) -> Result<u8, Error> {
    let known = u8::try_from(class).ok().filter(|class| *class < CLASSES);
    known.ok_or_else(|| {
        Error::Rejected(format!("class {class}, but CIFAR-10 has classes 0 to {}", CLASSES - 1))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Format, open};

    fn record(class: u8, pixel: u8) -> Vec<u8> {
        let mut bytes = vec![pixel; RECORD_BYTES];
        bytes[0] = class;
        bytes
    }

    /// Class and first pixel of the records in a range, or the error.
    fn rows(bytes: &[u8], records: Range<u64>) -> Result<Vec<(i64, u8)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data_batch_1.bin");
        std::fs::write(&path, bytes).unwrap();
        let strip =
            |error: Error| error.to_string().replace(&format!("{}/", folder.path().display()), "");
        let reader = open(&[path], None).map_err(strip)?;
        let mut rows = Vec::new();
        reader
            .read(0, records, &mut |_, row| {
                let image = row.bytes("image")?;
                assert_eq!(image.len(), PICTURE_BYTES);
                rows.push((row.ints("label")?[0], image[0]));
                Ok(())
            })
            .map_err(strip)?;
        Ok(rows)
    }

    #[test]
    fn records_are_read_by_number() {
        let bytes: Vec<u8> = (0..600u16).flat_map(|n| record((n % 10) as u8, n as u8)).collect();
        assert_eq!(rows(&bytes, 0..2).unwrap(), [(0, 0), (1, 1)]);
        assert_eq!(rows(&bytes, 598..600).unwrap(), [(8, 86), (9, 87)]);
        assert_eq!(rows(&bytes, 0..600).unwrap().len(), 600, "more than a block");
        assert_eq!(rows(&[], 0..0).unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cut = record(1, 1);
        assert_eq!(
            rows(&[&cut[..], &cut[..10]].concat(), 0..1).unwrap_err(),
            "data_batch_1.bin: 3083 bytes are 1 records of 3073 and 10 bytes more: not a binary file of CIFAR-10"
        );
        let wrong = [record(1, 1), record(10, 1)].concat();
        assert_eq!(rows(&wrong, 0..1).unwrap(), [(1, 1)]);
        let error = rows(&wrong, 0..2).unwrap_err();
        assert!(error.contains("data_batch_1.bin") && error.contains("record 1"), "{error}");
        assert!(error.contains("class 10, but CIFAR-10 has classes 0 to 9"), "{error}");
    }

    #[test]
    fn sinks_write_what_readers_read_and_refuse_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test_batch.bin");
        let mut file = sink::create(&path, Format::Cifar).unwrap();
        let wanted = record(7, 3);
        file.write(&row(&wanted).unwrap()).unwrap();
        let short = Row::new(vec![
            ("image".into(), Value::Bytes(&[1, 2])),
            ("label".into(), Value::Ints(vec![1].into())),
        ]);
        let error = file.write(&short).unwrap_err().to_string();
        assert!(error.contains("record 1") && error.contains("2 bytes"), "{error}");
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), wanted);
        assert_eq!(Format::of_name(&path), Some(Format::Cifar));
    }

    proptest! {
        /// Any bytes are records or an error, and records are those bytes.
        #[test]
        fn any_bytes_are_records_or_an_error(
            classes in prop::collection::vec(0u8..12, 0..5),
            more in 0usize..3,
        ) {
            let mut bytes: Vec<u8> = classes.iter().flat_map(|class| record(*class, *class)).collect();
            bytes.extend(vec![0; more]);
            let found = rows(&bytes, 0..classes.len() as u64);
            let sound = more == 0 && classes.iter().all(|class| *class < CLASSES);
            prop_assert_eq!(found.is_ok(), sound);
            if let Ok(found) = found {
                let expected: Vec<_> = classes.iter().map(|class| (i64::from(*class), *class)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
