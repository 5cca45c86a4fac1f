//! A broadcast: the root's bytes go round in pieces, so that the last member has them hardly later
//! than the first. A hash follows them, so that hashing and sending overlap.

use super::pump::Duplex;
use crate::Error;
use crate::frame::{self, Frame};

/// Bytes that the root hashes and then sends.
const PIECE: usize = 256 << 10;
/// Memory is taken in steps of this, as bytes really come.
const STEP: usize = 4 << 20;

/// A message on its way through a member.
pub(super) struct Relay {
    header: [u8; frame::LENGTH],
    expected: Frame,
    limit: u64,
    left: usize,
    is_root: bool,
    is_last: bool,
    /// The message, and behind it its hash.
    bytes: Vec<u8>,
    /// Bytes of the message, once known.
    length: usize,
    hasher: blake3::Hasher,
    /// Bytes of the message that are hashed.
    hashed: usize,
    /// Bytes of header, message and hash that are here and may be sent.
    here: usize,
    sent: usize,
}

impl Relay {
    pub(super) fn from_root(frame: Frame, bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        let relay = Self::new(frame, length, bytes);
        Self { header: frame.encode(), is_root: true, here: frame::LENGTH, ..relay }
    }

    pub(super) fn to_member(expected: Frame, limit: u64, left: usize, is_last: bool) -> Self {
        Self { limit, left, is_last, ..Self::new(expected, 0, Vec::new()) }
    }

    fn new(expected: Frame, length: usize, bytes: Vec<u8>) -> Self {
        Self {
            header: [0; frame::LENGTH],
            expected,
            limit: 0,
            left: 0,
            is_root: false,
            is_last: false,
            bytes,
            length,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            here: 0,
            sent: 0,
        }
    }

    /// The message, if its hash fits.
    pub(super) fn into_bytes(mut self) -> Result<Vec<u8>, Error> {
        Error::check_hash(&self.hasher, &self.bytes[self.length..])?;
        self.bytes.truncate(self.length);
        Ok(self.bytes)
    }

    /// Header, message and hash.
    fn total(&self) -> usize {
        frame::LENGTH + self.length + blake3::OUT_LEN
    }

    fn hash_up_to(&mut self, end: usize) {
        let end = end.min(self.length);
        if self.hashed < end {
            self.hasher.update(&self.bytes[self.hashed..end]);
            self.hashed = end;
        }
    }

    fn read_header(&mut self) -> Result<(), Error> {
        let frame = Frame::decode(&self.header)?;
        frame.check(&self.expected, self.left)?;
        Error::check_length("a broadcast", frame.length, self.limit)?;
        self.length = frame.length as usize;
        Ok(())
    }
}

impl Duplex for Relay {
    fn outgoing(&mut self) -> (&[u8], &[u8]) {
        if self.is_last {
            return (&[], &[]);
        }
        if self.is_root && self.sent == self.here && self.here < self.total() {
            self.hash_up_to(self.hashed + PIECE);
            if self.hashed == self.length {
                let hash = self.hasher.finalize();
                self.bytes.extend_from_slice(hash.as_bytes());
                self.here = self.total();
            } else {
                self.here = frame::LENGTH + self.hashed;
            }
        }
        let of_header = self.sent.min(frame::LENGTH);
        let header = &self.header[of_header..self.here.min(frame::LENGTH)];
        let body = self.here.saturating_sub(frame::LENGTH);
        (header, &self.bytes[self.sent - of_header..body])
    }

    fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    fn space(&mut self) -> &mut [u8] {
        if self.is_root {
            return &mut [];
        }
        if self.here < frame::LENGTH {
            return &mut self.header[self.here..];
        }
        let filled = self.here - frame::LENGTH;
        let end = (self.total() - frame::LENGTH).min(filled + STEP);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[filled..end]
    }

    fn received(&mut self, count: usize) -> Result<(), Error> {
        self.here += count;
        if count > 0 && self.here == frame::LENGTH {
            self.read_header()?;
        }
        if !self.is_root {
            self.hash_up_to(self.here.saturating_sub(frame::LENGTH));
        }
        Ok(())
    }

    fn is_all_sent(&self) -> bool {
        self.is_last || self.sent == self.total()
    }

    fn is_all_received(&self) -> bool {
        // Before the header is read the length is unknown, and the hash's bytes are due anyway.
        self.is_root || self.here == self.total()
    }
}
