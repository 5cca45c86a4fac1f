//! What workers and the master say to each other about micro-batches that are leased.

use salamander_core::elastic::WorkerId;
use salamander_core::plan::MicroBatch;
use salamander_core::push::{Ask, Map, MapVersion, Process, Report, Task, Told};
use salamander_core::report::{Brief, Measured};

use super::{Error, generation, need, same_fields};
use crate::v1;
use crate::v1::names_reply::Told as Wire;
use crate::v1::names_request::Ask as WireAsk;

impl v1::NamesRequest {
    /// What a worker says.
    pub fn new(worker: WorkerId, ask: Ask) -> Self {
        let ask = match ask {
            Ask::Work { most } => WireAsk::Work(most as u64),
            Ask::Pushed { report, measured } => WireAsk::Pushed(v1::Pushed {
                fence: report.fence,
                map: Some(report.map.into()),
                names: report.names.into_iter().map(Into::into).collect(),
                acks: report.acks.into_iter().map(Into::into).collect(),
                measured: measured.into_iter().map(Into::into).collect(),
            }),
            Ask::GiveBack { fence } => WireAsk::GiveBack(fence),
            Ask::Validated { task, fence, part } => {
                WireAsk::Validated(v1::Validated { task, fence, part: Some(part.into()) })
            }
        };
        Self { worker: worker.0, ask: Some(ask) }
    }
}

impl TryFrom<v1::NamesRequest> for Ask {
    type Error = Error;

    fn try_from(request: v1::NamesRequest) -> Result<Self, Error> {
        Ok(match need(request.ask, "NamesRequest", "ask")? {
            WireAsk::Work(most) => Ask::Work { most: most as usize },
            WireAsk::Pushed(pushed) => {
                let measured: Result<Vec<Measured>, Error> =
                    pushed.measured.into_iter().map(TryInto::try_into).collect();
                let report = Report {
                    fence: pushed.fence,
                    map: need(pushed.map, "Pushed", "map")?.into(),
                    names: pushed.names.into_iter().map(Into::into).collect(),
                    acks: pushed.acks.into_iter().map(Into::into).collect(),
                };
                Ask::Pushed { report, measured: measured? }
            }
            WireAsk::GiveBack(fence) => Ask::GiveBack { fence },
            WireAsk::Validated(v1::Validated { task, fence, part }) => {
                let part = need(part, "Validated", "part")?.try_into()?;
                Ask::Validated { task, fence, part }
            }
        })
    }
}

impl From<Told> for v1::NamesReply {
    fn from(told: Told) -> Self {
        let told = match told {
            Told::Names { task, servers, brief } => Wire::Names(v1::LeasedNames {
                fence: task.fence,
                map: Some(task.map.into()),
                names: task.names.into_iter().map(Into::into).collect(),
                deadline: task.deadline,
                servers,
                plateau: Some(brief.plateau.into()),
            }),
            Told::Validate { task, fence, batches, map, servers } => {
                Wire::Validate(v1::ValidationTask {
                    task,
                    fence,
                    batches: Some(v1::Range { start: batches.start, end: batches.end }),
                    map: Some(map.into()),
                    servers,
                })
            }
            Told::Wait(wait) => Wire::WaitMs(wait),
            Told::Done => Wire::Done(true),
            Told::Heard(heard) => Wire::Heard(heard),
        };
        Self { told: Some(told) }
    }
}

impl TryFrom<v1::NamesReply> for Told {
    type Error = Error;

    fn try_from(reply: v1::NamesReply) -> Result<Self, Error> {
        Ok(match need(reply.told, "NamesReply", "told")? {
            Wire::Names(names) => {
                let plateau = need(names.plateau, "LeasedNames", "plateau")?.into();
                let task = Task {
                    fence: names.fence,
                    map: need(names.map, "LeasedNames", "map")?.into(),
                    names: names.names.into_iter().map(Into::into).collect(),
                    deadline: names.deadline,
                };
                Told::Names { task, servers: names.servers, brief: Brief { plateau } }
            }
            Wire::Validate(v1::ValidationTask { task, fence, batches, map, servers }) => {
                let batches = need(batches, "ValidationTask", "batches")?;
                let map = need(map, "ValidationTask", "map")?.into();
                Told::Validate { task, fence, batches: batches.start..batches.end, map, servers }
            }
            Wire::WaitMs(wait) => Told::Wait(wait),
            Wire::Done(_) => Told::Done,
            Wire::Heard(heard) => Told::Heard(heard),
        })
    }
}

same_fields!(MicroBatch, v1::MicroBatch { epoch, step, k });
same_fields!(Process, v1::ServerProcess { server, incarnation });

impl From<Map> for v1::ServerMap {
    fn from(map: Map) -> Self {
        Self { number: map.number.0.to_u64(), servers: map.servers }
    }
}

impl From<v1::ServerMap> for Map {
    fn from(map: v1::ServerMap) -> Self {
        Self { number: MapVersion(generation(map.number)), servers: map.servers }
    }
}
