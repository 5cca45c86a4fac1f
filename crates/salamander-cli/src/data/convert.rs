//! `salamander data convert`: records in another format, in one file or in shards.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use salamander_core::words::count;
use salamander_data::sink::{Sink, create};
use salamander_data::{ColumnInfo, Format, Row};

use super::tokenize::{ColumnTokenizer, TokenizedColumn};
use super::types::Types;
use super::{Input, format_parser, in_blocks, records_bar};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,
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
    use super::*;

    #[test]
    fn shards_are_numbered_before_their_ending() {
        let check = |name: &str, expected: &str| assert_eq!(numbered(name, 3), expected);
        check("part.recordio", "part-00003.recordio");
        check("part.v2.csv.gz", "part.v2-00003.csv.gz");
        check("part", "part-00003");
    }
}
