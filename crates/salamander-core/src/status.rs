//! Where a run stands: what a master answers, for commands, platforms and people.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize, Serializer};

use crate::asynchronous::MapVersion;
use crate::elastic::{Beat, Count, Ending, Generation, Term, Version, WorkerId};
use crate::report::Report;

/// Where a run stands. As JSON it is what `status --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// What the run is doing.
    pub state: State,
    /// Why it failed, if it did.
    pub reason: Option<String>,
    /// The master's term, from 1.
    pub term: Term,
    /// The generation that works or is being formed, or else the last one.
    #[serde(serialize_with = "optional_text")]
    pub generation: Option<Generation>,
    /// Generations that began.
    pub generations: u64,
    /// The newest version that was heard of.
    pub version: Version,
    /// The workers that are known.
    pub workers: Vec<WorkerStatus>,
    /// How many workers are wanted.
    pub wanted: usize,
    /// The parameter servers that are there.
    pub servers: Vec<ServerStatus>,
    /// How many parameter servers are wanted.
    pub wanted_servers: usize,
    /// How often processes were started again.
    pub restarts: RestartCounts,
    /// The newest checkpoint that counts.
    pub checkpoint: Option<CheckpointStatus>,
    /// How far asynchronous training is.
    pub names: Option<MicroBatchStatus>,
    /// The last report.
    pub last_report: Option<Report>,
    /// How far a run of tasks is.
    pub tasks: Option<Count>,
}

impl Status {
    /// Figures of all tables, each over all parameter servers, in the order of their names.
    pub fn tables(&self) -> Vec<TableStats> {
        let mut tables: BTreeMap<&str, TableStats> = BTreeMap::new();
        for table in self.servers.iter().flat_map(|server| &server.tables) {
            let empty = || TableStats { name: table.name.clone(), ..TableStats::default() };
            tables.entry(&table.name).or_insert_with(empty).add(table);
        }
        tables.into_values().collect()
    }
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for the first workers.
    #[default]
    Gathering,
    /// A generation is being formed.
    Regrouping,
    /// It works.
    Running,
    /// It is on its way to an early end.
    Stopping,
    /// It is done.
    Completed,
    /// It was stopped and can go on.
    Interrupted,
    /// It cannot go on.
    Failed,
}

impl State {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Gathering => "gathering",
            State::Regrouping => "regrouping",
            State::Running => "running",
            State::Stopping => "stopping",
            State::Completed => "completed",
            State::Interrupted => "interrupted",
            State::Failed => "failed",
        }
    }
}

impl From<&Ending> for State {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Completed => State::Completed,
            Ending::Interrupted => State::Interrupted,
            Ending::Failed(_) => State::Failed,
        }
    }
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Who.
    #[serde(serialize_with = "text")]
    pub id: WorkerId,
    /// The slot that its process is in.
    pub slot: u32,
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub endpoint: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Its rank, if it is a member.
    pub member: Option<usize>,
    /// Whether it has the state of the generation.
    pub confirmed: bool,
    /// Its last heartbeat.
    pub beat: Option<Beat>,
}

/// A parameter server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its place among the servers.
    pub seat: u32,
    /// Who.
    #[serde(serialize_with = "text")]
    pub id: WorkerId,
    /// Its process, if that is known.
    pub pid: Option<u32>,
    /// Where it listens.
    pub endpoint: String,
    /// What its tables held when it last told.
    pub tables: Vec<TableStats>,
}

/// Figures of one table on one parameter server, since that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Rows that are there.
    pub rows: u64,
    /// Bytes that they take, with state and index.
    pub bytes: u64,
    /// Rows created so far.
    pub admitted: u64,
    /// Ids that were seen and are not yet admitted.
    pub waiting: u64,
    /// Rows dropped because nothing used them for long.
    pub expired: u64,
    /// Rows dropped to make room.
    pub evicted: u64,
    /// Rows read to train on.
    pub lookups: u64,
}

