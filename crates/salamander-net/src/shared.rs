//! The collectives of members on one host, through memory that all of them map.
//!
//! Each member has a control segment with its announcements and two mailboxes, and a bucket. The
//! agreement, which makes the barrier the only lock that is needed:
//!
//! - Between collectives a member's bucket is its own.
//! - Every collective starts with an announcement and a meeting. Then all compare the announcements, and
//!   nobody goes on if one differs.
//! - In a sum, member `r` alone touches chunk `r` of *all* buckets: it reads them, sums in rank order (or that
//!   of a [`Fold`], over all parts) and writes the result to all. Another meeting gives the buckets back to
//!   their owners.
//! - Only its owner writes a mailbox, all read it after a meeting. The two mailboxes take turns: who writes
//!   one again has met the others since, so they have read it.
//!
//! Segments are made anew for each generation and go when the last member unmaps them, so a member
//! of an old generation cannot reach the new one's, and a crash leaves nothing behind.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::cancel::Patience;
use crate::frame::{Frame, FrameKind};
use crate::ring::{self, GATHER_LIMIT};
use crate::{Cancel, Error, Fold};

mod meeting;
mod mesh;
mod segment;

pub(crate) use mesh::Mesh;
use segment::{CONTROL, Segment};

/// Bytes of a mailbox, of which there are two.
const MAILBOX: usize = 1 << 20;
/// Buckets grow in steps of this many bytes.
const GRAIN: usize = 64 << 10;

/// A member's place among others on its host.
pub(crate) struct Shared {
    rank: usize,
    mesh: Mesh,
    /// By rank.
    controls: Vec<Segment>,
    /// By rank; none before the first bucket.
    buckets: Vec<Segment>,
    bucket_bytes: usize,
    /// Mailboxes used so far.
    letters: usize,
    bytes_moved: u64,
}

impl Shared {
    /// Makes the control segments and waits for those of the others.
    pub(crate) fn new(rank: usize, mesh: Mesh, patience: &Patience<'_>) -> Result<Self, Error> {
        let controls = make_segments(rank, &mesh, CONTROL + 2 * MAILBOX, patience)?;
        Ok(Self {
            rank,
            mesh,
            controls,
            buckets: Vec::new(),
            bucket_bytes: 0,
            letters: 0,
            bytes_moved: 0,
        })
    }

    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    pub(crate) fn bucket_len(&self) -> usize {
        self.bucket_bytes / size_of::<f32>()
    }

    pub(crate) fn bucket(&mut self, len: usize) -> &mut [f32] {
        match self.buckets.get_mut(self.rank) {
            Some(own) => own.values(0..len),
            None => &mut [],
        }
    }

