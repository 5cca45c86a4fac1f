//! `salamander data convert`: records in another format, in one file or in shards.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use salamander_core::words::count;
use salamander_data::sink::{Sink, create};
use salamander_data::types::Types;
use salamander_data::{ColumnInfo, Format, Row};

use super::tokenize::{ColumnTokenizer, TokenizedColumn};
use super::{DataInput, format_parser, in_blocks, records_bar};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: DataInput,
    /// The file to write; its ending tells the format. Shards are numbered before the ending
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The format to write, where the ending does not tell it
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(Format::is_written))]
    to: Option<Format>,
    /// Start a new shard after so many records
    #[arg(long, value_name = "N")]
    shard_records: Option<u64>,
    /// Start a new shard after so many megabytes
    #[arg(long, value_name = "MB")]
    shard_megabytes: Option<u64>,
    /// Write a column of text as the ids of its tokens, by a tokenizer of Hugging Face, so that training need not
    #[arg(long, value_name = "COLUMN=FILE")]
    tokenize: Option<TokenizedColumn>,
    /// The most tokens of a text, special ones included; what is longer is cut
    #[arg(long, value_name = "N", default_value_t = 128, requires = "tokenize")]
    max_length: usize,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let dataset = args.input.open()?;
    if let Some(folder) = args.out.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut shards = Shards::new(&args.out, args.to, args.shard_records, args.shard_megabytes)?;
    let types = Types::infer(&dataset, shards.format)?;
    let tokenizer = args
        .tokenize
        .as_ref()
        .map(|said| ColumnTokenizer::load(said, args.max_length, shards.format))
        .transpose()?;
    match &tokenizer {
        Some(tokenizer) => shards.expect(&tokenizer.columns(types.columns())?),
        None => shards.expect(types.columns()),
    }
    let bar = records_bar(dataset.len());
    in_blocks(&dataset, |block| {
        // Rows come in order, because the numbers asked for do.
        dataset.read(block, &mut |_, row| {
            let row = types.apply(&row);
            match &tokenizer {
                Some(tokenizer) => shards.write(&tokenizer.apply(&row)?),
                None => shards.write(&row),
            }
        })?;
        bar.inc(block.len() as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    let files = shards.finish()?;
    let (records, files) = (count(dataset.len(), "record"), count(files.len() as u64, "file"));
    outln!("{records} in {files}: {}", args.out.display())?;
    Ok(())
}

/// Files that are written one after the other.
pub(super) struct Shards {
    path: PathBuf,
    format: Format,
    most_records: u64,
    most_bytes: u64,
    sink: Option<Box<dyn Sink>>,
    records: u64,
    written: Vec<PathBuf>,
    columns: Vec<ColumnInfo>,
}

impl Shards {
    pub(super) fn new(
        path: &Path,
        format: Option<Format>,
        most_records: Option<u64>,
        most_megabytes: Option<u64>,
    ) -> Result<Self> {
        ensure!(
            most_records != Some(0) && most_megabytes != Some(0),
            "a shard needs a size above 0"
        );
        let format = match format {
            Some(format) => format,
            None => Format::of_name(path).with_context(|| {
                format!("{}: name a file with a known ending, or --to FORMAT", path.display())
            })?,
        };
        Ok(Self {
            path: path.to_path_buf(),
            format,
            most_records: most_records.unwrap_or(u64::MAX),
            most_bytes: most_megabytes.map_or(u64::MAX, |megabytes| megabytes << 20),
            sink: None,
            records: 0,
            written: Vec::new(),
            columns: Vec::new(),
        })
    }

    /// The format that is written.
    #[cfg(test)]
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Says which columns rows can have.
    pub(super) fn expect(&mut self, columns: &[ColumnInfo]) {
        self.columns = columns.to_vec();
    }

    pub(super) fn write(&mut self, row: &Row<'_>) -> Result<(), salamander_data::Error> {
        let full = self.sink.as_ref().is_some_and(|sink| sink.bytes() >= self.most_bytes)
            || self.records >= self.most_records;
        if full && let Some(sink) = self.sink.take() {
            sink.finish()?;
        }
        if self.sink.is_none() {
            self.begin()?;
        }
        self.records += 1;
        self.sink.as_mut().map_or(Ok(()), |sink| sink.write(row))
    }

    /// Ends the last file and returns all of them.
    pub(super) fn finish(mut self) -> Result<Vec<PathBuf>> {
        if self.written.is_empty() {
            // No records still make a file: an empty one, not none.
            self.begin()?;
        }
        if let Some(sink) = self.sink.take() {
            sink.finish()?;
        }
        Ok(self.written)
    }

    fn begin(&mut self) -> Result<(), salamander_data::Error> {
        let path = self.next_path();
        let mut sink = create(&path, self.format)?;
        sink.expect(&self.columns)?;
        self.sink = Some(sink);
        self.written.push(path);
        self.records = 0;
        Ok(())
    }

    fn next_path(&self) -> PathBuf {
        if self.most_records == u64::MAX && self.most_bytes == u64::MAX {
            return self.path.clone();
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(numbered(&name, self.written.len()))
    }
}

/// The name of a shard: its number stands before the ending, which is two words where the file is packed.
fn numbered(name: &str, number: usize) -> String {
    let (plain, packed) = match name.strip_suffix(".gz") {
        Some(plain) => (plain, ".gz"),
        None => (name, ""),
    };
    match plain.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}-{number:05}.{ending}{packed}"),
        None => format!("{plain}-{number:05}{packed}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use salamander_data::{ColumnKind, Dataset, open};

    use super::*;

    #[test]
    fn shards_are_numbered_before_their_ending() {
        let check = |name: &str, expected: &str| assert_eq!(numbered(name, 3), expected);
        check("part.recordio", "part-00003.recordio");
        check("part.v2.csv.gz", "part.v2-00003.csv.gz");
        check("part", "part-00003");
    }

    fn opened(path: &Path) -> Dataset {
        let reader = open(&[path.to_path_buf()], None).expect("opens");
        Dataset::new(Arc::from(reader)).expect("counted")
    }

    fn convert(from: &Path, to: &Path) {
        let dataset = opened(from);
        let mut shards = Shards::new(to, None, None, None).expect("a format");
        let types = Types::infer(&dataset, shards.format()).expect("read");
        shards.expect(types.columns());
        in_blocks(&dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| shards.write(&types.apply(&row)))?)
        })
        .expect("written");
        shards.finish().expect("written");
    }

    fn rows(path: &Path) -> Vec<String> {
        let (dataset, mut rows) = (opened(path), Vec::new());
        in_blocks(&dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| {
                let cells = row.columns().map(|(name, value)| format!("{name}={value:?}"));
                rows.push(cells.collect::<Vec<_>>().join(" "));
                Ok(())
            })?)
        })
        .expect("read");
        rows
    }

    /// Strings, order, types and nulls, also those of the first record, on the way through each format.
    #[test]
    fn columns_survive_other_formats() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let lines = [
            r#"{"zip": "8001", "age": 31, "tags": ["a", "b"]}"#,
            r#"{"name": "ada", "zip": "0100", "age": 36, "size": 1.5, "tags": []}"#,
            r#"{"name": "bob", "zip": "8002", "size": 2.0, "tags": ["c", "d"]}"#,
        ];
        std::fs::write(path("a.jsonl"), lines.join("\n")).expect("written");
        convert(&path("a.jsonl"), &path("b.parquet"));
        let columns = opened(&path("b.parquet")).columns().expect("Parquet knows its columns");
        let found: Vec<_> = columns.iter().map(|c| (c.name.as_str(), c.kind, c.list)).collect();
        let expected = [
            ("zip", ColumnKind::Text, false),
            ("age", ColumnKind::Ints, false),
            ("tags", ColumnKind::Text, true),
            ("name", ColumnKind::Text, false),
            ("size", ColumnKind::Floats, false),
        ];
        assert_eq!(found, expected);
        convert(&path("b.parquet"), &path("c.recordio"));
        convert(&path("c.recordio"), &path("d.parquet"));
        assert_eq!(rows(&path("d.parquet")), rows(&path("b.parquet")));
        assert_eq!(opened(&path("d.parquet")).columns(), Some(columns));
        // A null of the first record is a cell of the header.
        let flat = ["{\"b\": 1}", "{\"a\": \"x\", \"b\": 2}"];
        std::fs::write(path("e.jsonl"), flat.join("\n")).expect("written");
        convert(&path("e.jsonl"), &path("f.csv.gz"));
        let text = rows(&path("f.csv.gz"));
        assert_eq!(text, ["b=Text(\"1\") a=Text(\"\")", "b=Text(\"2\") a=Text(\"x\")"]);
        convert(&path("f.csv.gz"), &path("g.jsonl"));
        let back = std::fs::read_to_string(path("g.jsonl")).expect("written");
        assert_eq!(back, "{\"b\":1,\"a\":\"\"}\n{\"b\":2,\"a\":\"x\"}\n");
    }
}
