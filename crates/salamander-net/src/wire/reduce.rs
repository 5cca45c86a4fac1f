//! The ring algorithm for sums: chunks go round once while each member adds its values, and round
//! again while each member takes the result.
//!
//! The steps are not rounds that wait for each other: a value can be sent on as soon as it is
//! summed, so sending, receiving and summing overlap down to single pieces. A chunk has one owner
//! who completes its sum; the others copy it, so that all have the same bits. The order of a sum
//! starts at the chunk's number and goes round by rank, whatever the timing.

use std::ops::Range;

use super::pump::Duplex;
use crate::frame::{self, Frame};
use crate::{Error, kernel, ring};

/// Bytes that are sent at a time. Fewer cost more calls, more are out of the cache before they are
/// read; CPU time is lowest between 512 KB and 1 MB.
const PIECE: usize = 512 << 10;

/// What a sum works with.
pub(super) struct Parts<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) inbox: &'a mut [u8],
    /// Where values are packed, if they travel in 16 bits.
    pub(super) outbox: Option<&'a mut Vec<u16>>,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) frame: Frame,
    pub(super) left: usize,
}

/// A sum on its way. Steps count from 0 to `2 (size - 1)`; the first half sums, the second copies.
/// In step `k` chunk `rank - k` is sent and chunk `rank - k - 1` is received.
pub(super) struct Reduce<'a> {
    parts: Parts<'a>,
    header: [u8; frame::LENGTH],
    header_sent: usize,
    header_is_checked: bool,
    sent: RingProgress,
    received: RingProgress,
    /// Bytes of the inbox that are not used yet.
    filled: usize,
    /// Bytes of the whole sum that are still to be read from the socket.
    due: usize,
    /// The part of the outbox that is not sent yet, in bytes.
    packed: Range<usize>,
}

/// How far a direction has come: a step, and bytes of its chunk as they travel.
#[derive(Clone, Copy, Default)]
struct RingProgress {
    step: usize,
    bytes: usize,
}

impl<'a> Reduce<'a> {
    pub(super) fn new(parts: Parts<'a>) -> Self {
        let mut reduce = Self {
            header: parts.frame.encode(),
            parts,
            header_sent: 0,
            header_is_checked: false,
            sent: RingProgress::default(),
            received: RingProgress::default(),
            filled: 0,
            due: frame::LENGTH,
            packed: 0..0,
        };
        for step in 0..reduce.steps() {
            reduce.due += reduce.wire_bytes(step + 1);
        }
        reduce.skip_done_chunks();
        reduce
    }

    fn steps(&self) -> usize {
        2 * (self.parts.size - 1)
    }

    /// Bytes of a value as it travels.
    fn width(&self) -> usize {
        if self.parts.outbox.is_some() { 2 } else { 4 }
    }

    /// The values of the chunk that is sent in a step, which is received in the step before.
    fn chunk(&self, step: usize) -> Range<usize> {
        let Parts { rank, size, values, .. } = &self.parts;
        ring::chunk(values.len(), *size, (rank + 2 * size - step) % size)
    }

    fn wire_bytes(&self, step: usize) -> usize {
        self.chunk(step).len() * self.width()
    }

    /// How many bytes of the chunk may be sent: all that is summed or copied.
    fn sendable(&self) -> usize {
        if self.sent.step <= self.received.step {
            self.wire_bytes(self.sent.step)
        } else if self.sent.step == self.received.step + 1 {
            self.received.bytes
        } else {
            0
        }
    }

    fn skip_done_chunks(&mut self) {
        while self.sent.step < self.steps() && self.sent.bytes == self.wire_bytes(self.sent.step) {
            self.sent = RingProgress { step: self.sent.step + 1, bytes: 0 };
        }
        while self.received.step < self.steps()
            && self.received.bytes == self.wire_bytes(self.received.step + 1)
        {
            self.received = RingProgress { step: self.received.step + 1, bytes: 0 };
        }
    }

    fn is_copying(&self) -> bool {
        self.received.step >= self.parts.size - 1
    }

    /// Whether bytes can go right to where they belong.
    fn is_direct(&self) -> bool {
        self.header_is_checked && self.filled == 0 && self.is_copying() && self.width() == 4
    }