    /// Makes larger buckets, together with all others.
    pub(crate) fn grow(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        self.start(frame, cancel)?;
        let too_large = || {
            let limit = isize::MAX as u64 / size_of::<f32>() as u64;
            Error::TooLarge { what: "a bucket", length: frame.length, limit }
        };
        let bytes = usize::try_from(frame.length).ok().and_then(|len| len.checked_mul(4));
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(GRAIN));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(too_large)?;
        // The old ones go first, so that both are never there at the same time.
        self.buckets.clear();
        self.bucket_bytes = 0;
        let patience = Patience::new(cancel, Duration::MAX);
        self.buckets = make_segments(self.rank, &self.mesh, bytes, &patience)?;
        self.bucket_bytes = bytes;
        self.buckets[self.rank].populate(0..bytes);
        Ok(())
    }

    pub(crate) fn all_reduce(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        self.start(frame, cancel)?;
        let size = self.controls.len();
        let chunk = ring::chunk(frame.length as usize, size, self.rank);
        self.bytes_moved += (2 * (size - 1) * chunk.len() * size_of::<f32>()) as u64;
        segment::sum_into_all(&mut self.buckets, chunk);
        self.meet(cancel)
    }

    /// Each member reads its chunk of all parts in the order of the fold.
    pub(crate) fn fold(&mut self, frame: Frame, fold: &Fold, cancel: &Cancel) -> Result<(), Error> {
        self.start(frame, cancel)?;
        let (size, len) = (self.controls.len(), frame.length as usize);
        let chunk = ring::chunk(len, size, self.rank);
        let foreign = fold.steps().filter(|step| step.0 != self.rank).count() + size - 1;
        self.bytes_moved += (foreign * chunk.len() * size_of::<f32>()) as u64;
        if *fold == Fold::by_rank(size) {
            // The same order, without a copy.
            segment::sum_into_all(&mut self.buckets, chunk);
        } else {
            segment::fold_into_all(&mut self.buckets, chunk, len, fold);
        }
        self.meet(cancel)
    }

    pub(crate) fn barrier(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        self.start(frame, cancel).map(drop)
    }

    pub(crate) fn all_gather(
        &mut self,
        frame: Frame,
        bytes: &[u8],
        cancel: &Cancel,
    ) -> Result<Vec<Vec<u8>>, Error> {
        // A short message is there when the others come to read the announcement.
        self.post(bytes.chunks(MAILBOX).next().unwrap_or_default());
        let lengths = self.start(frame, cancel)?;
        let total = lengths.iter().fold(0u64, |sum, length| sum.saturating_add(*length));
        Error::check_length("a gathering", total, GATHER_LIMIT)?;
        let mut gathered = vec![Vec::new(); lengths.len()];
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        for start in (0..longest).step_by(MAILBOX) {
            if start > 0 {
                self.post(bytes.get(start..).map_or(&[], |rest| &rest[..rest.len().min(MAILBOX)]));
                self.meet(cancel)?;
            }
            for (rank, message) in gathered.iter_mut().enumerate() {
                let rest = (lengths[rank] as usize).saturating_sub(start);
                self.collect(rank, rest.min(MAILBOX), message);
            }
        }
        Ok(gathered)
    }

    pub(crate) fn broadcast(
        &mut self,
        frame: Frame,
        bytes: Vec<u8>,
        limit: u64,
        cancel: &Cancel,
    ) -> Result<Vec<u8>, Error> {
        let root = frame.origin as usize;
        let length = self.start(frame, cancel)?[root];
        if root == self.rank {
            self.hand_out(&bytes, cancel)?;
            return Ok(bytes);
        }
        Error::check_length("a broadcast", length, limit)?;
        self.take_in(root, length as usize, cancel)
    }

    /// Lets the others know that this member is out, and why.
    pub(crate) fn close(&self, error: Option<&Error>) {
        self.mesh.close(match error {
            Some(Error::Lost { rank, .. }) => Some(*rank),
            _ => None,
        });
    }

    /// The root's side of a broadcast: pieces, and then their hash.
    fn hand_out(&mut self, bytes: &[u8], cancel: &Cancel) -> Result<(), Error> {
        let mut hasher = blake3::Hasher::new();
        for piece in bytes.chunks(MAILBOX) {
            self.post(piece);
            self.meet(cancel)?;
            // The others copy meanwhile.
            hasher.update(piece);
        }
        self.post(hasher.finalize().as_bytes());
        self.meet(cancel)
    }

    fn take_in(&mut self, root: usize, length: usize, cancel: &Cancel) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut hasher = blake3::Hasher::new();
        while bytes.len() < length {
            self.letters += 1;
            self.meet(cancel)?;
            let start = bytes.len();
            self.collect(root, (length - start).min(MAILBOX), &mut bytes);
            hasher.update(&bytes[start..]);
        }
        self.letters += 1;
        self.meet(cancel)?;
        let mut hash = Vec::new();
        self.collect(root, blake3::OUT_LEN, &mut hash);
        Error::check_hash(&hasher, &hash)?;
        Ok(bytes)
    }

    /// Puts at most a mailbox of bytes into the own mailbox whose turn it is.
    fn post(&mut self, bytes: &[u8]) {
        self.letters += 1;
        let offset = self.mailbox();
        self.controls[self.rank].write(offset, bytes);
    }

    /// Reads a member's mailbox, after a meeting.
    fn collect(&mut self, rank: usize, length: usize, bytes: &mut Vec<u8>) {
        self.controls[rank].append_to(self.mailbox(), length, bytes);
        if rank != self.rank {
            self.bytes_moved += length as u64;
        }
    }

    fn mailbox(&self) -> usize {
        CONTROL + self.letters % 2 * MAILBOX
    }

    /// Announces what is to be done and compares it with the others; the lengths of all.
    fn start(&mut self, frame: Frame, cancel: &Cancel) -> Result<Vec<u64>, Error> {
        let turn = (frame.sequence % 2) as usize;
        let Frame { generation, sequence, kind, length, origin } = frame;
        let words = [kind.number(), generation, sequence, length, origin];
        let mine = &self.controls[self.rank].control().announcements[turn];
        for (place, word) in mine.0.iter().zip(words) {
            // The meeting orders it before the others' reading.
            place.store(word, Relaxed);
        }
        self.meet(cancel)?;
        let mut lengths = Vec::with_capacity(self.controls.len());
        for (rank, control) in self.controls.iter().enumerate() {
            let words = &control.control().announcements[turn].0;
            let [number, generation, sequence, length, origin] =
                std::array::from_fn(|index| words[index].load(Relaxed));
            let kind =
                FrameKind::from_number(number).ok_or(crate::frame::Error::FrameKind(number))?;
            let theirs = Frame { generation, sequence, kind, length, origin };
            let is_gathering = kind == FrameKind::AllGather;
            let expected =
                if is_gathering { Frame { origin: rank as u64, ..frame } } else { frame };
            theirs.check(&expected, rank)?;
            lengths.push(length);
        }
        Ok(lengths)
    }

    fn meet(&self, cancel: &Cancel) -> Result<(), Error> {
        cancel.check()?;
        meeting::meet(&self.controls, self.rank, || {
            cancel.check()?;
            self.mesh.check()
        })
    }
}

/// Makes a segment and maps those that the others made, by rank.
fn make_segments(
    rank: usize,
    mesh: &Mesh,
    length: usize,
    patience: &Patience<'_>,
) -> Result<Vec<Segment>, Error> {
    let (own, descriptor) = Segment::create(length)?;
    let received = mesh.exchange(&descriptor, length, patience)?;
    let mut segments = Vec::new();
    for descriptor in received.into_iter().flatten() {
        segments.push(Segment::open(descriptor, length)?);
    }
    segments.insert(rank, own);
    Ok(segments)
}
