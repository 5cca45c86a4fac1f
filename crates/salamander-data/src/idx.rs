//! The IDX files of MNIST and its relatives: an images file and, beside it, a labels file.

use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::format::Definition;
use crate::open::Opened;
use crate::reader::{Each, Extent, OneShard};
use crate::recordio::MAX_CHUNK_BYTES;
use crate::{Blob, BlobHandle, Error, Row, Value, sink};

pub(crate) const IMAGES_MAGIC: u32 = 0x0000_0803;
pub(crate) const LABELS_MAGIC: u32 = 0x0000_0801;
const IMAGES_HEADER: usize = 16;
const LABELS_HEADER: usize = 8;

/// Bytes of images read at once.
const BLOCK_BYTES: u64 = 1 << 20;

pub(crate) static FORMAT: Definition = Definition {
    endings: &["idx"],
    is_named: |name| name.contains("idx3-ubyte") || name.contains("idx1-ubyte"),
    begins: |start| matches!(start, [0, 0, 8, 1 | 3, ..]),
    companion: labels_beside,
    open: Some(|opening| Ok(Opened::reader(IdxFile::open(opening.path())?))),
    create: Some(sink::idx::create),
    ..Definition::named("idx")
};

/// Unpacks gzip bytes, and gives any others back as they are.
pub fn gunzip_if_needed(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let decoder = flate2::bufread::MultiGzDecoder::new(&bytes[..]);
    decoder.take(MAX_CHUNK_BYTES + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() as u64 > MAX_CHUNK_BYTES {
        return Err(io::Error::other(format!("unpacks to more than {MAX_CHUNK_BYTES} bytes")));
    }
    Ok(unpacked)
}

/// The labels file that belongs to an images file by name, whether it exists or not.
pub(crate) fn labels_beside(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    (labels != name).then(|| images.with_file_name(labels))
}

/// An images file, with labels if its sibling exists: rows of `image` (bytes) and `label` (one integer).
#[derive(Debug)]
pub struct IdxFile {
    images: Blob,
    labels: Option<Blob>,
    records: u64,
    rows: u32,
    columns: u32,
}

impl IdxFile {
    /// Opens an images file and the labels file beside it.
    pub fn open(path: &Path) -> Result<IdxFile, Error> {
        let images = Blob::open(path)?;
        let file = images.handle()?;
        let magic = magic(&file, &images)?;
        if magic == LABELS_MAGIC {
            return Err(Error::form(path, "a labels file: give the images file beside it"));
        }
        let [magic, count, rows, columns] = header(&file, &images, IMAGES_HEADER)?;
        expect_magic(path, "images", magic, IMAGES_MAGIC)?;
        let records = u64::from(count);
        let image = u64::from(rows) * u64::from(columns);
        let shape = format!("{records} images of {rows} x {columns}");
        if records > 0 && image == 0 {
            return Err(Error::form(path, format!("{shape} have no pixels")));
        }
        expect_size(&images, IMAGES_HEADER, records.checked_mul(image), &shape)?;
        let labels = match labels_beside(path) {
            Some(path) => open_labels(&path, records)?,
            None => None,
        };
        Ok(IdxFile { images, labels, records, rows, columns })
    }

    /// How many images there are.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn image_bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.columns)
    }
}

impl OneShard for IdxFile {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.images.path(), records: self.records }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.images.path();
        let images = self.images.handle()?;
        let labels = self.labels.as_ref().map(|blob| Ok((blob, blob.handle()?))).transpose()?;
        let size = self.image_bytes();
        let step = (BLOCK_BYTES / size).max(1);
        for start in records.clone().step_by(step as usize) {
            let count = step.min(records.end - start);
            let pixels = block(&images, path, IMAGES_HEADER as u64 + start * size, count * size)?;
            let classes = labels
                .as_ref()
                .map(|(blob, file)| block(file, blob.path(), LABELS_HEADER as u64 + start, count));
            let classes = classes.transpose()?.unwrap_or_default();
            for (position, image) in pixels.chunks_exact(size as usize).enumerate() {
                let record = start + position as u64;
                let row = row(image, classes.get(position));
                each(record, row).map_err(|error| error.at(path, None, record))?;
            }
        }
        Ok(())
    }
}

fn row<'a>(image: &'a [u8], class: Option<&u8>) -> Row<'a> {
    let mut columns = vec![("image".into(), Value::Bytes(image))];
    if let Some(&class) = class {
        columns.push(("label".into(), Value::Ints(vec![i64::from(class)].into())));
    }
    Row::new(columns)
}

/// The labels file, if there is one.
fn open_labels(path: &Path, images: u64) -> Result<Option<Blob>, Error> {
    let blob = match Blob::open(path) {
        Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        blob => blob?,
    };
    let file = blob.handle()?;
    let [magic, count] = header(&file, &blob, LABELS_HEADER)?;
    expect_magic(path, "labels", magic, LABELS_MAGIC)?;
    let count = u64::from(count);
    expect_size(&blob, LABELS_HEADER, Some(count), &format!("{count} labels"))?;
    if count != images {
        return Err(Error::form(path, format!("{count} labels for {images} images")));
    }
    Ok(Some(blob))
}

fn magic(file: &BlobHandle, blob: &Blob) -> Result<u32, Error> {
    let [magic] = header(file, blob, 4)?;
    Ok(magic)
}

/// The first `N` integers, which are big-endian in this format.
fn header<const N: usize>(
    file: &BlobHandle,
    blob: &Blob,
    needed: usize,
) -> Result<[u32; N], Error> {
    let path = blob.path();
    if blob.size() < needed as u64 {
        let size = blob.size();
        return Err(Error::form(path, format!("{size} bytes, but an idx header has {needed}")));
    }
    let bytes = block(file, path, 0, needed as u64)?;
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *number = u32::from_be_bytes(*word);
    }
    Ok(numbers)
}

fn expect_magic(path: &Path, what: &str, found: u32, expected: u32) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let reason = format!("begins with {found:#010x}, but an idx {what} file with {expected:#010x}");
    Err(Error::form(path, reason))
}

/// Compares the file's size with what the header announces; `None` is more than can be counted.
fn expect_size(blob: &Blob, header: usize, data: Option<u64>, what: &str) -> Result<(), Error> {
    let size = blob.size();
    match data.and_then(|data| data.checked_add(header as u64)) {
        Some(expected) if expected == size => Ok(()),
        Some(expected) => {
            let reason = format!("{size} bytes, but {what} take {expected}");
            Err(Error::form(blob.path(), reason))
        }
        None => Err(Error::form(blob.path(), format!("{size} bytes cannot hold {what}"))),
    }
}

/// Reads bytes that the file is known to have.
fn block(file: &BlobHandle, path: &Path, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, offset).map_err(Error::io(path))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
