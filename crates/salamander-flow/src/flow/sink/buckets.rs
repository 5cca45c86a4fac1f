//! The order of a shuffle: a row's place follows from the seed and the row itself, so it is the same whoever had the
//! row and whenever it came. Rows go to buckets by the first bits of their key, and each bucket is sorted by itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use datafusion::arrow::array::{Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::arrow::util::display::array_value_to_string;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::flow::Error;

/// Rows of a bucket that one task has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketFile {
    pub(crate) bucket: u64,
    pub(crate) file: String,
    pub(crate) rows: u64,
    /// How many rows of each class, where classes are divided alike; otherwise all are of one.
    pub(crate) classes: BTreeMap<String, u64>,
}

/// Rows as bytes that are equal where rows are.
pub(crate) struct RowKeys {
    converter: RowConverter,
    seed: [u8; 8],
}

impl RowKeys {
    pub(crate) fn new(schema: &SchemaRef, seed: u64) -> Result<Self, Error> {
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Self { converter, seed: seed.to_le_bytes() })
    }

    pub(crate) fn rows(&self, batch: &RecordBatch) -> Result<Rows, Error> {
        Ok(self.converter.convert_columns(batch.columns())?)
    }

    /// The key of a row: 64 bits that nobody can guess from the row.
    pub(crate) fn key(&self, row: &[u8]) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed).update(row);
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_be_bytes(first)
    }
}

/// The bucket of a key: keys of a bucket are all below those of the next.
pub(crate) fn bucket_of(key: u64, buckets: u64) -> u64 {
    ((u128::from(key) * u128::from(buckets)) >> 64) as u64
}

/// The class of a row.
pub(crate) fn class_of(
    batch: &RecordBatch,
    column: Option<usize>,
    row: usize,
) -> Result<String, Error> {
    match column {
        Some(column) if batch.column(column).is_valid(row) => {
            Ok(array_value_to_string(batch.column(column), row)?)
        }
        _ => Ok(String::new()),
    }
}

/// Files of rows by the number of their bucket; one begins with its first row.
pub(crate) struct BucketFiles {
    folder: PathBuf,
    name: String,
    schema: SchemaRef,
    open: BTreeMap<u64, (StreamWriter<BufWriter<File>>, BucketFile)>,
}

impl BucketFiles {
    /// Files whose names begin with this one.
    pub(crate) fn new(folder: &Path, name: &str, schema: &SchemaRef) -> Self {
        let (folder, name) = (folder.to_path_buf(), name.to_string());
        Self { folder, name, schema: SchemaRef::clone(schema), open: BTreeMap::new() }
    }

    /// Adds rows to a bucket, and gives what is known of its file.
    pub(crate) fn add(
        &mut self,
        bucket: u64,
        rows: &RecordBatch,
    ) -> Result<&mut BucketFile, Error> {
        let open = self.open.len();
        let (writer, file) = match self.open.entry(bucket) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let file = format!("{}-bucket-{bucket:05}.arrow", self.name);
                let path = self.folder.join(&file);
                let out = File::create(&path).map_err(|cause| not_created(&path, open, cause))?;
                let out = BufWriter::new(out);
                let writer = StreamWriter::try_new(out, &self.schema)?;
                let classes = BTreeMap::new();
                place.insert((writer, BucketFile { bucket, file, rows: 0, classes }))
            }
        };
        writer.write(rows)?;
        file.rows += rows.num_rows() as u64;
        Ok(file)
    }

    pub(crate) fn finish(self) -> Result<Vec<BucketFile>, Error> {
        let mut files = Vec::with_capacity(self.open.len());
        for (mut writer, file) in self.open.into_values() {
            writer.finish()?;
            let out = writer.into_inner()?.into_inner();
            out.map_err(|error| Error::io(&self.folder.join(&file.file))(error.into_error()))?;
            files.push(file);
        }
        Ok(files)
    }
}

/// Of a bound of the system it is said what can be done about it.
fn not_created(path: &Path, open: usize, cause: io::Error) -> Error {
    match Errno::from_io_error(&cause) {
        Some(Errno::MFILE | Errno::NFILE) => Error::Invalid(format!(
            "{cause}, with {open} for the shards of one part of the rows: write fewer shards (--shards, or more \
             records in each with --shard-records), or raise the limit (ulimit -n)"
        )),
        _ => Error::io(path)(cause),
    }
}

/// The rows of a file, batch by batch; in the end it must be as many as were written.
pub(crate) struct BucketReader {
    path: PathBuf,
    reader: StreamReader<BufReader<File>>,
    rows: u64,
    written: u64,
}

