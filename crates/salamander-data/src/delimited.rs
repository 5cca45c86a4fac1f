//! CSV, TSV and headerless text files as shards: the place of every 1,024th record is kept, so that a range far into a
//! file is found without reading all before it, and blocks parsed lately are kept for shuffled reading.

use std::io::{Read, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use csv::{ByteRecord, Position};

use crate::dialect::Dialect;
use crate::index_cache::{Cut, Save};
use crate::lru::Lru;
use crate::reader::{self, Each, OneShard};
use crate::{Blob, BlobReader, Error, Format, Row, Value};

/// Records between two places that are kept, at most.
const BLOCK_RECORDS: u64 = 1024;
/// Bytes after which a place is kept even earlier, so that a block of large records takes little memory.
const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Parsed blocks, shared by files.
pub(crate) type Cache = Lru<Vec<ByteRecord>>;

/// An indexed file whose values are text. A file without bytes has no records.
#[derive(Debug)]
pub(crate) struct Delimited {
    blob: Blob,
    dialect: Dialect,
    index: Index,
    cache: Arc<Cache>,
    /// The file's number in the cache.
    number: u64,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Index {
    names: Vec<String>,
    /// Where each block begins.
    marks: Vec<Mark>,
    records: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    record: u64,
    byte: u64,
    line: u64,
}

impl Delimited {
    /// The file of an index.
    pub(crate) fn new(blob: Blob, dialect: Dialect, index: Index, cache: Arc<Cache>) -> Delimited {
        let number = cache.next_file();
        Delimited { blob, dialect, index, cache, number }
    }

    /// The records of a block, with the memory they take.
    fn load(&self, block: usize) -> Result<(Vec<ByteRecord>, usize), Error> {
        let path = self.blob.path();
        let failed = |error| failed(path, error);
        let (mark, range) = (self.index.marks[block], self.index.block(block));
        let mut source = source(&self.blob, self.dialect)?;
        let mut position = Position::new();
        position.set_byte(mark.byte).set_line(mark.line).set_record(mark.record);
        source.seek_raw(SeekFrom::Start(mark.byte), position).map_err(failed)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for _ in range {
            let mut record = ByteRecord::new();
            if !source.read_byte_record(&mut record).map_err(failed)? {
                return Err(Error::Changed { path: path.to_owned() });
            }
            bytes += record.as_slice().len() + 8 * record.len() + 128;
            records.push(record);
        }
        Ok((records, bytes))
    }

    fn row<'a>(&'a self, fields: &'a ByteRecord, record: u64) -> Result<Row<'a>, Error> {
        let (path, names, dialect) = (self.blob.path(), &self.index.names, self.dialect);
        let found = fields.len().div_ceil(dialect.step());
        if found != names.len() {
            let (line, wanted) = (self.line(fields), names.len());
            let by = if dialect.columns().is_some() { "format" } else { "header" };
            let reason = format!("line {line}: {found} fields, but the {by} has {wanted}");
            return Err(Error::Rejected(reason).at(path, None, record));
        }
        let between = fields.iter().skip(1).step_by(2);
        let separated = fields.len() % 2 == 1 && between.into_iter().all(<[u8]>::is_empty);
        if dialect.step() == 2 && !separated {
            let reason = format!("line {}: write two colons between two fields", self.line(fields));
            return Err(Error::Rejected(reason).at(path, None, record));
        }
        let mut columns = Vec::with_capacity(names.len());
        for (name, field) in names.iter().zip(fields.iter().step_by(dialect.step())) {
            let text = std::str::from_utf8(field).map_err(|error| {
                let reason = format!("line {}: {error}", self.line(fields));
                Error::Column { column: name.clone(), reason }.at(path, None, record)
            })?;
            columns.push((name.as_str().into(), Value::Text(dialect.read(name, text))));
        }
        Ok(Row::new(columns))
    }

    /// The line a record begins in, for messages. The csv crate's position is where the record before
    /// ended, so the rest of a line end, blank lines and remarks are counted here.
    fn line(&self, fields: &ByteRecord) -> u64 {
        let Some(position) = fields.position() else { return 0 };
        let mut start = [0; 4096];
        let read = self.blob.handle().map(|file| file.reader(position.byte()).read(&mut start));
        let start = &start[..read.ok().and_then(Result::ok).unwrap_or(0)];
        let (mut line, mut in_remark) = (position.line(), false);
        for byte in start {
            in_remark = *byte != b'\n' && (in_remark || *byte == self.dialect.remark());
            match byte {
                b'\n' => line += 1,
                b'\r' => {}
                _ if in_remark => {}
                _ => break,
            }
        }
        line
    }
}

impl OneShard for Delimited {
    fn path(&self) -> &Path {
        self.blob.path()
    }

    fn count(&self) -> u64 {
        self.index.records
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.blob.path();
        self.blob.verify()?;
        let mut next = records.start;
        while next < records.end {
            let block = self.index.block_of(next);
            let range = self.index.block(block);
            let rows = self.cache.get_or_load((self.number, block as u64), || self.load(block))?;
            for record in next..range.end.min(records.end) {
                let row = self.row(&rows[(record - range.start) as usize], record)?;
                each(record, row).map_err(|error| error.at(path, None, record))?;
            }
            next = range.end;
        }
        Ok(())
    }
}

impl Index {
    /// Goes through a file of this dialect.
    pub(crate) fn build_as(dialect: Dialect, blob: &Blob) -> Result<Index, Error> {
        let path = blob.path();
        let failed = |error| failed(path, error);
        let mut source = source(blob, dialect)?;
        let mut names = match dialect.columns() {
            Some(columns) => columns.iter().map(|name| (*name).to_owned()).collect(),
            None => column_names(path, source.byte_headers().map_err(failed)?)?,
        };
        let (mut marks, mut records): (Vec<Mark>, u64) = (Vec::new(), 0);
        let mut fields = ByteRecord::new();
        loop {
            let (byte, line) = (source.position().byte(), source.position().line());
            if !source.read_byte_record(&mut fields).map_err(failed)? {
                break;
            }
            let due = marks.last().is_none_or(|last| {
                records - last.record >= BLOCK_RECORDS || byte - last.byte >= BLOCK_BYTES
            });
            if due {
                marks.push(Mark { record: records, byte, line });
            }
            if records == 0 && dialect == Dialect::Criteo && fields.len() + 1 == names.len() {
                // Records to predict: without the label, which comes first.
                names.remove(0);
            }
            records += 1;
        }
        Ok(Index { names, marks, records })
    }
}

impl reader::Index for Index {
    fn build(blob: &Blob) -> Result<Index, Error> {
        Index::build_as(Dialect::of(Format::Csv, blob.path()), blob)
    }

    fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        saved.put(self.names.len() as u64);
        for name in &self.names {
            saved.put_bytes(name.as_bytes());
        }
        saved.put(self.records);
        for mark in &self.marks {
            saved.put(mark.record);
            saved.put(mark.byte);
            saved.put(mark.line);
        }
        saved
    }

    /// Has all its places in the file, in order, or is none.
    fn restore(saved: &[u8], size: u64) -> Option<Index> {
        let mut cut = Cut(saved);
        let mut names = Vec::new();
        for _ in 0..cut.number()? {
            names.push(String::from_utf8(cut.bytes()?.to_vec()).ok()?);
        }
        let records = cut.number()?;
        let mut marks: Vec<Mark> = Vec::new();
        while !cut.0.is_empty() {
            let mark = Mark { record: cut.number()?, byte: cut.number()?, line: cut.number()? };
            let follows = match marks.last() {
                Some(last) => {
                    let block = last.record + 1..=last.record.saturating_add(BLOCK_RECORDS);
                    block.contains(&mark.record) && mark.byte > last.byte
                }
                None => mark.record == 0,
            };
            if !follows || mark.byte >= size || mark.record >= records {
                return None;
            }
            marks.push(mark);
        }
        let last = marks.last().map_or(0, |last| last.record + BLOCK_RECORDS);
        (records <= last).then_some(Index { names, marks, records })
    }
}

impl Index {
    /// The block that holds a record below `self.records`.
    fn block_of(&self, record: u64) -> usize {
        self.marks.partition_point(|mark| mark.record <= record).saturating_sub(1)
    }

    /// The records of a block.
    fn block(&self, block: usize) -> Range<u64> {
        let end = self.marks.get(block + 1).map_or(self.records, |mark| mark.record);
        self.marks[block].record..end
    }
}

fn source(blob: &Blob, dialect: Dialect) -> Result<csv::Reader<BlobReader>, Error> {
    let reader = blob.handle()?.reader(0);
    Ok(dialect.reader().buffer_capacity(BUFFER_BYTES).from_reader(reader))
}

fn column_names(path: &Path, headers: &ByteRecord) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::Form { path: path.to_owned(), reason };
    let mut names = Vec::with_capacity(headers.len());
    for (column, name) in headers.iter().enumerate() {
        let name = std::str::from_utf8(name)
            .map_err(|error| wrong(format!("header row: column {column}: {error}")))?;
        if names.iter().any(|earlier| earlier == name) {
            return Err(wrong(format!("header row: column {name:?} occurs twice")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn failed(path: &Path, error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::io(path)(source),
        other => Error::Form { path: path.to_owned(), reason: format!("{other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Reader;
    use crate::reader::Index as _;

    fn opened(blob: Blob) -> Result<Delimited, Error> {
        let format = Format::of_name(blob.path()).unwrap_or(Format::Criteo);
        let dialect = Dialect::of(format, blob.path());
        let index = Index::build_as(dialect, &blob)?;
        Ok(Delimited::new(blob, dialect, index, Arc::default()))
    }

    /// All rows as "column=value|column=value", or the error; a `.txt` file is one of Criteo's.
    fn rows(
        name: &str,
        content: &[u8],
        records: Option<Range<u64>>,
    ) -> Result<Vec<String>, String> {
        let (_folder, path) = crate::blob::saved(name, content);
        let strip = |error: Error| error.to_string().replace(&format!("{}", path.display()), name);
        let file = opened(Blob::open(&path).unwrap()).map_err(strip)?;
        let records = records.unwrap_or(0..file.index.records);
        let mut rows = Vec::new();
        file.read(0, records, &mut |_, row| {
            let cells =
                row.columns().map(|(name, _)| format!("{name}={}", row.text(name).unwrap()));
            rows.push(cells.collect::<Vec<_>>().join("|"));
            Ok(())
        })
        .map_err(strip)?;
        Ok(rows)
    }

    #[test]
    fn quotes_newlines_and_tabs_are_understood() {
        let check = |name: &str, content: &str, expected: &[&str]| {
            assert_eq!(rows(name, content.as_bytes(), None).unwrap(), expected);
        };
        check("a.csv", "x,y\n1,2\n3,4\n", &["x=1|y=2", "x=3|y=4"]);
        check("a.csv", "x,y\r\n1,2\r\n3,4", &["x=1|y=2", "x=3|y=4"]);
        check("a.csv", "x,y\n\"a\nb\",\"c,\"\"d\"\"\"\n", &["x=a\nb|y=c,\"d\""]);
        check("a.csv", "x,y\n,\n", &["x=|y="]);
        check("a.csv", "\u{feff}x,y\n1,2\n", &["x=1|y=2"]);
        check("a.tsv", "x\ty\n1,5\t2\n", &["x=1,5|y=2"]);
        check("a.csv", "x,y\n", &[]);
        check("a.csv", "", &[]);
    }

    #[test]
    fn bad_files_are_named_with_line_and_record() {
        let check = |content: &[u8], expected: &str| {
            assert_eq!(rows("a.csv", content, None).unwrap_err(), expected);
        };
        check(b"x,y\n1,2\n3\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
        check(b"x,y\r\n1,2\r\n3\r\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
        check(b"x,y\n1,2\n\n\n3\n", "a.csv: record 1: line 5: 1 fields, but the header has 2");
        check(
            b"x,y\n\"1\n1\",2\n3,4,5\n",
            "a.csv: record 1: line 4: 3 fields, but the header has 2",
        );
        check(
            b"x,y\n1,\xff\n",
            "a.csv: record 0: column \"y\": line 2: invalid utf-8 sequence of 1 bytes from index 0",
        );
        check(b"x,x\n1,2\n", "a.csv: header row: column \"x\" occurs twice");
    }

    /// The first lines of the public files.
    #[test]
    fn public_files_have_the_columns_of_their_format() {
        let adult = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, \
                     Male, 2174, 0, 40, United-States, <=50K\n\
                     52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 45, ?, \
                     >50K\n\n";
        let found = rows("adult.data", adult.as_bytes(), None).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("age=39|workclass=State-gov|fnlwgt=77516|"), "{}", found[0]);
        assert!(found[0].ends_with("|native_country=United-States|label=0"), "{}", found[0]);
        assert!(found[1].contains("workclass=|") && found[1].contains("|occupation=|"));
        assert!(found[1].ends_with("|native_country=|label=1"), "{}", found[1]);
        let test = format!("|1x3 Cross validator\n{}", adult.replace("50K", "50K."));
        assert_eq!(rows("adult.test", test.as_bytes(), None).unwrap(), found);

        let criteo = format!("0\t1\t-1{}68fd1e64{}\n", "\t".repeat(12), "\t".repeat(25));
        let found = rows("train.txt", criteo.as_bytes(), None).unwrap();
        assert!(found[0].starts_with("label=0|I1=1|I2=-1|I3=|"), "{}", found[0]);
        assert!(found[0].contains("|I13=|C1=68fd1e64|C2=|"), "{}", found[0]);
        let unlabelled = rows("test.txt", &criteo.as_bytes()[2..], None).unwrap();
        assert_eq!(format!("label=0|{}", unlabelled[0]), found[0]);

        let movielens = "1::1193::5::978300760\n1::661::3::978302109\n";
        let found = rows("ratings.dat", movielens.as_bytes(), None).unwrap();
        assert_eq!(found[1], "userId=1|movieId=661|rating=3|timestamp=978302109");
        let csv = "userId,movieId,rating,timestamp\n1,1193,5,978300760\n1,661,3,978302109\n";
        assert_eq!(rows("ratings.csv", csv.as_bytes(), None).unwrap(), found);
    }

    #[test]
    fn faults_of_public_files_are_named_with_their_line() {
        let check = |name: &str, content: &str, expected: &str| {
            assert_eq!(rows(name, content.as_bytes(), None).unwrap_err(), expected);
        };
        check(
            "ratings.dat",
            "1::2::3::4\n1::2::3\n",
            "ratings.dat: record 1: line 2: 3 fields, but the format has 4",
        );
        for odd in ["1:x:2:y:3:z:4", "1::2::3::4:"] {
            let reason = "ratings.dat: record 0: line 1: write two colons between two fields";
            check("ratings.dat", odd, reason);
        }
        check(
            "adult.test",
            "|1x3 Cross validator\r\n\r\n39, Private\r\n",
            "adult.test: record 0: line 3: 2 fields, but the format has 15",
        );
        check(
            "train.txt",
            "0\t1\n",
            "train.txt: record 0: line 1: 2 fields, but the format has 40",
        );
    }

    #[test]
    fn ranges_start_anywhere() {
        for end_of_line in ["\n", "\r\n"] {
            let mut content = format!("x,y{end_of_line}");
            for record in 0..5000 {
                content += &format!("{record},\"a{end_of_line},\"{end_of_line}");
            }
            let all = rows("a.csv", content.as_bytes(), None).unwrap();
            assert_eq!(all.len(), 5000);
            let check = |records: Range<u64>| {
                let found = rows("a.csv", content.as_bytes(), Some(records.clone())).unwrap();
                assert_eq!(found, all[records.start as usize..records.end as usize]);
            };
            check(0..1);
            check(1023..1025);
            check(1024..1024);
            check(1025..3000);
            check(4096..5000);
            check(4999..5000);
        }
    }

    #[test]
    fn lines_are_right_after_a_jump() {
        let mut content = "x,y\r\n".to_owned();
        content += &"1,2\r\n".repeat(3000);
        content += "3\r\n";
        let found = rows("a.csv", content.as_bytes(), Some(2900..3001)).unwrap_err();
        assert_eq!(found, "a.csv: record 3000: line 3002: 1 fields, but the header has 2");
    }

    fn saved(content: &str) -> (tempfile::TempDir, Blob) {
        let (folder, path) = crate::blob::saved("a.csv", content.as_bytes());
        (folder, Blob::open(&path).unwrap())
    }

    #[test]
    fn shuffled_reading_parses_each_block_once() {
        let content = format!("x\n{}", "1\n".repeat(5000));
        let (_folder, blob) = saved(&content);
        let file = opened(blob).unwrap();
        let before = crate::blob::opened(file.blob.path());
        for record in (0..5000).map(|n| n * 1777 % 5000) {
            file.read(0, record..record + 1, &mut |_, _| Ok(())).unwrap();
        }
        assert_eq!(crate::blob::opened(file.blob.path()) - before, 5);
    }

    #[test]
    fn large_records_make_small_blocks() {
        let (_folder, blob) = saved(&format!("x\n{}", ("y".repeat(1 << 18) + "\n").repeat(10)));
        let file = opened(blob).unwrap();
        assert_eq!(file.index.marks.iter().map(|mark| mark.record).collect::<Vec<_>>(), [0, 4, 8]);
        let mut seen = 0;
        file.read(0, 3..10, &mut |_, row| {
            seen += row.text("x")?.len();
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, 7 << 18);
    }

    #[test]
    fn a_saved_index_is_restored_for_the_same_file_only() {
        let content = format!("x,\u{e9}\n{}", "1,2\n".repeat(3000));
        let (_folder, blob) = saved(&content);
        let index = Index::build(&blob).unwrap();
        let (saved, size) = (index.save(), blob.size());
        assert_eq!(Index::restore(&saved, size), Some(index));
        assert_eq!(Index::restore(&saved, size / 2), None);
        for length in 0..saved.len() {
            assert_eq!(Index::restore(&saved[..length], size), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            name in prop::sample::select(vec!["a.csv", "a.tsv", "adult.test", "ratings.dat", "train.txt"]),
            bytes in "[a-c0-9|:,?\\\"\\t\\r\\n .]{0,300}",
        ) {
            let _ = rows(name, bytes.as_bytes(), None);
        }

        /// What is written in a format without quotes is read again, or was refused.
        #[test]
        fn cells_survive_formats_without_quotes(cells in prop::collection::vec("[a-z0-9 .:,?|]{1,8}", 4)) {
            let dialect = Dialect::MovieLens;
            let names = dialect.columns().unwrap();
            let written: Option<Vec<&str>> =
                names.iter().zip(&cells).map(|(name, cell)| dialect.write(name, cell)).collect();
            let refused = cells.iter().any(|cell| cell.contains(':'));
            prop_assert_eq!(written.is_none(), refused);
            if let Some(written) = written {
                let found = rows("ratings.dat", written.join(dialect.between()).as_bytes(), None).unwrap();
                let expected: Vec<String> =
                    names.iter().zip(&cells).map(|(name, cell)| format!("{name}={cell}")).collect();
                prop_assert_eq!(&found[0], &expected.join("|"));
            }
        }
    }
}
