//! Asking a server about every record of files, or of a stream: order kept, tried again, and resumed after a kill
//! without asking twice or leaving out.
//!
//! # Layout
//! - [`Inference`]: files in, a file out; [`stream`]: lines in, lines out
//! - `spool`: what was answered so far, on disk; `asking`: several connections, answers in order
//! - `following`: a file that grows, and answers that are added to another one

mod asking;
mod following;
mod spool;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use salamander_core::experiment::{CsvSettings, Experiment};
use salamander_data::{Dataset, Format, JsonRecord, OpenOptions, Row, open_indexed};
use salamander_net::Backoff;
pub use salamander_serve::ClientOptions;
use salamander_serve::{Client, ClientError, Question};
use serde_json::Value as Json;

use crate::Error;
use crate::trained::DataFiles;
use spool::Spool;

/// Which server is asked about what.
#[derive(Clone, Debug)]
pub struct Inference {
    /// `http://HOST:PORT`.
    pub url: String,
    /// The model's name there.
    pub model: String,
    /// The token that the server wants, and whom to trust.
    pub options: ClientOptions,
    /// Records of a request.
    pub batch: usize,
    /// Requests at a time.
    pub connections: usize,
    /// How long a server that does not answer is tried again.
    pub patience: Duration,
}

/// The records to ask about.
#[derive(Clone, Debug)]
pub struct DataToAsk<'a> {
    /// Files, folders, globs or addresses.
    pub data: &'a [String],
    /// Their format, where names do not tell it.
    pub format: Option<Format>,
    /// How CSV files are written down.
    pub csv: CsvSettings,
}

impl<'a> DataToAsk<'a> {
    /// Read as an experiment reads its own, and as `predict` reads what it is given.
    ///
    /// # Errors
    /// If there is no such format as the experiment names.
    pub fn like(data: &'a [String], experiment: &Experiment) -> Result<Self, Error> {
        let format = DataFiles::given(data, experiment).format;
        let format = format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
        Ok(Self { data, format, csv: experiment.data.csv.clone() })
    }
}

impl Inference {
    /// Asks about all records of files and writes what was said, `.jsonl`, `.csv` or `.parquet`. `told` hears how many
    /// of how many are done. Returns how many records there are.
    pub fn files(
        &self,
        asked: &DataToAsk<'_>,
        out: &Path,
        told: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, Error> {
        let DataToAsk { data, format, csv } = asked;
        let paths: Vec<PathBuf> = data.iter().map(PathBuf::from).collect();
        let options = OpenOptions { csv: csv.clone(), ..OpenOptions::default() };
        let reader = open_indexed(&paths, *format, &options)?;
        let dataset = Arc::new(Dataset::new(Arc::from(reader))?);
        let records = dataset.len();
        let (mut spool, done) = Spool::open(out, &self.model, data, records)?;
        told(done, records);
        if done < records {
            let jobs = asking::Jobs { dataset, first: done, batch: self.batch.max(1) as u64 };
            asking::run(self, &jobs, &mut |answers| {
                let done = spool.write(answers)?;
                told(done, records);
                Ok(())
            })?;
        }
        spool.finish()?;
        Ok(records)
    }

    /// A connection that knows what the model takes.
    fn connect(&self) -> Result<Client, Error> {
        let client = Client::new(&self.url, &self.model, &self.options);
        let mut client = client.map_err(Error::Invalid)?;
        self.again(|| client.connect())?;
        Ok(client)
    }

    /// Asks until there is an answer, the server refuses for good, or patience ends.
    fn ask(&self, client: &mut Client, question: &Question) -> Result<Vec<Json>, Error> {
        self.again(|| client.ask(question))
    }

    fn again<T>(&self, mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, Error> {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = backoff.within(self.patience);
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(ClientError::Refused(reason)) => return Err(Error::Invalid(reason)),
                Err(ClientError::Later { reason, after }) => match backoff.wait() {
                    Some(wait) => std::thread::sleep(after.unwrap_or(wait).min(self.patience)),
                    None => return Err(Error::Failed(reason)),
                },
            }
        }
    }
}

/// Answers lines of JSON with lines of JSON as they come. What is there already is asked about together; who reads
/// slowly makes this read slowly.
pub fn stream(
    inference: &Inference,
    from: impl BufRead + Send + 'static,
    to: &mut dyn Write,
) -> Result<u64, Error> {
    answer_lines(inference, from.lines(), 0, to)
}

/// Answers the lines of a file that grows until `stop` is set. Answers go to the end of `out`, or to `to` when there is
/// none; what `out` has already is not asked again.
pub fn follow(
    inference: &Inference,
    file: &Path,
    out: Option<&Path>,
    to: &mut dyn Write,
    stop: Arc<AtomicBool>,
) -> Result<u64, Error> {
    let lines = following::GrowingFile::open(file, stop).map_err(Error::io(file))?;
    let Some(out) = out else { return answer_lines(inference, lines, 0, to) };
    let (mut answers, done) = following::open_answers(out)?;
    let mut records = lines.filter(|line| !line.as_ref().is_ok_and(|line| line.trim().is_empty()));
    for _ in 0..done {
        // Waits for those that are not there yet, as it does for all others.
        if let Some(Err(error)) = records.next() {
            return Err(Error::io(file)(error));
        }
    }
    answer_lines(inference, records, done, &mut answers)
}

/// Asks about lines of JSON, of which the first is this record.
fn answer_lines(
    inference: &Inference,
    from: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
    first: u64,
    to: &mut dyn Write,
) -> Result<u64, Error> {
    let mut client = inference.connect()?;
    let (send, lines) = std::sync::mpsc::sync_channel::<std::io::Result<String>>(inference.batch);
    // Not waited for: it may be blocked in reading when this ends.
    std::thread::spawn(move || {
        for line in from {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let mut record = first;
    while let Ok(first) = lines.recv() {
        let more = lines.try_iter().take(inference.batch.saturating_sub(1));
        let mut records = Vec::new();
        for line in std::iter::once(first).chain(more) {
            let line = line.map_err(Error::system("cannot read records"))?;
            if !line.trim().is_empty() {
                records.push(parse(&line, record + records.len() as u64)?);
            }
        }
        if records.is_empty() {
            continue;
        }
        let rows: Vec<Row<'_>> = records.iter().map(JsonRecord::row).collect();
        let wrong = |reason| Error::Invalid(format!("records from {record}: {reason}"));
        let question = client.question(&rows).map_err(wrong)?;
        for answer in inference.ask(&mut client, &question)? {
            let written = writeln!(to, "{}", numbered(record, answer));
            written.map_err(Error::system("cannot write answers"))?;
            record += 1;
        }
        to.flush().map_err(Error::system("cannot write answers"))?;
    }
    Ok(record)
}

fn parse(line: &str, record: u64) -> Result<JsonRecord, Error> {
    let wrong = |reason: String| Error::Invalid(format!("record {record}: {reason}"));
    match serde_json::from_str(line) {
        Ok(Json::Object(object)) => JsonRecord::new(object).map_err(wrong),
        Ok(_) => Err(wrong("write an object: {\"column\": value, ..}".to_string())),
        Err(error) => Err(wrong(format!("no JSON: {error}"))),
    }
}

/// An answer with its record's number before it.
fn numbered(record: u64, answer: Json) -> Json {
    let mut object = serde_json::Map::new();
    object.insert("record".to_string(), record.into());
    if let Json::Object(outputs) = answer {
        object.extend(outputs);
    }
    Json::Object(object)
}
