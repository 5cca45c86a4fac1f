//! Tells a hub of a run that it does not see: the files of the run's folder are sent as far as they have come.
//!
//! The folder is the spool. The hub says how much of each file it has, so nothing is kept here but a name for the run;
//! who sends next, also after a kill, goes on from there.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, StatusCode, Url};
use rustix::fs::{FlockOperation, flock};
use salamander_core::environment;
use salamander_core::layout::{RunLayout, TOLD, TRIALS, is_appended, is_told_file};
use salamander_files::{Durability, replace};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::about::{self, read_json};
use crate::mlflow::SendProgress;
use crate::mlflow::state::random_name;

/// How long a connection, and an answer, may take.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);
/// Bytes of one call, of a file that is appended to.
const PIECE: u64 = 1 << 20;
/// Bytes of a file that is replaced, which is sent as a whole: half of it would be another file.
const WHOLE: u64 = 16 << 20;
/// Bytes that take a second of patience more.
const SLOWEST: u64 = 64 << 10;
/// How often the hub hears that the run goes on.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why nothing more is sent for now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the run's folder.
    #[error(transparent)]
    Folder(#[from] about::Error),
    /// It may work later: nobody answers, or the hub is busy.
    #[error("{0}")]
    Away(String),
    /// The hub has refused it, and would again.
    #[error("{0}")]
    Refused(String),
}

/// Tells one hub of one run.
pub struct HubSender {
    run: RunLayout,
    base: Url,
    http: Client,
    token: Option<String>,
    uid: String,
    /// What the hub has; none: it is to be asked.
    known: Option<Known>,
    heartbeat: Option<Instant>,
}

#[derive(Deserialize)]
struct Known {
    sees: bool,
    files: BTreeMap<String, SentFile>,
}

#[derive(Clone, Deserialize, PartialEq, Eq)]
struct SentFile {
    stamp: String,
    length: u64,
}

impl HubSender {
    /// For a run's folder and a hub's address; nothing is sent yet.
    pub fn new(run: &RunLayout, url: &str) -> Result<Self, Error> {
        // Another part of the program may have chosen before; it is the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused =
            |error: &dyn ToString| Error::Refused(format!("{url}: {}", error.to_string()));
        let slash = if url.ends_with('/') { "" } else { "/" };
        let base = Url::parse(&format!("{url}{slash}")).map_err(|error| refused(&error))?;
        let http = Client::builder().connect_timeout(CONNECT).timeout(ANSWER).build();
        let http = http.map_err(|error| refused(&error))?;
        let token = env::var(environment::HUB_TOKEN.name).ok().filter(|token| !token.is_empty());
        let uid = uid(run)?;
        Ok(Self { run: run.clone(), base, http, token, uid, known: None, heartbeat: None })
    }