    /// Takes whole values out of the inbox, and leaves what is left at its start.
    fn empty_inbox(&mut self) -> Result<(), Error> {
        let mut used = 0;
        if !self.header_is_checked {
            let Some(header) = self.parts.inbox[..self.filled].first_chunk() else { return Ok(()) };
            Frame::decode(header)?.check(&self.parts.frame, self.parts.left)?;
            self.header_is_checked = true;
            used = frame::LENGTH;
        }
        while self.received.step < self.steps() {
            let rest = self.wire_bytes(self.received.step + 1) - self.received.bytes;
            let whole = (self.filled - used).min(rest) / self.width() * self.width();
            if whole == 0 {
                break;
            }
            self.apply(used..used + whole);
            used += whole;
            self.received.bytes += whole;
            self.skip_done_chunks();
        }
        self.parts.inbox.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(())
    }

    /// Sums or copies a part of the inbox.
    fn apply(&mut self, bytes: Range<usize>) {
        let (is_copying, width) = (self.is_copying(), self.width());
        let is_complete = self.received.step + 2 == self.parts.size;
        let start = self.chunk(self.received.step + 1).start + self.received.bytes / width;
        let values = &mut self.parts.values[start..start + bytes.len() / width];
        let bytes = &self.parts.inbox[bytes];
        match (width, is_copying) {
            (4, false) => kernel::add(values, bytemuck::cast_slice(bytes)),
            (4, true) => values.copy_from_slice(bytemuck::cast_slice(bytes)),
            (_, false) => kernel::add_bf16(values, bytemuck::cast_slice(bytes)),
            (_, true) => kernel::from_bf16(bytemuck::cast_slice(bytes), values),
        }
        if width == 2 && is_complete {
            // The owner keeps what the others will get.
            kernel::round_to_bf16(values);
        }
    }

    /// Packs the next values, if the last ones are all sent.
    fn pack(&mut self) {
        let start = self.chunk(self.sent.step).start + self.sent.bytes / 2;
        let available = (self.sendable() - self.sent.bytes) / 2;
        let Some(outbox) = &mut self.parts.outbox else { return };
        if self.packed.is_empty() {
            let count = available.min(outbox.len());
            kernel::to_bf16(&self.parts.values[start..start + count], &mut outbox[..count]);
            self.packed = 0..2 * count;
        }
    }
}

impl Duplex for Reduce<'_> {
    fn outgoing(&mut self) -> (&[u8], &[u8]) {
        let header_sent = self.header_sent;
        if self.sent.step == self.steps() {
            return (&self.header[header_sent..], &[]);
        }
        self.pack();
        let body = if let Some(outbox) = &self.parts.outbox {
            &bytemuck::cast_slice(outbox)[self.packed.clone()]
        } else {
            let end = self.sendable().min(self.sent.bytes + PIECE);
            let chunk: &[u8] = bytemuck::cast_slice(&self.parts.values[self.chunk(self.sent.step)]);
            &chunk[self.sent.bytes..end]
        };
        (&self.header[header_sent..], body)
    }

    fn sent(&mut self, count: usize) {
        let of_header = count.min(self.header.len() - self.header_sent);
        self.header_sent += of_header;
        let count = count - of_header;
        self.sent.bytes += count;
        if self.parts.outbox.is_some() {
            self.packed.start += count;
        }
        self.skip_done_chunks();
    }

    fn space(&mut self) -> &mut [u8] {
        if self.is_direct() && self.received.step < self.steps() {
            let range = self.chunk(self.received.step + 1);
            let chunk: &mut [u8] = bytemuck::cast_slice_mut(&mut self.parts.values[range]);
            return &mut chunk[self.received.bytes..];
        }
        let end = self.parts.inbox.len().min(self.filled + self.due);
        &mut self.parts.inbox[self.filled..end]
    }

    fn received(&mut self, count: usize) -> Result<(), Error> {
        self.due -= count;
        if self.is_direct() && self.received.step < self.steps() {
            self.received.bytes += count;
            self.skip_done_chunks();
            return Ok(());
        }
        self.filled += count;
        self.empty_inbox()
    }

    fn is_all_sent(&self) -> bool {
        self.header_sent == self.header.len() && self.sent.step == self.steps()
    }

    fn is_all_received(&self) -> bool {
        self.due == 0
    }
}
