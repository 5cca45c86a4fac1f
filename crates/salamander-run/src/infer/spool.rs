//! What was answered so far: a file of JSON lines beside the output, which is made from it at the end. After a kill the
//! lines that are whole say where to go on.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use salamander_data::{Format, JsonRecord};
use serde_json::{Map, Value as Json, json};

use super::numbered;
use crate::Error;
use crate::output_file::{OutputFile, RECORD_FORMATS, format_of};

/// A file of answers, one line each after a line that says what they are answers to.
pub(super) struct Spool {
    out: PathBuf,
    format: Format,
    path: PathBuf,
    file: BufWriter<File>,
    done: u64,
}

impl Spool {
    /// Opens or begins the answers for an output; also tells how many records are answered.
    pub(super) fn open(
        out: &Path,
        model: &str,
        data: &[String],
        records: u64,
    ) -> Result<(Self, u64), Error> {
        let format = format_of(out, &RECORD_FORMATS)?;
        let mut name = out.as_os_str().to_owned();
        name.push(".partial");
        let path = PathBuf::from(name);
        let mut file = OpenOptions::new();
        let file = file.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(Error::io(&path))?;
        let job = json!({"model": model, "data": data, "records": records}).to_string();
        let (length, lines) = whole_lines(&file, &job).map_err(Error::io(&path))?;
        let Some(lines) = lines else {
            return Err(Error::Invalid(format!(
                "{} has answers to something else: remove it, or name another output",
                path.display()
            )));
        };
        // What a kill left of a line goes.
        file.set_len(length).map_err(Error::io(&path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::io(&path))?;
        let mut file = BufWriter::new(file);
        if length == 0 {
            writeln!(file, "{job}").map_err(Error::io(&path))?;
        }
        let out = out.to_path_buf();
        Ok((Self { out, format, path, file, done: lines }, lines))
    }

    /// Adds answers; returns how many there are.
    pub(super) fn write(&mut self, answers: Vec<Json>) -> Result<u64, Error> {
        for answer in answers {
            let line = numbered(self.done, answer);
            writeln!(self.file, "{line}").map_err(Error::io(&self.path))?;
            self.done += 1;
        }
        self.file.flush().map_err(Error::io(&self.path))?;
        Ok(self.done)
    }

    /// Makes the output, which is there completely or not at all.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.file.flush().map_err(Error::io(&self.path))?;
        let read = BufReader::new(File::open(&self.path).map_err(Error::io(&self.path))?);
        let mut output = OutputFile::create(&self.out, self.format)?;
        for line in read.lines().skip(1) {
            let line = line.map_err(Error::io(&self.path))?;
            match &mut output {
                OutputFile::JsonLines(file) => {
                    writeln!(file, "{line}").map_err(Error::io(&self.out))?;
                }
                OutputFile::Table(sink) => {
                    let object = serde_json::from_str(&line).map_err(Error::broken(&self.path))?;
                    let record = JsonRecord::new(one_by_one(object)).map_err(Error::Invalid)?;
                    sink.write(&record.row())?;
                }
            }
        }
        match output {
            OutputFile::JsonLines(file) => file.commit().map_err(Error::io(&self.out))?,
            OutputFile::Table(sink) => sink.finish()?,
        }
        fs::remove_file(&self.path).map_err(Error::io(&self.path))
    }
}

/// A table has a column for each value of a list.
fn one_by_one(object: Map<String, Json>) -> Map<String, Json> {
    let mut columns = Map::new();
    for (name, value) in object {
        match value {
            Json::Array(items) => {
                let items = items.into_iter().enumerate();
                columns.extend(items.map(|(place, item)| (format!("{name}_{place}"), item)));
            }
            value => {
                columns.insert(name, value);
            }
        }
    }
    columns
}

/// Bytes up to the last whole line, and the lines after the first one; nothing where that one is another job's.
fn whole_lines(file: &File, job: &str) -> std::io::Result<(u64, Option<u64>)> {
    let mut read = BufReader::new(file);
    let (mut bytes, mut lines, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let length = read.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok((bytes, Some(u64::saturating_sub(lines, 1))));
        }
        if lines == 0 && line[..length - 1] != *job.as_bytes() {
            return Ok((bytes, None));
        }
        bytes += length as u64;
        lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(records: std::ops::Range<u64>) -> Vec<Json> {
        records.map(|record| json!({"y": [record, record * 2]})).collect()
    }

    #[test]
    fn a_kill_at_any_byte_repeats_and_loses_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.jsonl");
        let data = ["d.csv".to_string()];
        let expected = {
            let (mut spool, done) = Spool::open(&out, "m", &data, 6).expect("opened");
            assert_eq!(done, 0);
            spool.write(answers(0..6)).expect("written");
            spool.finish().expect("finished");
            fs::read_to_string(&out).expect("written")
        };
        assert_eq!(expected.lines().count(), 6);
        let whole = {
            let (mut spool, _) = Spool::open(&out, "m", &data, 6).expect("opened");
            spool.write(answers(0..4)).expect("written");
            fs::read(&spool.path).expect("written")
        };
        let partial = folder.path().join("out.jsonl.partial");
        for length in 0..=whole.len() {
            fs::write(&partial, &whole[..length]).expect("torn");
            let (mut spool, done) = Spool::open(&out, "m", &data, 6).expect("opened");
            spool.write(answers(done..6)).expect("written");
            spool.finish().expect("finished");
            assert_eq!(fs::read_to_string(&out).expect("written"), expected, "{length} bytes");
            assert!(!partial.exists());
        }
    }

    #[test]
    fn answers_to_something_else_are_not_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.jsonl");
        let (mut spool, _) = Spool::open(&out, "m", &[], 6).expect("opened");
        spool.write(answers(0..1)).expect("written");
        drop(spool);
        let error = Spool::open(&out, "other", &[], 6).err().expect("refused").to_string();
        assert!(error.contains("has answers to something else"), "{error}");
        assert!(Spool::open(&folder.path().join("out.txt"), "m", &[], 1).is_err());
    }
}
