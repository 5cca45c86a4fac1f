//! What a master tells about itself: a small record on its own pod, which the operator and commands read.

use salamander_core::elastic::{Ending, Work};
use salamander_core::progress::StepCount;
use salamander_core::report::Report;
use salamander_core::status::{State, Status, WorkerStatus};
use serde::de::IntoDeserializer;
use serde::de::value::Error as WordError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::contract::CONTRACT;
use crate::milestones::Milestones;
use crate::names::PodRole;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobProgress {
    /// What it is doing; nothing before that is known, or if a newer master has a word for it that is not known here.
    #[serde(serialize_with = "word", deserialize_with = "known_word")]
    pub state: Option<State>,
    /// The version of the contract that the master's program knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<u32>,
    /// Generations of workers that began.
    pub generations: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Workers that train together.
    pub workers: u32,
    /// Workers that are wanted.
    pub wanted: u32,
    /// Parameter servers that serve.
    pub servers: u32,
    /// Parameter servers that are wanted.
    pub wanted_servers: u32,
    /// Pods that wait for a place, or cannot start.
    pub pending: u32,
    /// What one of them waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Steps done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepCount>,
    /// The epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The last loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The part of the time since the first step in which training went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
    /// What that part was counted from, for a master that takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Goodput>,
    /// The group of workers that train together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The last checkpoint that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Workers that were started again.
    pub restarts: u64,
    /// Parameter servers that were started again.
    pub server_restarts: u64,
    /// How the last pod that broke did so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<String>,
    /// What each worker that takes part has done; the first of many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<WorkerFigures>,
    /// What it told on its way.
    #[serde(skip_serializing_if = "Milestones::is_empty")]
    pub milestones: Milestones,
}

/// So many workers are told one by one: an annotation has a limit.
const TOLD: usize = 64;

/// What a worker has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFigures {
    /// Its place among the workers.
    pub index: u32,
    /// What it is doing, in a word that is known here.
    #[serde(serialize_with = "word", deserialize_with = "known_word")]
    pub work: Option<Work>,
    /// Records that it has computed.
    pub records: u64,
    /// Seconds that it has spent on them.
    pub seconds: f64,
    /// Seconds that it has spent in exchanges with others.
    pub exchange_seconds: f64,
    /// Seconds of computing that it has waited for records.
    pub data_seconds: f64,
}

impl WorkerFigures {
    fn of(worker: &WorkerStatus) -> Option<Self> {
        let (index, beat) = (worker.slot, worker.beat?);
        let (work, records) = (Some(beat.work), beat.records);
        let [seconds, exchange_seconds, data_seconds] =
            [beat.compute_ms, beat.exchange_ms, beat.data_ms].map(|ms| ms as f64 / 1_000.0);
        Some(Self { index, work, records, seconds, exchange_seconds, data_seconds })
    }
}

impl JobProgress {
    /// The same of what the master answers when it is asked for its status.
    pub fn of(status: &Status) -> Self {
        let workers = taking_part(status).count() as u32;
        let servers = status.servers.len() as u32;
        let wanted_servers = status.wanted_servers as u32;
        // Without membership a master never waits; but nothing is trained without somebody on each side.
        let alone = status.names.is_some() && (workers == 0 || servers < wanted_servers);
        let state = match status.state {
            State::Running if alone => State::Gathering,
            state => state,
        };
        let (step, epoch, loss) = match &status.last_report {
            Some(Report::Step(step)) => (Some(step.steps), Some(step.epoch), Some(step.loss)),
            Some(Report::Epoch(epoch)) => (Some(epoch.steps), Some(epoch.epoch), None),
            _ => (None, None, None),
        };
        Self {
            state: Some(state),
            contract: Some(CONTRACT),
            generations: status.generations,
            reason: status.reason.clone(),
            workers,
            wanted: status.wanted as u32,
            servers,
            wanted_servers,
            step,
            epoch,
            loss: loss.filter(|loss| loss.is_finite()),
            generation: status.generation.map(|generation| generation.to_string()),
            checkpoint: status.checkpoint.as_ref().map(|checkpoint| checkpoint.id.clone()),
            restarts: status.restarts.workers,
            server_restarts: status.restarts.servers,
            each: taking_part(status).filter_map(WorkerFigures::of).take(TOLD).collect(),
            ..Self::default()
        }
    }

