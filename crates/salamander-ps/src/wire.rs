//! What travels between workers and parameter servers: frames with a fixed header, rows that are
//! used where they were received, and texts for everything small.
//!
//! All of it is pure: bytes in, requests out, and back. Lengths are checked against the bytes that
//! are there before anything is made of them, and no bytes make it panic.
//!
//! # Layout
//! - [`header`]: the start of every frame
//! - [`cursor`]: words, texts and arrays within a body
//! - [`request`]: what a server is asked, decoded in place; [`message`]: the same, to be sent
//! - [`reset`]: where a server gets its partitions
//! - [`reply`]: what a server answers

pub mod cursor;
pub mod header;
pub mod message;
pub mod reply;
pub mod request;
pub mod reset;

#[cfg(test)]
mod tests;

pub use header::{Header, MessageKind};
pub use message::{Message, RowBlock};
pub use reply::{Code, Failure, Info, ResetOutcome};
pub use request::{Advance, Moment, Request};
pub use reset::{Before, HistoryStart, Owner, Reset};

/// Partitions travel in pieces of so many bytes, each of which has its own time.
pub(crate) const PIECE: usize = 1 << 20;

/// A table as frames name it: by a hash of its name, because servers that heard of tables in another
/// order have other numbers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey(pub u64);

impl TableKey {
    /// The key of a name.
    pub fn of(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        Self(u64::from_le_bytes(*first))
    }
}

/// Bytes that make no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They do not start like one.
    #[error("a frame does not start with the header of this protocol")]
    Magic,
    /// Something that this version does not know.
    #[error("unknown kind {0} of frame; server and worker need the same version")]
    MessageKind(u16),
    /// The same.
    #[error("unknown flags {0:#x} in a frame; server and worker need the same version")]
    Flags(u64),
    /// It ends before what it says to hold.
    #[error("a frame is shorter than what it says to hold")]
    Short,
    /// It goes on after its end.
    #[error("a frame has {0} bytes too many")]
    Long(usize),
    /// A number has no meaning where it stands.
    #[error("a number in a frame is out of its range")]
    Range,
    /// An array is not where the processor can read it.
    #[error("an array in a frame is not aligned")]
    Unaligned,
    /// A text is none.
    #[error("a text in a frame is not UTF-8")]
    Text,
    /// A text says nothing that can be understood.
    #[error("a text in a frame cannot be read: {0}")]
    Json(String),
    /// A frame of this kind has no business here.
    #[error("a frame of the kind {0:?} was not expected")]
    Unexpected(MessageKind),
}