    /// Does the next thing that is to be done. Once the run is `over`, the hub hears that, too.
    pub async fn advance(&mut self, over: bool) -> Result<SendProgress, Error> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.begin().await?,
        };
        if known.sees {
            self.known = Some(known);
            return Ok(SendProgress::UpToDate);
        }
        // Whatever goes wrong, the hub is asked again what it has.
        let (known, next) = self.send_next(known).await?;
        self.known = Some(known);
        if matches!(next, NextFile::Sent) {
            self.beat(false).await?;
            return Ok(SendProgress::Sent);
        }
        self.beat(over).await?;
        match next {
            // Everything else has been sent by now.
            NextFile::TooLarge(reason) if over => Err(Error::Refused(reason)),
            _ => Ok(SendProgress::UpToDate),
        }
    }

    async fn begin(&self) -> Result<Known, Error> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let body = json!({"uid": self.uid, "id": self.run.id(), "host": host.trim()});
        let answer = self.json(Method::POST, "api/v1/remote-runs", &body).await?;
        let nonsense = |error| Error::Refused(format!("the hub answers nonsense: {error}"));
        serde_json::from_value(answer).map_err(nonsense)
    }

    /// Sends the next part of a file that has more than the hub knows.
    async fn send_next(&self, mut known: Known) -> Result<(Known, NextFile), Error> {
        let mut left = NextFile::None;
        for path in told_files(&self.run) {
            let part = match next_part(&self.run, &path, known.files.get(&path))? {
                NextPart::None => continue,
                NextPart::TooLarge(reason) => {
                    left = NextFile::TooLarge(reason);
                    continue;
                }
                NextPart::Send(part) => part,
            };
            let place = format!("api/v1/remote-runs/{}/files", self.uid);
            let mut url = self.url(&place)?;
            url.query_pairs_mut()
                .append_pair("path", &path)
                .append_pair("stamp", &part.stamp)
                .append_pair("offset", &part.offset.to_string());
            let length = part.offset + part.bytes.len() as u64;
            self.send(Method::PUT, url, "application/octet-stream", part.bytes).await?;
            known.files.insert(path, SentFile { stamp: part.stamp, length });
            return Ok((known, NextFile::Sent));
        }
        Ok((known, left))
    }

    async fn beat(&mut self, over: bool) -> Result<(), Error> {
        if !over && self.heartbeat.is_some_and(|last| last.elapsed() < HEARTBEAT) {
            return Ok(());
        }
        let live = if over { Vec::new() } else { live_folders(&self.run) };
        let place = format!("api/v1/remote-runs/{}/alive", self.uid);
        self.json(Method::POST, &place, &json!({"live": live})).await?;
        self.heartbeat = Some(Instant::now());
        Ok(())
    }

    fn url(&self, place: &str) -> Result<Url, Error> {
        self.base.join(place).map_err(|error| Error::Refused(error.to_string()))
    }

    async fn json(&self, method: Method, place: &str, body: &Value) -> Result<Value, Error> {
        let bytes = body.to_string().into_bytes();
        self.send(method, self.url(place)?, "application/json", bytes).await
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        kind: &str,
        bytes: Vec<u8>,
    ) -> Result<Value, Error> {
        let patience = ANSWER + Duration::from_secs(bytes.len() as u64 / SLOWEST);
        let request = self.http.request(method, url).timeout(patience);
        let mut request = request.header("content-type", kind).body(bytes);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let away = |error: reqwest::Error| Error::Away(error.without_url().to_string());
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(away)?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let reason = || answer["error"].as_str().map_or_else(|| status.to_string(), str::to_string);
        match status {
            status if status.is_success() => Ok(answer),
            // The hub has more or less than was thought, or was made anew: it is asked again.
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Err(Error::Away(reason())),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Err(Error::Away(reason()))
            }
            status if status.is_server_error() => Err(Error::Away(reason())),
            _ => Err(Error::Refused(reason())),
        }
    }
}

/// What became of the files that have more than the hub knows.
enum NextFile {
    /// There is none.
    None,
    /// A part of one was sent.
    Sent,
    /// There is only one that is too large, as this says.
    TooLarge(String),
}

/// What is next of one file.
enum NextPart {
    /// The hub has all of it.
    None,
    /// This is to be sent.
    Send(FilePart),
    /// It is replaced as a whole and too large for that, as this says.
    TooLarge(String),
}

