//! The fixed start of every frame: what it is, whose history it belongs to, and how much follows.

use super::Error;

/// Bytes of a header.
pub const LENGTH: usize = 40;
/// The protocol and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"salamps2");

/// What a frame asks for, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Who are you?
    Info,
    /// There is a table.
    Declare,
    /// Values of rows.
    Pull,
    /// Gradients of a slice, kept until the step is complete.
    Stage,
    /// A step is complete.
    Advance,
    /// Gradients of a micro-batch, applied at once.
    Push,
    /// Rows that changed.
    Changed,
    /// Names that were applied.
    Applied,
    /// Forget applied names.
    Prune,
    /// Start another history.
    Reset,
    /// Copy everything, to be written to a file.
    Save,
    /// Wait until a copy is written.
    Written,
    /// Give a partition to the server that holds it from now on.
    Take,
    /// Drop partitions that other servers have by now.
    Release,
    /// Are you there?
    KeepAlive,
    /// An answer: it was done.
    Done,
    /// An answer: it was not done.
    Failed,
}

/// A header. Words are little-endian, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: MessageKind,
    /// Whether row values are bfloat16, in this frame or in the answer to a pull.
    pub bf16: bool,
    /// The lineage in a request, the incarnation in an answer.
    pub tag: u64,
    /// An answer has the number of its request.
    pub number: u64,
    /// Bytes that follow.
    pub length: u64,
}

impl Header {
    /// The header as it travels.
    pub fn encode(&self) -> [u8; LENGTH] {
        let second = u64::from(self.kind.number()) | u64::from(self.bf16) << 16;
        let mut bytes = [0; LENGTH];
        let words = [MAGIC, second, self.tag, self.number, self.length];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Header::encode`] wrote.
    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Self, Error> {
        let mut words = [0; LENGTH / 8];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        let [magic, second, tag, number, length] = words;
        if magic != MAGIC {
            return Err(Error::Magic);
        }
        let kind =
            MessageKind::from_number(second as u16).ok_or(Error::MessageKind(second as u16))?;
        // Unknown flags mean a newer program, whose frames mean something else.
        let flags = second >> 16;
        if flags > 1 {
            return Err(Error::Flags(flags));
        }
        Ok(Self { kind, bf16: flags == 1, tag, number, length })
    }
}

impl MessageKind {
    /// All kinds, in the order of their numbers, which start at 1.
    pub const ALL: [Self; 17] = [
        Self::Info,
        Self::Declare,
        Self::Pull,
        Self::Stage,
        Self::Advance,
        Self::Push,
        Self::Changed,
        Self::Applied,
        Self::Prune,
        Self::Reset,
        Self::Save,
        Self::Written,
        Self::Take,
        Self::Release,
        Self::KeepAlive,
        Self::Done,
        Self::Failed,
    ];

    fn number(self) -> u16 {
        self as u16 + 1
    }

    fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether a server answers it only to those who have its lineage, and when it has all its
    /// partitions. The others neither read rows nor change any.
    pub fn is_bound(self) -> bool {
        !matches!(
            self,
            Self::Info
                | Self::Declare
                | Self::Reset
                | Self::Written
                | Self::Take
                | Self::KeepAlive
                | Self::Done
                | Self::Failed
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kinds_have_their_place_as_number() {
        for (at, kind) in MessageKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), at + 1);
            assert_eq!(MessageKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(MessageKind::from_number(0), None);
        assert_eq!(MessageKind::from_number(MessageKind::ALL.len() as u16 + 1), None);
    }

    proptest! {
        #[test]
        fn bytes_give_the_header_back(
            at in 0..MessageKind::ALL.len(), bf16: bool, tag: u64, number: u64, length: u64,
        ) {
            let header = Header { kind: MessageKind::ALL[at], bf16, tag, number, length };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn header_has_one_form(mut bytes: [u8; LENGTH]) {
            prop_assert!(Header::decode(&bytes).is_err());
            bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