    /// The (slot, number) of workers and servers that take part, from the same answer.
    pub fn members(status: &Status) -> Vec<(u32, u32)> {
        let workers = taking_part(status).map(|worker| (worker.slot, worker.pid));
        let servers = status.servers.iter();
        let servers =
            servers.filter_map(|server| Some((PodRole::Ps.slot(server.seat)?, server.pid?)));
        workers.chain(servers).collect()
    }

    /// Reads the annotation.
    pub fn from_annotation(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether the run is over, and how.
    pub fn ended(&self) -> Option<Ending> {
        match self.state? {
            State::Completed => Some(Ending::Completed),
            State::Interrupted => Some(Ending::Interrupted),
            State::Failed => {
                Some(Ending::Failed(self.reason.clone().unwrap_or("no reason was given".into())))
            }
            State::Gathering | State::Regrouping | State::Running | State::Stopping => None,
        }
    }

    /// Whether it trains.
    pub fn is_running(&self) -> bool {
        self.state == Some(State::Running)
    }
}

/// Nothing is the empty word.
fn word<T: Serialize, S: Serializer>(known: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match known {
        Some(known) => known.serialize(serializer),
        None => serializer.serialize_str(""),
    }
}

/// A word that is not known is nothing: masters may be newer than the operator.
fn known_word<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    let known: Result<T, WordError> = T::deserialize(text.into_deserializer());
    Ok(known.ok())
}

/// The workers that train: members of the group, or whoever is connected where there is no group.
fn taking_part(status: &Status) -> impl Iterator<Item = &WorkerStatus> {
    let grouped = status.names.is_none();
    let takes_part = move |worker: &&WorkerStatus| match grouped {
        true => worker.member.is_some(),
        false => worker.connected,
    };
    status.workers.iter().filter(takes_part)
}

/// Counts for how long training went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Goodput {
    good: f64,
    all: f64,
    farthest: StepCount,
}

impl Goodput {
    /// So many seconds passed in this state and led to this step. Time before the first step does not count, and time
    /// for steps that were done before is not good.
    pub fn add(&mut self, seconds: f64, running: bool, step: StepCount) {
        if running && step >= self.farthest {
            self.good += seconds;
            self.farthest = step;
        }
        if running || self.all > 0.0 {
            self.all += seconds;
        }
    }