/// A part of a file that is to be sent.
struct FilePart {
    stamp: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// What a hub does not have of a file: the next piece of one that is appended to, or all of one that is replaced.
fn next_part(run: &RunLayout, path: &str, sent: Option<&SentFile>) -> Result<NextPart, Error> {
    let place = run.file(path);
    let failed = |error| Error::Folder(about::Error::file(&place)(error));
    let mut file = match File::open(&place) {
        // Between two files.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(NextPart::None),
        file => file.map_err(failed)?,
    };
    if !is_appended(path) {
        let mut bytes = Vec::new();
        file.take(WHOLE + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > WHOLE {
            let most = WHOLE >> 20;
            return Ok(NextPart::TooLarge(format!(
                "{path} has more than {most} MiB, and a hub takes no more of a file that is replaced"
            )));
        }
        let stamp = format!("{:08x}-{}", crc32fast::hash(&bytes), bytes.len());
        let is_new = sent.is_none_or(|sent| sent.stamp != stamp);
        return Ok(match is_new {
            true => NextPart::Send(FilePart { stamp, offset: 0, bytes }),
            false => NextPart::None,
        });
    }
    let about = file.metadata().map_err(failed)?;
    let stamp = format!("{}-{}", about.dev(), about.ino());
    // A file that has become shorter is another one to the hub; it has no bytes that are not here.
    let same = sent.filter(|sent| sent.stamp == stamp && sent.length <= about.len());
    let offset = same.map_or(0, |sent| sent.length);
    let stamp = match sent.is_some_and(|sent| sent.stamp == stamp && sent.length > about.len()) {
        true => format!("{stamp}-{}", about.len()),
        false => stamp,
    };
    if same.is_some() && offset == about.len() {
        return Ok(NextPart::None);
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(PIECE).read_to_end(&mut bytes))
        .map_err(failed)?;
    Ok(NextPart::Send(FilePart { stamp, offset, bytes }))
}

/// The files of a run, and of its trials, that a hub is told of, as they are there now; those that say what the others
/// are come first.
fn told_files(run: &RunLayout) -> Vec<String> {
    let names = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let mut folders = vec![String::new()];
    folders.extend(names(run.trials()).into_iter().map(|name| format!("{TRIALS}/{name}/")));
    let mut files = Vec::new();
    for folder in folders {
        files.extend(TOLD.iter().map(|(name, _)| format!("{folder}{name}")));
        let logs = names(run.file(&format!("{folder}logs"))).into_iter();
        files.extend(logs.map(|name| format!("{folder}logs/{name}")));
    }
    files.retain(|path| is_told_file(path) && run.file(path).is_file());
    files
}

/// Folders in which a process trains: the run's own, and those of a search's trials.
fn live_folders(run: &RunLayout) -> Vec<String> {
    // Whoever tells is the run's own process.
    let mut live = vec![String::new()];
    for entry in fs::read_dir(run.trials()).into_iter().flatten().flatten() {
        let lock = File::open(RunLayout::new(entry.path()).lock());
        let held =
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err());
        if held && let Some(name) = entry.file_name().to_str() {
            live.push(format!("{TRIALS}/{name}"));
        }
    }
    live
}

/// The name that only this run has; it is kept in its folder.
fn uid(run: &RunLayout) -> Result<String, Error> {
    let path = run.told_hub();
    let kept: Option<Value> = path.is_file().then(|| read_json(&path)).transpose()?;
    if let Some(uid) = kept.as_ref().and_then(|kept| kept["uid"].as_str()) {
        return Ok(uid.to_string());
    }
    let uid = random_name(&path)?;
    let bytes = json!({"uid": uid}).to_string();
    replace(&path, bytes.as_bytes(), Durability::Synced).map_err(about::Error::file(&path))?;
    Ok(uid)
}

/// Whether a folder is that of a search's trial, whose search tells of it.
pub(crate) fn is_trial(run: &RunLayout) -> bool {
    let search = run.folder().parent().filter(|trials| trials.ends_with(TRIALS));
    let search = search.and_then(|trials| trials.parent());
    search.is_some_and(|search| RunLayout::new(search).search().is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_is_sent_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        let write = |bytes: u64| fs::write(run.summary(), vec![b'x'; bytes as usize]);
        for bytes in [1, PIECE, 3 << 20, WHOLE] {
            write(bytes).expect("written");
            let NextPart::Send(part) = next_part(&run, "summary.json", None).expect("read") else {
                panic!("{bytes} bytes are to be sent");
            };
            assert_eq!((part.offset, part.bytes.len() as u64), (0, bytes));
            let sent = SentFile { stamp: part.stamp, length: bytes };
            let again = next_part(&run, "summary.json", Some(&sent)).expect("read");
            assert!(matches!(again, NextPart::None), "{bytes} bytes are sent once");
        }
        write(WHOLE + 1).expect("written");
        let NextPart::TooLarge(reason) = next_part(&run, "summary.json", None).expect("read")
        else {
            panic!("it is too large");
        };
        assert!(reason.contains("summary.json has more than 16 MiB"), "{reason}");
        // One that grows is sent in pieces.
        fs::write(run.file("metrics.jsonl"), vec![b'x'; 3 << 20]).expect("written");
        let NextPart::Send(part) = next_part(&run, "metrics.jsonl", None).expect("read") else {
            panic!("it is to be sent");
        };
        assert_eq!(part.bytes.len() as u64, PIECE);
    }
}
