//! Writes rows into shards of bounded size, one after the other, with what is counted on the way.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use salamander_data::sink::{Sink, create};
use salamander_data::{Format, Value};
use salamander_files::{Durability, PendingFile};
use serde::{Deserialize, Serialize};

use super::settings::SinkSettings;
use crate::flow::Error;
use crate::flow::cells::{WrittenColumns, refuse_null_items, row_columns, row_of};

/// Rows that are written at a time, so that the size is looked at now and then.
const SLICE: usize = 1024;
/// Bytes after which a row group of Parquet ends.
const GROUP_BYTES: usize = 64 << 20;

/// Words of columns, and how often each occurs.
pub(crate) type Vocabularies = BTreeMap<String, BTreeMap<String, u64>>;

/// A shard that is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFile {
    /// The folder of the output that it belongs to.
    pub part: String,
    /// Its file: in the staging folder first, in the output in the end.
    pub file: String,
    /// How many rows it has.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// The hash of its bytes.
    pub blake3: String,
}

/// Writes shards of one part.
pub(crate) struct ShardWriter<'a> {
    settings: &'a SinkSettings,
    format: Format,
    folder: &'a Path,
    /// How the names of files begin.
    name: String,
    part: &'static str,
    columns: WrittenColumns,
    /// Rows as our sinks take them.
    as_rows: WrittenColumns,
    open: Option<OpenShard>,
    written: Vec<ShardFile>,
    /// Only the first part's words are counted: the model must not know those of the others.
    words: Option<Vocabularies>,
}

/// Where shards go, and what they belong to.
pub(crate) struct ShardPlace<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) name: String,
    pub(crate) part: &'static str,
}

struct OpenShard {
    path: PathBuf,
    rows: u64,
    output: ShardOutput,
}

enum ShardOutput {
    Parquet(Box<ArrowWriter<PendingFile>>),
    Rows(Box<dyn Sink>),
}

impl<'a> ShardWriter<'a> {
    pub(crate) fn new(
        settings: &'a SinkSettings,
        columns: WrittenColumns,
        place: ShardPlace<'a>,
    ) -> Result<Self, Error> {
        let as_rows = row_columns(&columns.schema)?;
        let is_counted = place.part == settings.parts()[0] && !settings.vocabularies.is_empty();
        let none = |column: &String| (column.clone(), BTreeMap::new());
        let words = is_counted.then(|| settings.vocabularies.iter().map(none).collect());
        let (format, ShardPlace { folder, name, part }) = (settings.format()?, place);
        let written = Vec::new();
        Ok(Self {
            settings,
            format,
            folder,
            name,
            part,
            columns,
            as_rows,
            open: None,
            written,
            words,
        })
    }

