//! What master and members say to each other.

use serde::{Deserialize, Serialize};

use super::{CheckpointMark, Ending, Generation, Holding, Identity, WorkerId};

/// A member as the others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Who.
    pub id: WorkerId,
    /// Where it listens, in the words of the transport.
    pub endpoint: String,
}

/// Where the state of a generation comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateSource {
    /// The member of this rank holds it.
    Member {
        /// Its rank.
        rank: usize,
        /// What it holds.
        identity: Identity,
    },
    /// Nobody holds it: the member of this rank reads the checkpoint, or starts anew when there is none.
    Checkpoint {
        /// Its rank.
        rank: usize,
        /// The checkpoint.
        mark: Option<CheckpointMark>,
    },
}

impl StateSource {
    /// The rank of the member that provides the state.
    pub fn rank(&self) -> usize {
        match self {
            StateSource::Member { rank, .. } | StateSource::Checkpoint { rank, .. } => *rank,
        }
    }
}

/// The membership of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// Its number.
    pub generation: Generation,
    /// The members; a member's rank is its place.
    pub members: Vec<Peer>,
    /// Where the state comes from.
    pub source: StateSource,
    /// Whether some member has to receive it, so that all take part in sending it round.
    pub transfer: bool,
    /// The parameter servers that hold the rows of tables, by their seats.
    #[serde(default)]
    pub servers: Vec<Peer>,
    /// The generation since which they hold them: requests of an earlier one are refused.
    #[serde(default)]
    pub rows: Generation,
    /// The servers that the rows move to before the first exchange; none: they stay.
    #[serde(default)]
    pub destination: Vec<Peer>,
}

/// From the master to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// Leave the generation you are in and say what you hold.
    Prepare(Generation),
    /// Take part in this one.
    Activate(Activation),
    /// The checkpoint counts.
    Kept(CheckpointMark),
    /// Bring the run to an early end at a version that all members agree on. To a parameter server that wants to
    /// leave: what it holds is in a checkpoint.
    Stop,
    /// Write a checkpoint soon, and wait after it: a parameter server wants to leave.
    Save,
    /// The run is over.
    Ended(Ending),
}

/// The first words of a member, at each connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Who and where.
    pub peer: Peer,
    /// The generation it takes part in now.
    pub active: Option<Generation>,
    /// The platform's place for its process: when fewer are wanted, the highest go. None: no platform looks after it.
    pub slot: Option<u32>,
}

/// From a member to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromMember {
    /// The answer to a prepare.
    Promise(Generation, Holding),
    /// It has heard the prepare; its promise comes as soon as the state that it holds is complete.
    Busy(Generation),
    /// The member has the generation's state and takes part.
    Confirmed(Generation),
    /// An exchange failed: this neighbour is gone, or the generation could not be connected. Who cannot reach the
    /// parameter servers names itself.
    Broken(Generation, Option<WorkerId>),
    /// A checkpoint was written, of a version that all members of the generation hold.
    Wrote(CheckpointMark),
    /// The last version is reached and its checkpoint, if any, written.
    Reached(Generation, Ending),
    /// The rows of tables are where the generation moves them to.
    Moved(Generation),
    /// All members wait after the checkpoint that was told last: a parameter server may leave, and nothing is lost.
    Holds(Generation),
    /// The member goes, at its own or its platform's wish.
    Leave,
}
