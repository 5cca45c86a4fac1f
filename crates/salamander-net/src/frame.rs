//! The header ahead of every collective. Members that are out of step, or of another generation,
//! must notice before anything is summed.

use crate::Error as RingError;

/// Bytes of a header.
pub const LENGTH: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"salframe");

/// What the members do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Summing a bucket.
    AllReduce = 1,
    /// Messages of all to all.
    AllGather = 2,
    /// A message of one to all.
    Broadcast = 3,
    /// Waiting for each other.
    Barrier = 4,
    /// Taking larger shared memory.
    Grow = 5,
    /// Summing buckets of several parts in a given order, which `origin` is a hash of.
    Fold = 6,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The generation of the ring.
    pub generation: u64,
    /// How many collectives the ring did before.
    pub sequence: u64,
    /// What is done.
    pub kind: FrameKind,
    /// Values to sum, or bytes of the message.
    pub length: u64,
    /// Whose message it is.
    pub origin: u64,
}

/// Bytes that are no header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// They do not start like one.
    #[error("a message does not start with a header")]
    Magic,
    /// The kind is none of ours.
    #[error("unknown kind {0} of message")]
    FrameKind(u64),
}

impl Frame {
    /// The header as it travels.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let words = [MAGIC, self.kind.number(), self.generation, self.sequence, self.length];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words.into_iter().chain([self.origin])) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Frame::encode`] wrote.
    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Self, Error> {
        let mut words = [0; LENGTH / 8];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        let [magic, kind, generation, sequence, length, origin] = words;
        if magic != MAGIC {
            return Err(Error::Magic);
        }
        let kind = FrameKind::from_number(kind).ok_or(Error::FrameKind(kind))?;
        Ok(Self { generation, sequence, kind, length, origin })
    }

    /// Checks the header that `rank` sent against what this member does. Lengths are compared
    /// unless each member has its own.
    pub(crate) fn check(&self, mine: &Self, rank: usize) -> Result<(), RingError> {
        let own_lengths = matches!(mine.kind, FrameKind::AllGather | FrameKind::Broadcast);
        let same_length = own_lengths || self.length == mine.length;
        let same_place = self.generation == mine.generation && self.sequence == mine.sequence;
        if same_place && self.kind == mine.kind && same_length && self.origin == mine.origin {
            return Ok(());
        }
        Err(RingError::Mismatch(format!("rank {rank} does {self}, this member {mine}")))
    }
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { generation, sequence, kind, length, origin } = self;
        write!(f, "{kind:?} of {length} (origin {origin}) as number {sequence}")?;
        write!(f, " of generation {generation}")
    }
}

impl FrameKind {
    pub(crate) fn number(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        let sums = [Self::AllReduce, Self::Fold];
        let others = [Self::AllGather, Self::Broadcast, Self::Barrier, Self::Grow];
        sums.into_iter().chain(others).find(|kind| kind.number() == number)
    }
}

impl From<Error> for RingError {
    fn from(error: Error) -> Self {
        Self::Mismatch(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_give_the_header_back(
            number in 1u64..=6, generation: u64, sequence: u64, length: u64, origin: u64,
        ) {
            let kind = FrameKind::from_number(number).expect("one of the kinds");
            let frame = Frame { generation, sequence, kind, length, origin };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn other_bytes_are_an_error(bytes: [u8; LENGTH]) {
            prop_assert_eq!(Frame::decode(&bytes), Err(Error::Magic));
        }
    }

    #[test]
    fn only_lengths_of_messages_may_differ() {
        let frame = |kind, length| Frame { generation: 1, sequence: 2, kind, length, origin: 0 };
        let check = |kind, fits: bool| {
            assert_eq!(frame(kind, 3).check(&frame(kind, 4), 1).is_ok(), fits, "{kind:?}");
            assert!(frame(kind, 3).check(&frame(kind, 3), 1).is_ok(), "{kind:?}");
            let late = Frame { sequence: 3, ..frame(kind, 3) };
            assert!(late.check(&frame(kind, 3), 1).is_err(), "{kind:?}");
        };
        check(FrameKind::AllReduce, false);
        check(FrameKind::AllGather, true);
        check(FrameKind::Broadcast, true);
        check(FrameKind::Barrier, false);
        check(FrameKind::Grow, false);
        check(FrameKind::Fold, false);
    }
}
