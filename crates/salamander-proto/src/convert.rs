//! Between generated messages, in which anything can be missing, and the types of the state machines, in which
//! nothing can.

mod names;
mod report;
mod session;
mod status;

use salamander_core::elastic;

use crate::v1;

pub use session::{FromMaster, FromWorker};

/// A message that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field that must be there is not.
    #[error("message {message}: field \"{field}\" is missing")]
    Missing {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field has a value that means nothing.
    #[error("message {message}: field \"{field}\" cannot be {value}")]
    Value {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The progress of a run that has ended is not what this program knows.
    #[error("message End: field \"progress\": {0}")]
    Progress(String),
}

/// Structs with the same fields on both sides.
macro_rules! same_fields {
    ($ours:path, $theirs:path { $($field:ident),* $(,)? }) => {
        impl From<$ours> for $theirs {
            fn from(value: $ours) -> Self {
                Self { $($field: value.$field),* }
            }
        }

        impl From<$theirs> for $ours {
            fn from(value: $theirs) -> Self {
                Self { $($field: value.$field),* }
            }
        }
    };
}

use same_fields;

fn need<T>(value: Option<T>, message: &'static str, field: &'static str) -> Result<T, Error> {
    value.ok_or(Error::Missing { message, field })
}

fn generation(value: u64) -> elastic::Generation {
    elastic::Generation::from_u64(value)
}

impl From<elastic::Identity> for v1::Identity {
    fn from(identity: elastic::Identity) -> Self {
        let elastic::Identity { version, generation, lineage } = identity;
        Self { version: version.0, generation: generation.to_u64(), lineage: lineage.0 }
    }
}

impl From<v1::Identity> for elastic::Identity {
    fn from(identity: v1::Identity) -> Self {
        let v1::Identity { version, generation: number, lineage } = identity;
        Self {
            version: elastic::Version(version),
            generation: generation(number),
            lineage: elastic::StateLineage(lineage),
        }
    }
}

impl From<elastic::Holding> for v1::Holding {
    fn from(holding: elastic::Holding) -> Self {
        Self {
            identity: holding.identity.map(Into::into),
            confirmed: holding.confirmed.map(elastic::Generation::to_u64),
        }
    }
}

impl From<v1::Holding> for elastic::Holding {
    fn from(holding: v1::Holding) -> Self {
        Self {
            identity: holding.identity.map(Into::into),
            confirmed: holding.confirmed.map(generation),
        }
    }
}

impl From<elastic::CheckpointMark> for v1::Checkpoint {
    fn from(mark: elastic::CheckpointMark) -> Self {
        Self { id: mark.id, version: mark.version.0, generation: mark.generation.to_u64() }
    }
}

impl From<v1::Checkpoint> for elastic::CheckpointMark {
    fn from(mark: v1::Checkpoint) -> Self {
        let v1::Checkpoint { id, version, generation: number } = mark;
        Self { id, version: elastic::Version(version), generation: generation(number) }
    }
}

impl From<elastic::Peer> for v1::Peer {
    fn from(peer: elastic::Peer) -> Self {
        Self { id: peer.id.0, endpoint: peer.endpoint }
    }
}

impl From<v1::Peer> for elastic::Peer {
    fn from(peer: v1::Peer) -> Self {
        Self { id: elastic::WorkerId(peer.id), endpoint: peer.endpoint }
    }
}

impl From<elastic::Ending> for v1::Ending {
    fn from(ending: elastic::Ending) -> Self {
        let (kind, reason) = match ending {
            elastic::Ending::Completed => (v1::ending::Kind::Completed, String::new()),
            elastic::Ending::Interrupted => (v1::ending::Kind::Interrupted, String::new()),
            elastic::Ending::Failed(reason) => (v1::ending::Kind::Failed, reason),
        };
        Self { kind: kind.into(), reason }
    }
}

impl TryFrom<v1::Ending> for elastic::Ending {
    type Error = Error;

    fn try_from(ending: v1::Ending) -> Result<Self, Error> {
        match ending.kind() {
            v1::ending::Kind::Completed => Ok(Self::Completed),
            v1::ending::Kind::Interrupted => Ok(Self::Interrupted),
            v1::ending::Kind::Failed => Ok(Self::Failed(ending.reason)),
            v1::ending::Kind::Unknown => {
                Err(Error::Value { message: "Ending", field: "kind", value: ending.kind.into() })
            }
        }
    }
}

impl From<elastic::Beat> for v1::Beat {
    fn from(beat: elastic::Beat) -> Self {
        let work = match beat.work {
            elastic::Work::Idle => v1::beat::Work::Idle,
            elastic::Work::Computing => v1::beat::Work::Computing,
            elastic::Work::Exchanging => v1::beat::Work::Exchanging,
        };
        let elastic::Beat { for_ms, records, compute_ms, .. } = beat;
        Self { work: work.into(), for_ms, records, compute_ms }
    }
}

impl TryFrom<v1::Beat> for elastic::Beat {
    type Error = Error;

    fn try_from(beat: v1::Beat) -> Result<Self, Error> {
        let unknown = |_| Error::Value { message: "Beat", field: "work", value: beat.work.into() };
        let work = match v1::beat::Work::try_from(beat.work).map_err(unknown)? {
            v1::beat::Work::Idle => elastic::Work::Idle,
            v1::beat::Work::Computing => elastic::Work::Computing,
            v1::beat::Work::Exchanging => elastic::Work::Exchanging,
        };
        let v1::Beat { for_ms, records, compute_ms, .. } = beat;
        Ok(Self { work, for_ms, records, compute_ms })
    }
}

impl TryFrom<&v1::Hello> for elastic::Hello {
    type Error = Error;

    fn try_from(hello: &v1::Hello) -> Result<Self, Error> {
        let peer = need(hello.peer.clone(), "Hello", "peer")?.into();
        Ok(Self { peer, active: hello.active.map(generation) })
    }
}

impl From<elastic::Activation> for v1::Activation {
    fn from(activation: elastic::Activation) -> Self {
        let source = activation.source.rank() as u32;
        let (identity, checkpoint) = match activation.source {
            elastic::Source::Member { identity, .. } => (Some(identity.into()), None),
            elastic::Source::Checkpoint { mark, .. } => (None, mark.map(Into::into)),
        };
        Self {
            generation: activation.generation.to_u64(),
            members: activation.members.into_iter().map(Into::into).collect(),
            source,
            identity,
            checkpoint,
            transfer: activation.transfer,
            servers: activation.servers.into_iter().map(Into::into).collect(),
            rows: activation.rows.to_u64(),
            destination: activation.destination.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Activation> for elastic::Activation {
    type Error = Error;

    fn try_from(activation: v1::Activation) -> Result<Self, Error> {
        let rank = activation.source as usize;
        if rank >= activation.members.len() {
            let value = activation.source.into();
            return Err(Error::Value { message: "Activation", field: "source", value });
        }
        let source = match activation.identity {
            Some(identity) => elastic::Source::Member { rank, identity: identity.into() },
            None => {
                elastic::Source::Checkpoint { rank, mark: activation.checkpoint.map(Into::into) }
            }
        };
        Ok(Self {
            generation: generation(activation.generation),
            members: activation.members.into_iter().map(Into::into).collect(),
            source,
            transfer: activation.transfer,
            servers: activation.servers.into_iter().map(Into::into).collect(),
            rows: generation(activation.rows),
            destination: activation.destination.into_iter().map(Into::into).collect(),
        })
    }
}

/// The end of a process, as the platform tells it.
pub fn process_end(slot: u32, pid: u32, ended: elastic::Ended) -> v1::ProcessEnd {
    let (kind, reason) = match ended {
        elastic::Ended::Finished => (v1::process_end::Kind::Finished, String::new()),
        elastic::Ended::Killed(by) => (v1::process_end::Kind::Killed, by),
        elastic::Ended::Crashed(reason) => (v1::process_end::Kind::Crashed, reason),
    };
    v1::ProcessEnd { slot, pid, kind: kind.into(), reason }
}

impl TryFrom<v1::ProcessEnd> for elastic::Ended {
    type Error = Error;

    fn try_from(end: v1::ProcessEnd) -> Result<Self, Error> {
        let unknown =
            |_| Error::Value { message: "ProcessEnd", field: "kind", value: end.kind.into() };
        Ok(match v1::process_end::Kind::try_from(end.kind).map_err(unknown)? {
            v1::process_end::Kind::Finished => Self::Finished,
            v1::process_end::Kind::Killed => Self::Killed(end.reason),
            v1::process_end::Kind::Crashed => Self::Crashed(end.reason),
        })
    }
}

#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;