    /// Adds rows of the columns that were told.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let mut start = 0;
        while start < batch.num_rows() {
            if self.open.as_ref().is_some_and(|open| self.is_full(open)) {
                self.end_shard()?;
            }
            let room = self
                .settings
                .shard_records
                .map_or(u64::MAX, |most| most - self.open.as_ref().map_or(0, |open| open.rows));
            let rows =
                (batch.num_rows() - start).min(SLICE).min(room.try_into().unwrap_or(usize::MAX));
            self.write_slice(&batch.slice(start, rows))?;
            start += rows;
        }
        Ok(())
    }

    /// Ends the last shard. Where nothing was written there is none, or an empty one if one is wanted.
    pub(crate) fn finish(
        mut self,
        even_empty: bool,
    ) -> Result<(Vec<ShardFile>, Option<Vocabularies>), Error> {
        if even_empty && self.written.is_empty() && self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        self.end_shard()?;
        Ok((self.written, self.words))
    }

    fn is_full(&self, open: &OpenShard) -> bool {
        let bytes = match &open.output {
            ShardOutput::Parquet(writer) => {
                (writer.bytes_written() + writer.in_progress_size()) as u64
            }
            ShardOutput::Rows(sink) => sink.bytes(),
        };
        let most = |most: Option<u64>| most.unwrap_or(u64::MAX);
        open.rows >= most(self.settings.shard_records) || bytes >= most(self.settings.shard_bytes)
    }

    fn write_slice(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        let rows = match (&open.output, &self.words) {
            (ShardOutput::Parquet(_), None) => None,
            _ => Some(self.as_rows.apply(batch)?),
        };
        match &mut open.output {
            ShardOutput::Parquet(writer) => {
                writer.write(batch)?;
                if writer.in_progress_size() > GROUP_BYTES {
                    writer.flush()?;
                }
            }
            ShardOutput::Rows(sink) => {
                rows.iter().try_for_each(refuse_null_items)?;
                for row in rows.iter().flat_map(|rows| each_row(rows, &self.as_rows.schema)) {
                    sink.write(&row)?;
                }
            }
        }
        if let (Some(words), Some(rows)) = (&mut self.words, &rows) {
            count_words(words, rows, &self.as_rows.schema)?;
        }
        open.rows += batch.num_rows() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn begin(&self) -> Result<OpenShard, Error> {
        let number = self.written.len();
        let ending = self.format.endings().first().unwrap_or(&"bin");
        let path = self.folder.join(format!("{}-{}-{number:05}.{ending}", self.name, self.part));
        let output = if self.format == Format::Parquet {
            let file = PendingFile::create(&path, Durability::Synced).map_err(Error::io(&path))?;
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            // Types as every reader has them.
            let options = ArrowWriterOptions::new()
                .with_properties(properties)
                .with_skip_arrow_metadata(true);
            let schema = SchemaRef::clone(&self.columns.schema);
            let writer = ArrowWriter::try_new_with_options(file, schema, options)?;
            ShardOutput::Parquet(Box::new(writer))
        } else {
            let mut sink = create(&path, self.format)?;
            sink.expect(&self.as_rows.infos())?;
            ShardOutput::Rows(sink)
        };
        Ok(OpenShard { path, rows: 0, output })
    }

    fn end_shard(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let path = open.path;
        match open.output {
            ShardOutput::Parquet(writer) => {
                writer.into_inner()?.commit().map_err(Error::io(&path))?;
            }
            ShardOutput::Rows(sink) => sink.finish()?,
        }
        let (bytes, blake3) = hash(&path)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let part = self.part.to_string();
        self.written.push(ShardFile { part, file, rows: open.rows, bytes, blake3 });
        Ok(())
    }
}

fn each_row<'a>(
    batch: &'a RecordBatch,
    schema: &'a SchemaRef,
) -> impl Iterator<Item = salamander_data::Row<'a>> {
    (0..batch.num_rows()).map(move |row| row_of(batch, schema, row))
}

/// What a file has on the disk.
pub(crate) fn hash(path: &Path) -> Result<(u64, String), Error> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(Error::io(path))?;
    hasher.update_reader(file).map_err(Error::io(path))?;
    Ok((hasher.count(), hasher.finalize().to_hex().to_string()))
}

fn count_words(
    words: &mut Vocabularies,
    rows: &RecordBatch,
    schema: &SchemaRef,
) -> Result<(), Error> {
    for row in each_row(rows, schema) {
        for (column, counts) in words.iter_mut() {
            let found: Vec<&[u8]> = match row.get(column) {
                None => continue,
                Some(Value::Text(text)) => vec![text.as_bytes()],
                Some(Value::Bytes(bytes)) => vec![bytes],
                Some(Value::List(items)) => items.clone(),
                Some(other) => {
                    let reason = format!("{} are no words", other.kind());
                    return Err(Error::step(&format!("vocabulary of \"{column}\""), reason));
                }
            };
            for bytes in found {
                let word = String::from_utf8_lossy(bytes);
                // A line end cannot be part of a line, and what is only space is no word.
                if word.trim().is_empty() || word.contains(['\n', '\r']) {
                    continue;
                }
                match counts.get_mut(word.as_ref()) {
                    Some(count) => *count += 1,
                    None => {
                        counts.insert(word.into_owned(), 1);
                    }
                }
            }
        }
    }
    Ok(())
}