impl BucketReader {
    pub(crate) fn open(folder: &Path, file: &BucketFile) -> Result<Self, Error> {
        let path = folder.join(&file.file);
        let reader = BufReader::new(File::open(&path).map_err(Error::io(&path))?);
        let reader = StreamReader::try_new(reader, None)?;
        Ok(Self { path, reader, rows: 0, written: file.rows })
    }

    fn check(&mut self) -> Option<Result<RecordBatch, Error>> {
        let (found, written) = (self.rows, self.written);
        // Told once.
        self.written = found;
        let reason = format!("{found} rows where {written} were written");
        (found != written).then(|| Err(Error::step(&self.path.display().to_string(), reason)))
    }
}

impl Iterator for BucketReader {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next() {
            Some(Ok(batch)) => {
                self.rows += batch.num_rows() as u64;
                Some(Ok(batch))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => self.check(),
        }
    }
}

/// Puts rows into buckets.
pub(crate) struct BucketWriter {
    files: BucketFiles,
    keys: RowKeys,
    buckets: u64,
    class: Option<usize>,
}

/// How rows are put into buckets.
#[derive(Clone, Debug)]
pub(crate) struct Bucketing {
    pub(crate) buckets: u64,
    pub(crate) seed: u64,
    /// The column whose classes are counted.
    pub(crate) class: Option<String>,
}

impl BucketWriter {
    pub(crate) fn new(
        folder: &Path,
        name: &str,
        schema: &SchemaRef,
        bucketing: &Bucketing,
    ) -> Result<Self, Error> {
        let class = bucketing.class.as_ref().map(|name| {
            schema.index_of(name).map_err(|_| {
                let there: Vec<&str> =
                    schema.fields().iter().map(|field| field.name().as_str()).collect();
                Error::step(
                    "stratify",
                    format!("no column \"{name}\" (there are: {})", there.join(", ")),
                )
            })
        });
        Ok(Self {
            files: BucketFiles::new(folder, name, schema),
            keys: RowKeys::new(schema, bucketing.seed)?,
            buckets: bucketing.buckets,
            class: class.transpose()?,
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let rows = self.keys.rows(batch)?;
        let mut places: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            let bucket = bucket_of(self.keys.key(row.as_ref()), self.buckets);
            places.entry(bucket).or_default().push(place as u32);
        }
        for (bucket, places) in places {
            let mut classes = Vec::with_capacity(places.len());
            for place in &places {
                classes.push(class_of(batch, self.class, *place as usize)?);
            }
            let rows = take_record_batch(batch, &UInt32Array::from(places))?;
            let file = self.files.add(bucket, &rows)?;
            for class in classes {
                *file.classes.entry(class).or_default() += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Vec<BucketFile>, Error> {
        self.files.finish()
    }
}

/// All rows of a bucket, in the order of their keys.
pub(crate) fn sorted(folder: &Path, files: &[BucketFile], seed: u64) -> Result<RecordBatch, Error> {
    let mut batches = Vec::new();
    let mut schema = SchemaRef::new(datafusion::arrow::datatypes::Schema::empty());
    for file in files {
        let reader = BucketReader::open(folder, file)?;
        schema = reader.reader.schema();
        for batch in reader {
            batches.push(batch?);
        }
    }
    let whole = concat_batches(&schema, &batches)?;
    let keys = RowKeys::new(&schema, seed)?;
    let rows = keys.rows(&whole)?;
    let mut order: Vec<(u64, u32)> = rows
        .iter()
        .enumerate()
        .map(|(place, row)| (keys.key(row.as_ref()), place as u32))
        .collect();
    // Rows with equal keys are nearly always equal; if not, their bytes decide.
    order.sort_unstable_by(|(a, one), (b, two)| {
        a.cmp(b).then_with(|| rows.row(*one as usize).cmp(&rows.row(*two as usize)))
    });
    let order: Vec<u32> = order.into_iter().map(|(_, place)| place).collect();
    Ok(take_record_batch(&whole, &UInt32Array::from(order))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_bucket_are_below_those_of_the_next() {
        for buckets in [1, 3, 16] {
            let keys = [0, 1, u64::MAX / 3, u64::MAX / 2, u64::MAX - 1, u64::MAX];
            let found: Vec<u64> = keys.into_iter().map(|key| bucket_of(key, buckets)).collect();
            assert!(found.is_sorted() && found[5] == buckets - 1 && found[0] == 0, "{found:?}");
        }
    }
}
