//! Where a run stands.

use salamander_core::elastic::{CheckpointMark, Count, Generation, Term, WorkerId};
use salamander_core::push::MapVersion;
use salamander_core::status::{
    CheckpointStatus, NamesStatus, RestartCounts, ServerStatus, State, Status, WorkerStatus,
};

use super::{Error, generation, need, same_fields};
use crate::v1;
use crate::v1::status_reply::State as Wire;

/// The states and their numbers on the wire.
const STATES: [(State, Wire); 7] = [
    (State::Gathering, Wire::Gathering),
    (State::Regrouping, Wire::Regrouping),
    (State::Running, Wire::Running),
    (State::Stopping, Wire::Stopping),
    (State::Completed, Wire::Completed),
    (State::Interrupted, Wire::Interrupted),
    (State::Failed, Wire::Failed),
];

impl From<Status> for v1::StatusReply {
    fn from(status: Status) -> Self {
        let state = STATES.iter().find(|(state, _)| *state == status.state);
        let last_report = status.last_report.map(|report| v1::Report::new(status.version, report));
        Self {
            state: state.map_or(Wire::Gathering, |(_, wire)| *wire).into(),
            reason: status.reason,
            term: status.term.0,
            generation: status.generation.map(Generation::to_u64),
            generations: status.generations,
            version: status.version,
            workers: status.workers.into_iter().map(Into::into).collect(),
            wanted: status.wanted as u32,
            servers: status.servers.into_iter().map(Into::into).collect(),
            wanted_servers: status.wanted_servers as u32,
            restarts: Some(status.restarts.into()),
            checkpoint: status.checkpoint.map(|checkpoint| {
                let CheckpointStatus { id, version, generation } = checkpoint;
                CheckpointMark { id, version, generation }.into()
            }),
            names: status.names.map(Into::into),
            last_report,
            tasks: status.tasks.map(Into::into),
        }
    }
}

impl TryFrom<v1::StatusReply> for Status {
    type Error = Error;

    fn try_from(reply: v1::StatusReply) -> Result<Self, Error> {
        let unknown =
            Error::Value { message: "StatusReply", field: "state", value: reply.state.into() };
        let state = STATES.iter().find(|(_, wire)| *wire as i32 == reply.state).ok_or(unknown)?;
        let workers: Result<_, Error> = reply.workers.into_iter().map(TryInto::try_into).collect();
        Ok(Self {
            state: state.0,
            reason: reply.reason,
            term: Term(reply.term),
            generation: reply.generation.map(generation),
            generations: reply.generations,
            version: reply.version,
            workers: workers?,
            wanted: reply.wanted as usize,
            servers: reply.servers.into_iter().map(Into::into).collect(),
            wanted_servers: reply.wanted_servers as usize,
            restarts: need(reply.restarts, "StatusReply", "restarts")?.into(),
            checkpoint: reply.checkpoint.map(|mark| {
                let CheckpointMark { id, version, generation } = mark.into();
                CheckpointStatus { id, version, generation }
            }),
            names: reply.names.map(Into::into),
            last_report: reply.last_report.map(TryInto::try_into).transpose()?,
            tasks: reply.tasks.map(Into::into),
        })
    }
}

impl From<WorkerStatus> for v1::WorkerStatus {
    fn from(worker: WorkerStatus) -> Self {
        let WorkerStatus { id, slot, pid, endpoint, connected, member, confirmed, beat } = worker;
        let (member, beat) = (member.map(|rank| rank as u32), beat.map(Into::into));
        Self { id: id.0, slot, pid, endpoint, connected, member, confirmed, beat }
    }
}

impl TryFrom<v1::WorkerStatus> for WorkerStatus {
    type Error = Error;

    fn try_from(worker: v1::WorkerStatus) -> Result<Self, Error> {
        let v1::WorkerStatus { id, slot, pid, endpoint, connected, member, confirmed, beat } =
            worker;
        let (id, member) = (WorkerId(id), member.map(|rank| rank as usize));
        let beat = beat.map(TryInto::try_into).transpose()?;
        Ok(Self { id, slot, pid, endpoint, connected, member, confirmed, beat })
    }
}

impl From<ServerStatus> for v1::ServerStatus {
    fn from(server: ServerStatus) -> Self {
        let ServerStatus { seat, id, pid, endpoint } = server;
        Self { seat, id: id.0, pid, endpoint }
    }
}

impl From<v1::ServerStatus> for ServerStatus {
    fn from(server: v1::ServerStatus) -> Self {
        let v1::ServerStatus { seat, id, pid, endpoint } = server;
        Self { seat, id: WorkerId(id), pid, endpoint }
    }
}

same_fields!(RestartCounts, v1::RestartCounts { workers, servers, masters });
same_fields!(Count, v1::TaskCount { left, leased, done });

impl From<NamesStatus> for v1::NamesStatus {
    fn from(names: NamesStatus) -> Self {
        let NamesStatus { epochs, left, leased, servers, map } = names;
        Self { epochs, left, leased, servers: servers as u32, map: map.0.to_u64() }
    }
}

impl From<v1::NamesStatus> for NamesStatus {
    fn from(names: v1::NamesStatus) -> Self {
        let v1::NamesStatus { epochs, left, leased, servers, map } = names;
        Self { epochs, left, leased, servers: servers as usize, map: MapVersion(generation(map)) }
    }
}