    /// The part of the time in which training went on, in thousandths.
    pub fn value(&self) -> Option<f64> {
        (self.all > 0.0).then(|| (self.good / self.all * 1000.0).round() / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::{Generation, Term, Version, WorkerId};
    use salamander_core::report::StepReport;
    use salamander_core::status::{
        CheckpointStatus, MicroBatchStatus, RestartCounts, ServerStatus,
    };

    use super::*;

    fn worker(slot: u32, pid: u32, member: Option<usize>, connected: bool) -> WorkerStatus {
        WorkerStatus {
            id: WorkerId(pid.into()),
            slot,
            pid,
            endpoint: String::new(),
            connected,
            member,
            confirmed: member.is_some(),
            beat: None,
        }
    }

    fn server(seat: u32, pid: u32) -> ServerStatus {
        let id = WorkerId(pid.into());
        ServerStatus { seat, id, pid: Some(pid), ..ServerStatus::default() }
    }

    #[test]
    fn a_status_becomes_a_small_record() {
        let generation = Generation { term: Term(1), number: 2 };
        let step =
            StepReport { steps: StepCount(25), epoch: 1, loss: 0.5, ..StepReport::default() };
        let status = Status {
            state: State::Running,
            generation: Some(generation),
            wanted: 3,
            workers: vec![
                worker(2, 7, Some(0), true),
                worker(3, 8, None, true),
                worker(4, 9, Some(1), true),
            ],
            restarts: RestartCounts { workers: 4, servers: 0, masters: 1 },
            checkpoint: Some(CheckpointStatus {
                id: "step-20".into(),
                version: Version(20),
                generation,
            }),
            last_report: Some(Report::Step(step)),
            ..Status::default()
        };
        let progress = JobProgress::of(&status);
        assert_eq!((progress.workers, progress.wanted, progress.restarts), (2, 3, 4));
        assert_eq!(
            (progress.step, progress.epoch, progress.loss),
            (Some(StepCount(25)), Some(1), Some(0.5))
        );
        assert_eq!(progress.checkpoint.as_deref(), Some("step-20"));
        assert_eq!(progress.generation.as_deref(), Some("1.2"));
        assert_eq!(JobProgress::members(&status), [(2, 7), (4, 9)]);
        assert_eq!(progress.ended(), None);
        let text = serde_json::to_string(&progress).expect("written");
        assert_eq!(JobProgress::from_annotation(&text), Some(progress));
        assert_eq!(JobProgress::from_annotation("{"), None);
        let reason = Some("bad data".to_string());
        let failed = JobProgress::of(&Status { state: State::Failed, reason, ..Status::default() });
        assert_eq!(failed.ended(), Some(Ending::Failed("bad data".into())));
    }

    #[test]
    fn without_groups_whoever_is_connected_trains() {
        let mut status = Status {
            state: State::Running,
            wanted: 2,
            wanted_servers: 2,
            names: Some(MicroBatchStatus { left: 3, ..MicroBatchStatus::default() }),
            workers: vec![worker(0, 3, None, true), worker(1, 4, None, false)],
            servers: vec![server(0, 8), server(1, 9)],
            restarts: RestartCounts { workers: 0, servers: 1, masters: 0 },
            ..Status::default()
        };
        let progress = JobProgress::of(&status);
        assert_eq!((progress.workers, progress.servers, progress.server_restarts), (1, 2, 1));
        assert!(progress.is_running());
        let seat = |index| PodRole::Ps.slot(index).expect("a slot");
        assert_eq!(JobProgress::members(&status), [(0, 3), (seat(0), 8), (seat(1), 9)]);
        status.servers.pop();
        assert_eq!(JobProgress::of(&status).state, Some(State::Gathering));
    }

    #[test]
    fn a_state_of_a_newer_master_is_no_error() {
        let read = |state: &str, work: &str| {
            let text = format!(
                "{{\"state\":\"{state}\",\"step\":7,\"each\":[{{\"index\":1,\"work\":\"{work}\"}}]}}"
            );
            JobProgress::from_annotation(&text).expect("read")
        };
        let newer = read("pondering", "dreaming");
        assert_eq!((newer.state, newer.step, newer.ended()), (None, Some(StepCount(7)), None));
        assert_eq!((newer.each[0].work, newer.each[0].index), (None, 1));
        assert_eq!(read("", "").state, None);
        let known = read("regrouping", "exchanging");
        assert_eq!(known.state, Some(State::Regrouping));
        assert_eq!(known.each[0].work, Some(Work::Exchanging));
        for progress in [newer, known] {
            let text = serde_json::to_string(&progress).expect("written");
            let (state, work) = match progress.state {
                Some(state) => (state.as_str(), Work::Exchanging.as_str()),
                None => ("", ""),
            };
            assert!(text.starts_with(&format!("{{\"state\":\"{state}\",")), "{text}");
            assert!(text.contains(&format!("\"work\":\"{work}\"")), "{text}");
        }
    }

    #[test]
    fn goodput_starts_with_the_first_step() {
        let mut goodput = Goodput::default();
        let mut add = |seconds: f64, running: bool, step: u64| {
            goodput.add(seconds, running, StepCount(step));
            goodput.value()
        };
        assert_eq!(add(100.0, false, 0), None);
        add(9.0, true, 90);
        assert_eq!(add(1.0, false, 90), Some(0.9));
        // Back to a checkpoint: what was done already is done again.
        add(8.0, true, 70);
        assert_eq!(add(2.0, true, 100), Some(0.55));
    }
}
