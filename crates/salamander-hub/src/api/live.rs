//! What runs and this machine are doing right now: members as masters name them, what processes take, slots and the
//! queue; and another number of workers.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use salamander_core::experiment::Strategy;
use salamander_core::layout::RunLayout;
use salamander_net::{Keys, Tls, Token};
use salamander_proto::client::{Admin, SessionOptions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Api;
use super::reply::Body;
use super::write::change;
use crate::Error;
use crate::hub::Hub;
use crate::ids::RunId;
use crate::store::users::User;

/// How long a master may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// The most that is read of a process's profile: its end.
const MOST: u64 = 4 << 20;
/// Processes of a run whose profile is read.
const PROCESSES: usize = 256;

impl Hub {
    fn layout(&self, run: RunId) -> Result<RunLayout, Error> {
        Ok(RunLayout::new(self.runs().join(self.store().run_folder(run)?)))
    }

    /// What the master of a run says; null where none leads it.
    fn members(&self, run: RunId) -> Result<Value, Error> {
        let layout = self.layout(run)?;
        if !layout.master_address().is_file() || self.store().run(run)?.state != "running" {
            return Ok(Value::Null);
        }
        // It may be ending, or be replaced just now.
        let status = master(&layout).and_then(|mut master| master.status().map_err(remote));
        Ok(match status {
            Ok(status) => json!(status),
            Err(error) => json!({"unreachable": error.to_string()}),
        })
    }

    /// Asks for another number of workers or parameter servers.
    fn scale(&self, run: RunId, to: &NewScale) -> Result<(), Error> {
        let layout = self.layout(run)?;
        if to.workers.is_none() && to.servers.is_none() {
            return Err(Error::Invalid("say workers or servers".to_string()));
        }
        let path = layout.experiment();
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let local = salamander_core::experiment::Experiment::parse(&text, &[])
            .is_ok_and(|experiment| experiment.strategy == Strategy::Local);
        if local {
            let reason = format!("run {run} trains in one process: its strategy is local");
            return Err(Error::Conflict(reason));
        }
        if !layout.master_address().is_file() {
            return Err(Error::Conflict(format!("run {run} is not being trained")));
        }
        master(&layout)?.scale(to.workers, to.servers).map_err(remote)
    }

    /// What each process of a run took, column by column.
    fn profile(&self, run: RunId) -> Result<Value, Error> {
        let folder = self.layout(run)?.profile();
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        paths.sort();
        paths.truncate(PROCESSES);
        let processes = paths.iter().map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let columns = columns(&tail(path).map_err(Error::io(path))?);
            Ok(json!({"process": name, "columns": columns}))
        });
        Ok(json!({"processes": processes.collect::<Result<Vec<_>, Error>>()?}))
    }

    /// Slots, who has them, and who waits for them.
    fn cluster(&self, slots: Option<u32>) -> Result<Value, Error> {
        let mut jobs = Vec::new();
        for job in self.store().jobs()? {
            let known = self.store().experiment(job.id)?;
            let process = self.process_of(job.id);
            jobs.push(json!({
                "experiment": job.id, "name": known.name, "owner": known.owner, "state": job.state,
                "wanted": job.wanted, "priority": job.priority, "slots": job.slots, "max_slots": job.max_slots,
                "held": process.map(|(_, slots)| slots), "since": process.map(|(since, _)| since),
                "restarts": job.restarts, "progress": known.progress,
            }));
        }
        Ok(json!({"slots": slots, "jobs": jobs, "machine": machine()}))
    }
}

fn master(run: &RunLayout) -> Result<Admin, Error> {
    let path = run.master_address();
    let address = fs::read_to_string(&path).map_err(Error::io(&path))?;
    let path = run.token();
    let token = fs::read_to_string(&path).map_err(Error::io(&path))?;
    let token = Token::from_hex(token.trim()).map_err(remote)?;
    let certificates = run.certificates();
    let tls =
        certificates.exists().then(|| Tls::load(&certificates)).transpose().map_err(remote)?;
    let options = SessionOptions::of(address.trim(), &Keys { token, tls });
    Admin::connect(&options, ANSWER).map_err(remote)
}

fn remote(error: impl std::fmt::Display) -> Error {
    Error::Remote(error.to_string())
}

/// The last part of a file, from the beginning of a line.
fn tail(path: &FilePath) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(MOST);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    if from > 0 {
        let whole = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..whole);
    }
    Ok(bytes)
}

/// Lines of numbers as columns, all of the same length; what is no line of a profile is left out.
fn columns(text: &[u8]) -> Map<String, Value> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Map<String, Value>>(line).ok());
    let lines: Vec<_> =
        lines.filter(|line| line.get("time").is_some_and(Value::is_number)).collect();
    let mut columns: Map<String, Value> = Map::new();
    for name in lines.iter().flat_map(|line| line.keys()) {
        if !columns.contains_key(name) {
            let column = lines.iter().map(|line| line.get(name).cloned().unwrap_or_default());
            columns.insert(name.clone(), column.collect());
        }
    }
    columns
}

/// This machine, as far as its system says.
fn machine() -> Value {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let processors = std::thread::available_parallelism().map(usize::from).ok();
    json!({
        "processors": processors, "load": load, "memory": of("MemTotal:"), "free": of("MemAvailable:"),
    })
}

pub(super) async fn members(State(api): State<Api>, Path(id): Path<String>) -> Response {
    change(&api, move |hub| hub.members(id.parse()?)).await
}

pub(super) async fn profile(State(api): State<Api>, Path(id): Path<String>) -> Response {
    change(&api, move |hub| hub.profile(id.parse()?)).await
}

pub(super) async fn cluster(State(api): State<Api>) -> Response {
    let slots = api.slots;
    change(&api, move |hub| hub.cluster(slots)).await
}

/// How many processes a run is to have; what is not named stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewScale {
    workers: Option<u32>,
    servers: Option<u32>,
}

pub(super) async fn scale(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(to): Body<NewScale>,
) -> Response {
    change(&api, move |hub| {
        let run: RunId = id.parse()?;
        hub.scale(run, &to)?;
        tracing::info!(user = user.name, %run, workers = to.workers, servers = to.servers, "scaled");
        let done = json!({"do": "scale", "run": run, "workers": to.workers, "servers": to.servers});
        hub.note_done(&user.name, &done);
        Ok(json!({"run": run, "workers": to.workers, "servers": to.servers}))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_columns_and_what_is_none_is_left_out() {
        let text =
            b"{\"time\":1,\"cpu\":0.5}\nbroken\n{\"cpu\":1}\n{\"time\":2,\"memory\":7}\n{\"ti";
        let expected = json!({"time": [1, 2], "cpu": [0.5, null], "memory": [null, 7]});
        assert_eq!(Value::Object(columns(text)), expected);
        assert!(columns(b"").is_empty());
    }

    #[test]
    fn of_a_long_profile_the_end_is_read_from_a_whole_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("worker-0.jsonl");
        let lines: Vec<String> =
            (0..200_000).map(|at| format!("{{\"time\":{at},\"cpu\":0.25}}\n")).collect();
        fs::write(&path, lines.concat()).expect("written");
        let columns = columns(&tail(&path).expect("read"));
        let times = columns["time"].as_array().expect("a column");
        assert!(times.len() < 200_000 && times.last() == Some(&json!(199_999)));
        assert_eq!(times.len(), columns["cpu"].as_array().expect("a column").len());
    }
}
