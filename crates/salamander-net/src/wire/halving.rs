//! Sums in the balanced tree over members that are as many as a power of two, with one part each: pairs add up halves
//! of what they have, then pairs of pairs halves of these, until each member has the sum of one chunk; the same way
//! back they hand each other what they have. As many bytes as round a ring, in fewer steps, and the sums are those of
//! the tree's nodes, level by level (recursive halving and doubling,
//! <https://www.mcs.anl.gov/~thakur/papers/ijhpca-coll.pdf>).

use std::ops::Range;

use super::pump::{Duplex, Ways};
use crate::frame::{self, Frame};
use crate::{Cancel, Error, kernel, ring};

/// Bytes that are sent at a time, as round a ring.
const PIECE: usize = 512 << 10;
const VALUE: usize = size_of::<f32>();

/// What a sum works with.
pub(super) struct HalvingSum<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) inbox: &'a mut [u8],
    pub(super) frame: Frame,
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl HalvingSum<'_> {
    /// Sums; `ways` leads to another member. The bytes that were moved.
    pub(super) fn run<'s>(
        &mut self,
        ways: impl Fn(usize) -> Result<Ways<'s>, Error>,
        cancel: &Cancel,
    ) -> Result<u64, Error> {
        let mut moved = 0;
        let mut kept = 0..self.values.len();
        let mut levels = Vec::new();
        for distance in (0..self.size.ilog2()).map(|level| 1 << level) {
            let partner = self.rank ^ distance;
            let [low, high] = halves(&kept);
            let is_low = self.rank & distance == 0;
            let (own, others) = if is_low { (low, high) } else { (high, low) };
            let mut exchange = PairExchange::adding(self, partner, others.clone(), own.clone());
            moved += ways(partner)?.pump(&mut exchange, cancel)?;
            levels.push((partner, own.clone(), others));
            kept = own;
        }
        for (partner, own, others) in levels.into_iter().rev() {
            let mut exchange = PairExchange::taking(self, partner, own, others);
            moved += ways(partner)?.pump(&mut exchange, cancel)?;
        }
        Ok(moved)
    }
}

/// Both halves of a range, as all members cut it.
fn halves(range: &Range<usize>) -> [Range<usize>; 2] {
    [0, 1].map(|half| {
        let half = ring::chunk(range.len(), 2, half);
        range.start + half.start..range.start + half.end
    })
}

/// Values that go to the other one of a pair, and values that come from it.
struct PairExchange<'a> {
    values: &'a mut [f32],
    inbox: &'a mut [u8],
    partner: usize,
    frame: Frame,
    given: Range<usize>,
    taken: Range<usize>,
    /// Whether what comes is added, behind a header, which the other one's must be equal to. On the way back it was.
    adds: bool,
    header: [u8; frame::LENGTH],
    /// Bytes, the header's among them.
    sent: usize,
    received: usize,
    /// Bytes of the inbox that are not used yet.
    filled: usize,
}

impl<'a> PairExchange<'a> {
    /// Gives one half and adds the other one's values to its own.
    fn adding(
        sum: &'a mut HalvingSum<'_>,
        partner: usize,
        given: Range<usize>,
        taken: Range<usize>,
    ) -> Self {
        let HalvingSum { values, inbox, frame, .. } = sum;
        let (frame, header) = (*frame, frame.encode());
        let (adds, sent, received, filled) = (true, 0, 0, 0);
        Self { values, inbox, partner, frame, given, taken, adds, header, sent, received, filled }
    }

    /// Gives its own sums and takes the other one's.
    fn taking(
        sum: &'a mut HalvingSum<'_>,
        partner: usize,
        given: Range<usize>,
        taken: Range<usize>,
    ) -> Self {
        Self { adds: false, ..Self::adding(sum, partner, given, taken) }
    }

    fn header_bytes(&self) -> usize {
        if self.adds { frame::LENGTH } else { 0 }
    }

    fn due(&self) -> usize {
        self.header_bytes() + self.taken.len() * VALUE - self.received
    }

    /// Adds whole values out of the inbox, and leaves what is left at its start.
    fn empty_inbox(&mut self) -> Result<(), Error> {
        let before = self.received - self.filled;
        let mut used = 0;
        if before == 0 {
            let Some(header) = self.inbox[..self.filled].first_chunk() else { return Ok(()) };
            Frame::decode(header)?.check(&self.frame, self.partner)?;
            used = frame::LENGTH;
        }
        let whole = (self.filled - used) / VALUE * VALUE;
        let start = self.taken.start + (before + used - frame::LENGTH) / VALUE;
        let sums = &mut self.values[start..start + whole / VALUE];
        kernel::add(sums, bytemuck::cast_slice(&self.inbox[used..used + whole]));
        used += whole;
        self.inbox.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(())
    }
}

impl Duplex for PairExchange<'_> {
    fn outgoing(&mut self) -> (&[u8], &[u8]) {
        let of_header = self.header_bytes();
        let header = &self.header[..of_header][self.sent.min(of_header)..];
        let at = self.sent.saturating_sub(of_header);
        let body: &[u8] = bytemuck::cast_slice(&self.values[self.given.clone()]);
        (header, &body[at..body.len().min(at + PIECE)])
    }

    fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    fn space(&mut self) -> &mut [u8] {
        if self.adds {
            let end = self.inbox.len().min(self.filled + self.due());
            return &mut self.inbox[self.filled..end];
        }
        let place = &mut self.values[self.taken.clone()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(place);
        &mut bytes[self.received..]
    }

    fn received(&mut self, count: usize) -> Result<(), Error> {
        self.received += count;
        if self.adds {
            self.filled += count;
            return self.empty_inbox();
        }
        Ok(())
    }

    fn is_all_sent(&self) -> bool {
        self.sent == self.header_bytes() + self.given.len() * VALUE
    }

    fn is_all_received(&self) -> bool {
        self.due() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_cover_all_values_once() {
        for range in [0..0, 0..1, 16..33, 5..1000] {
            let [low, high] = halves(&range);
            assert_eq!((low.start, low.end, high.end), (range.start, high.start, range.end));
        }
    }
}
