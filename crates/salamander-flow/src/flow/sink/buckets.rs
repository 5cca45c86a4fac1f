//! The order of a shuffle: a row's place follows from the seed and the row itself, so it is the same whoever had the
//! row and whenever it came. Rows go to buckets by the first bits of their key, and each bucket is sorted by itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::UInt64Type;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::display::array_value_to_string;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::row_keys::{RowKeys, bucket_of};
use crate::flow::Error;

/// The column of keys in the files of buckets, behind those of the rows: who sorts them need not make them again.
const KEY: &str = "salamander:key";
/// Rows that a bucket collects before they are written: a message for a few would cost more than the rows.
const TOGETHER: usize = 4096;
/// Bytes that all buckets of a writer collect.
const MOST_WAITING: usize = 16 << 20;

/// Rows of a bucket that one task has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketFile {
    pub(crate) bucket: u64,
    pub(crate) file: String,
    pub(crate) rows: u64,
    /// How many rows of each class, where classes are divided alike; otherwise all are of one.
    pub(crate) classes: BTreeMap<String, u64>,
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
    open: BTreeMap<u64, OpenBucket>,
    /// Bytes that wait in all of them.
    waiting: usize,
}

struct OpenBucket {
    writer: StreamWriter<BufWriter<File>>,
    file: BucketFile,
    waiting: Vec<RecordBatch>,
    rows: usize,
}

impl BucketFiles {
    /// Files whose names begin with this one.
    pub(crate) fn new(folder: &Path, name: &str, schema: &SchemaRef) -> Self {
        let (folder, name) = (folder.to_path_buf(), name.to_string());
        let schema = SchemaRef::clone(schema);
        Self { folder, name, schema, open: BTreeMap::new(), waiting: 0 }
    }

    /// Adds rows to a bucket, and gives what is known of its file.
    pub(crate) fn add(&mut self, bucket: u64, rows: RecordBatch) -> Result<&mut BucketFile, Error> {
        if self.waiting >= MOST_WAITING {
            self.open.values_mut().try_for_each(OpenBucket::write)?;
            self.waiting = 0;
        }
        let open = self.open.len();
        let open = match self.open.entry(bucket) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let file = format!("{}-bucket-{bucket:05}.arrow", self.name);
                let path = self.folder.join(&file);
                let out = File::create(&path).map_err(|cause| not_created(&path, open, cause))?;
                let writer = StreamWriter::try_new(BufWriter::new(out), &self.schema)?;
                let file = BucketFile { bucket, file, rows: 0, classes: BTreeMap::new() };
                place.insert(OpenBucket { writer, file, waiting: Vec::new(), rows: 0 })
            }
        };
        open.file.rows += rows.num_rows() as u64;
        open.rows += rows.num_rows();
        // Rows that were written are still counted here: it only makes all be written earlier.
        self.waiting += rows.get_array_memory_size();
        open.waiting.push(rows);
        if open.rows >= TOGETHER {
            open.write()?;
        }
        Ok(&mut open.file)
    }

    pub(crate) fn finish(self) -> Result<Vec<BucketFile>, Error> {
        let mut files = Vec::with_capacity(self.open.len());
        for mut open in self.open.into_values() {
            open.write()?;
            open.writer.finish()?;
            let path = self.folder.join(&open.file.file);
            let out = open.writer.into_inner()?.into_inner();
            out.map_err(|error| Error::io(&path)(error.into_error()))?;
            files.push(open.file);
        }
        Ok(files)
    }
}