impl TableStats {
    /// Adds the figures of other rows of the table.
    pub fn add(&mut self, other: &TableStats) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.admitted += other.admitted;
        self.waiting += other.waiting;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.lookups += other.lookups;
    }
}

/// How often processes were started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestartCounts {
    /// Workers.
    #[serde(rename = "worker")]
    pub workers: u64,
    /// Parameter servers.
    #[serde(rename = "ps")]
    pub servers: u64,
    /// Masters.
    #[serde(rename = "master")]
    pub masters: u64,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointStatus {
    /// Its folder's name.
    pub id: String,
    /// The version in it.
    pub version: Version,
    /// The generation that wrote it.
    #[serde(serialize_with = "text")]
    pub generation: Generation,
}

/// How far asynchronous training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MicroBatchStatus {
    /// Epochs that are finished and validated.
    pub epochs: u64,
    /// Micro-batches of the open epochs that are not done.
    pub left: u64,
    /// Those of them that somebody holds.
    pub leased: u64,
    /// Servers that have their partitions.
    pub servers: usize,
    /// The number of the map in force.
    #[serde(serialize_with = "text")]
    pub map: MapVersion,
}

fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn optional_text<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::progress::StepCount;
    use crate::report::StepReport;

    /// What programs and people read of it is a contract.
    #[test]
    fn the_json_of_a_status_stays() {
        let generation = Generation { term: Term(1), number: 2 };
        let step = StepReport { steps: StepCount(7), loss: 0.5, ..StepReport::default() };
        let status = Status {
            state: State::Running,
            reason: None,
            term: Term(1),
            generation: Some(generation),
            generations: 2,
            version: Version(9),
            workers: vec![WorkerStatus {
                id: WorkerId(17),
                slot: 1,
                pid: 44,
                endpoint: "host:1".into(),
                connected: true,
                member: Some(0),
                confirmed: true,
                beat: Some(Beat { for_ms: 3, ..Beat::default() }),
            }],
            wanted: 1,
            servers: vec![ServerStatus {
                seat: 0,
                id: WorkerId(18),
                pid: None,
                endpoint: "host:2".into(),
                tables: vec![TableStats { name: "item".into(), rows: 5, ..Default::default() }],
            }],
            wanted_servers: 1,
            restarts: RestartCounts { workers: 1, servers: 2, masters: 3 },
            checkpoint: Some(CheckpointStatus {
                id: "step-4".into(),
                version: Version(4),
                generation,
            }),
            names: None,
            last_report: Some(Report::Step(step)),
            tasks: Some(Count { left: 1, leased: 2, done: 3 }),
        };
        let json = serde_json::to_value(&status).expect("JSON");
        assert_eq!(json["last_report"]["step"]["steps"], 7);
        let mut rest = json;
        rest["last_report"] = json!(null);
        let expected = json!({
            "state": "running", "reason": null, "term": 1, "generation": "1.2", "generations": 2,
            "version": 9, "wanted": 1, "wanted_servers": 1,
            "workers": [{
                "id": "0000000000000011", "slot": 1, "pid": 44, "endpoint": "host:1",
                "connected": true, "member": 0, "confirmed": true,
                "beat": {
                    "work": "idle", "for_ms": 3, "records": 0, "compute_ms": 0, "exchange_ms": 0,
                    "data_ms": 0,
                },
            }],
            "servers": [{
                "seat": 0, "id": "0000000000000012", "pid": null, "endpoint": "host:2",
                "tables": [{
                    "name": "item", "rows": 5, "bytes": 0, "admitted": 0, "waiting": 0,
                    "expired": 0, "evicted": 0, "lookups": 0,
                }],
            }],
            "restarts": {"worker": 1, "ps": 2, "master": 3},
            "checkpoint": {"id": "step-4", "version": 4, "generation": "1.2"},
            "names": null, "last_report": null,
            "tasks": {"left": 1, "leased": 2, "done": 3},
        });
        assert_eq!(rest, expected);
    }
}
