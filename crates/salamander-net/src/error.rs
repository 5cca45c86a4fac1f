//! What can go wrong between members, told apart by what the caller does next: regroup, stop, or
//! report a mistake.

/// A failed connection or collective. After one, a ring is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A neighbour went away: the control plane has to make another generation.
    #[error("lost rank {rank}: {reason}")]
    Lost {
        /// Its rank in this generation. Round a TCP ring it may itself have left because it
        /// lost another.
        rank: usize,
        /// How it was noticed.
        reason: String,
    },
    /// The holder of [`crate::Cancel`] gave up.
    #[error("cancelled")]
    Cancelled,
    /// A member, or this one, did not want the connection.
    #[error("refused: {0}")]
    Refused(String),
    /// Members do different things: nothing was summed.
    #[error("members are out of step: {0}")]
    Mismatch(String),
    /// A message is longer than agreed.
    #[error("{what} has {length} bytes, and {limit} are the limit")]
    TooLarge {
        /// What is too long.
        what: &'static str,
        /// Its length.
        length: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// The system failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn lost(rank: usize, reason: impl ToString) -> Self {
        Self::Lost { rank, reason: reason.to_string() }
    }

    /// A member that closed its connection.
    pub(crate) fn gone(rank: usize) -> Self {
        Self::lost(rank, "it closed the connection")
    }

    /// Refuses what is longer than agreed.
    pub(crate) fn check_length(what: &'static str, length: u64, limit: u64) -> Result<(), Self> {
        if length > limit { Err(Self::TooLarge { what, length, limit }) } else { Ok(()) }
    }

    /// Refuses the bytes of a broadcast that are not those of the root.
    pub(crate) fn check_hash(found: &blake3::Hasher, sent: &[u8]) -> Result<(), Self> {
        match found.finalize().as_bytes() == sent {
            true => Ok(()),
            false => {
                let reason = "a broadcast's bytes do not fit the hash that the root sent";
                Err(Self::Mismatch(reason.to_string()))
            }
        }
    }

    /// The error that every later call on the same ring gets.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Lost { rank, reason } => Self::lost(*rank, reason),
            Self::Cancelled => Self::Cancelled,
            Self::Refused(reason) => Self::Refused(reason.clone()),
            Self::Mismatch(reason) => Self::Mismatch(reason.clone()),
            &Self::TooLarge { what, length, limit } => Self::TooLarge { what, length, limit },
            Self::Io(error) => Self::Io(std::io::Error::new(error.kind(), error.to_string())),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}