impl OpenBucket {
    /// Writes what waits.
    fn write(&mut self) -> Result<(), Error> {
        match self.waiting.as_slice() {
            [] => return Ok(()),
            [rows] => self.writer.write(rows)?,
            [first, ..] => self.writer.write(&concat_batches(&first.schema(), &self.waiting)?)?,
        }
        self.waiting.clear();
        self.rows = 0;
        Ok(())
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

/// Puts rows into buckets, with their keys.
pub(crate) struct BucketWriter {
    files: BucketFiles,
    keys: RowKeys,
    buckets: u64,
    class: Option<usize>,
    /// The places of a batch's rows by their bucket.
    places: Vec<Vec<u32>>,
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
            files: BucketFiles::new(folder, name, &keyed(schema)),
            keys: RowKeys::new(schema, bucketing.seed)?,
            buckets: bucketing.buckets,
            class: class.transpose()?,
            places: vec![Vec::new(); bucketing.buckets as usize],
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let keys = self.keys.keys(batch)?;
        for (place, key) in keys.iter().enumerate() {
            self.places[bucket_of(*key, self.buckets) as usize].push(place as u32);
        }
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from(keys)) as ArrayRef);
        let batch = RecordBatch::try_new(SchemaRef::clone(&self.files.schema), columns)?;
        for (bucket, places) in self.places.iter_mut().enumerate() {
            if places.is_empty() {
                continue;
            }
            let classes = classes_of(&batch, self.class, places)?;
            let places = UInt32Array::from(std::mem::take(places));
            let file = self.files.add(bucket as u64, take_record_batch(&batch, &places)?)?;
            for (class, rows) in classes {
                *file.classes.entry(class).or_default() += rows;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Vec<BucketFile>, Error> {
        self.files.finish()
    }
}

/// The columns of rows, and that of their keys.
fn keyed(schema: &SchemaRef) -> SchemaRef {
    let key: FieldRef = Arc::new(Field::new(KEY, DataType::UInt64, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([key]).collect::<Vec<_>>()))
}

/// How many of some rows are of each class.
fn classes_of(
    batch: &RecordBatch,
    class: Option<usize>,
    places: &[u32],
) -> Result<BTreeMap<String, u64>, Error> {
    let mut classes = BTreeMap::new();
    if class.is_none() {
        classes.insert(String::new(), places.len() as u64);
        return Ok(classes);
    }
    for place in places {
        *classes.entry(class_of(batch, class, *place as usize)?).or_default() += 1;
    }
    Ok(classes)
}

/// All rows of a bucket, in the order of their keys.
pub(crate) fn sorted(folder: &Path, files: &[BucketFile], seed: u64) -> Result<RecordBatch, Error> {
    let mut batches = Vec::new();
    let mut schema = SchemaRef::new(Schema::empty());
    for file in files {
        let reader = BucketReader::open(folder, file)?;
        schema = reader.reader.schema();
        for batch in reader {
            batches.push(batch?);
        }
    }
    let mut whole = concat_batches(&schema, &batches)?;
    drop(batches);
    let keys = whole.remove_column(whole.num_columns() - 1);
    let keys = keys.as_primitive::<UInt64Type>().values();
    let places = 0u32..;
    let mut order: Vec<(u64, u32)> = keys.iter().copied().zip(places).collect();
    order.sort_unstable();
    order_ties(&mut order, &whole, seed)?;
    let order: Vec<u32> = order.into_iter().map(|(_, place)| place).collect();
    Ok(take_record_batch(&whole, &UInt32Array::from(order))?)
}

/// Rows with equal keys are nearly always equal; if not, their bytes decide, since their places are those of chance.
fn order_ties(order: &mut [(u64, u32)], whole: &RecordBatch, seed: u64) -> Result<(), Error> {
    let runs = order.chunk_by_mut(|one, other| one.0 == other.0);
    let mut runs: Vec<&mut [(u64, u32)]> = runs.filter(|run| run.len() > 1).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let places: Vec<u32> = runs.iter().flat_map(|run| run.iter().map(|row| row.1)).collect();
    let tied = take_record_batch(whole, &UInt32Array::from(places))?;
    let rows = RowKeys::new(whole.schema_ref(), seed)?.rows(&tied)?;
    let mut first = 0;
    for run in &mut runs {
        let mut sorted: Vec<(usize, u32)> =
            run.iter().enumerate().map(|(at, row)| (first + at, row.1)).collect();
        first += run.len();
        sorted.sort_by(|one, other| rows.row(one.0).cmp(&rows.row(other.0)));
        run.iter_mut().zip(sorted).for_each(|(row, (_, place))| row.1 = place);
    }
    Ok(())
}
