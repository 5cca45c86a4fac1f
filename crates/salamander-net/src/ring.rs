//! A group of members that do collectives together, on whichever transport they share.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::cancel::Patience;
use crate::connect::Joining;
use crate::fold;
use crate::frame::{Frame, FrameKind};
use crate::shared::Shared;
use crate::wire::Wire;
use crate::{Cancel, Endpoint, Error, Fold, Listener};

/// Bytes of all messages of a gathering together.
pub(crate) const GATHER_LIMIT: u64 = 64 << 20;
/// Values that share a cache line belong to the same chunk.
const CACHE_LINE: usize = 64 / size_of::<f32>();

/// How members reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transport {
    /// Shared memory if all are on one host; otherwise Unix sockets between neighbours on one host,
    /// and TCP between the others.
    #[default]
    Auto,
    /// Shared memory, or an error.
    Shm,
    /// TCP, also on one host.
    Tcp,
}

/// How to connect; the same for all members.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// How members reach each other.
    pub transport: Transport,
    /// Sums travel over sockets in 16 bits. Shared memory has no wire, so it ignores this.
    pub bf16: bool,
    /// How long to wait for the others.
    pub connect_timeout: Duration,
}

impl Default for RingOptions {
    fn default() -> Self {
        let connect_timeout = Duration::from_secs(10);
        Self { transport: Transport::Auto, bf16: false, connect_timeout }
    }
}

/// The members of one generation, seen from one of them.
///
/// All members must do the same collectives in the same order; who does not gets
/// [`Error::Mismatch`]. After an error the ring is closed, and each later call returns the error again.
pub struct Ring {
    generation: u64,
    rank: usize,
    size: usize,
    transport: &'static str,
    way: RingTransport,
    sequence: u64,
    cancel: Cancel,
    failure: Option<Error>,
}

/// The transport with its state.
enum RingTransport {
    Alone(Vec<f32>),
    Shared(Box<Shared>),
    Wire(Box<Wire>),
}

impl Ring {
    /// Connects to the other members of a generation and waits for them. Older generations of the
    /// listener end with it.
    #[expect(clippy::too_many_arguments, reason = "all differ in type, and one call uses them")]
    pub fn connect(
        listener: &Listener,
        generation: u64,
        rank: usize,
        members: &[Endpoint],
        options: &RingOptions,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let size = members.len();
        if rank >= size || u32::try_from(size).is_err() {
            return Err(Error::Refused(format!("there is no rank {rank} among {size} members")));
        }
        let fence = listener.room().fenced_below();
        if generation < fence {
            return Err(Error::Refused(format!("generation {generation} is over: {fence} is on")));
        }
        listener.fence(generation);
        let patience = Patience::new(cancel, options.connect_timeout);
        let joining = Joining { listener, generation, rank, members, options, patience };
        let (transport, way) = if size == 1 {
            ("alone", RingTransport::Alone(Vec::new()))
        } else if joining.is_shared()? {
            ("shm", RingTransport::Shared(Box::new(joining.share()?)))
        } else {
            let transport = match &listener.keys().tls {
                _ if joining.is_mixed() => "mixed",
                Some(_) => "tls",
                None => "tcp",
            };
            (transport, RingTransport::Wire(Box::new(joining.wire()?)))
        };
        tracing::debug!(generation, rank, size, transport, "connected");
        let cancel = cancel.clone();
        Ok(Self { generation, rank, size, transport, way, sequence: 0, cancel, failure: None })
    }

    /// This member's place.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What the members are connected by: `shm`, `tcp`, `tls`, `mixed` (TCP, encrypted or
    /// not, and Unix sockets) or `alone`.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// The values to be summed, of the same number on all members; they are kept between sums. A
    /// larger number than ever before makes a new bucket, together with all other members, and
    /// leaves zeros or old values in it.
    pub fn bucket(&mut self, len: usize) -> Result<&mut [f32], Error> {
        if len > self.bucket_len() {
            self.collective(FrameKind::Grow, len as u64, 0, |way, frame, cancel| {
                match way {
                    RingTransport::Shared(shared) => shared.grow(frame, cancel)?,
                    RingTransport::Wire(wire) => wire.grow(len),
                    RingTransport::Alone(values) => values.resize(len, 0.0),
                }
                Ok(())
            })?;
        }
        self.check()?;
        Ok(self.values(len))
    }

    /// Sums the first `len` values of the buckets of all members, and gives the sums to all of them:
    /// the same bits everywhere.
    pub fn all_reduce(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let bucket = self.bucket_len();
        self.collective(FrameKind::AllReduce, len as u64, 0, |way, frame, cancel| {
            if len > bucket {
                let reason = format!("a sum of {len} values, but the bucket has {bucket}");
                return Err(Error::Mismatch(reason));
            }
            match way {
                RingTransport::Shared(shared) => shared.all_reduce(frame, cancel),
                RingTransport::Wire(wire) => wire.all_reduce(frame, cancel),
                RingTransport::Alone(_) => Ok(()),
            }
        })?;
        Ok(self.values(len))
    }

    /// Adds up the parts of all members in the order of the fold, which is the same for all of them: the same
    /// bits for every transport. Parts of `len` values are in the bucket where [`Fold::part`] says; the sums
    /// are in place of the first one, at every member. A member without parts leaves its bucket as it is.
    ///
    /// Where sums travel in 16 bits, each member adds up its own parts, and the sums of all are added as in
    /// [`Ring::all_reduce`]: what is rounded on the way has no order to keep.
    pub fn fold(&mut self, len: usize, fold: &Fold) -> Result<&mut [f32], Error> {
        let (bucket, size, rank) = (self.bucket_len(), self.size, self.rank);
        let hash = fold.digest() as usize;
        self.collective(FrameKind::Fold, len as u64, hash, |way, frame, cancel| {
            if fold.size() != size || fold.bucket_len(len) > bucket {
                let members = fold.size();
                let reason = format!(
                    "a sum of {len} values for {members} members, but the bucket has {bucket}"
                );
                return Err(Error::Mismatch(reason));
            }
            match way {
                RingTransport::Shared(shared) => shared.fold(frame, fold, cancel),
                RingTransport::Wire(wire) => wire.fold(frame, fold, cancel),
                RingTransport::Alone(values) => {
                    fold::add_own(values, len, fold, rank);
                    Ok(())
                }
            }
        })?;
        Ok(self.values(len))
    }

    /// What [`Ring::fold`] is compared with: each member adds up its own parts, and the sums of all are added as in
    /// [`Ring::all_reduce`], in an order that follows from their number.
    pub fn fold_by_rank(&mut self, len: usize, fold: &Fold) -> Result<&mut [f32], Error> {
        let (bucket, rank) = (fold.bucket_len(len), self.rank);
        fold::add_own(self.bucket(bucket)?, len, fold, rank);
        self.all_reduce(len)
    }

    /// The messages of all members, by rank; together they have 64 MB at most.
    pub fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let (length, origin) = (bytes.len() as u64, self.rank);
        self.collective(FrameKind::AllGather, length, origin, |way, frame, cancel| {
            Error::check_length("a message to gather", length, GATHER_LIMIT)?;
            match way {
                RingTransport::Shared(shared) => shared.all_gather(frame, bytes, cancel),
                RingTransport::Wire(wire) => wire.all_gather(frame, bytes, cancel),
                RingTransport::Alone(_) => Ok(vec![bytes.to_vec()]),
            }
        })
    }

    /// The bytes of member `root`, checked by their hash; the others pass none. More than `limit`
    /// are an error.
    pub fn broadcast(&mut self, root: usize, bytes: Vec<u8>, limit: u64) -> Result<Vec<u8>, Error> {
        let (length, size) = (bytes.len() as u64, self.size);
        self.collective(FrameKind::Broadcast, length, root, |way, frame, cancel| {
            if root >= size {
                return Err(Error::Mismatch(format!("no rank {root} among {size} members")));
            }
            Error::check_length("a broadcast", length, limit)?;
            match way {
                RingTransport::Shared(shared) => shared.broadcast(frame, bytes, limit, cancel),
                RingTransport::Wire(wire) => wire.broadcast(frame, bytes, limit, cancel),
                RingTransport::Alone(_) => Ok(bytes),
            }
        })
    }

    /// Waits until all members are here.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.collective(FrameKind::Barrier, 0, 0, |way, frame, cancel| match way {
            RingTransport::Shared(shared) => shared.barrier(frame, cancel),
            RingTransport::Wire(wire) => wire.barrier(frame, cancel),
            RingTransport::Alone(_) => Ok(()),
        })
    }

    /// Bytes that this member sent to others and received or read from them.
    pub fn bytes_moved(&self) -> u64 {
        match &self.way {
            RingTransport::Shared(shared) => shared.bytes_moved(),
            RingTransport::Wire(wire) => wire.bytes_moved(),
            RingTransport::Alone(_) => 0,
        }
    }

    /// Runs a collective; if it fails the ring closes, so that the others notice too.
    fn collective<T>(
        &mut self,
        kind: FrameKind,
        length: u64,
        origin: usize,
        run: impl FnOnce(&mut RingTransport, Frame, &Cancel) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check()?;
        let (generation, sequence) = (self.generation, self.sequence);
        let frame = Frame { generation, sequence, kind, length, origin: origin as u64 };
        self.sequence += 1;
        let outcome = run(&mut self.way, frame, &self.cancel);
        if let Err(error) = &outcome {
            self.failure = Some(error.again());
            self.way.close(Some(error));
        }
        outcome
    }

    fn check(&self) -> Result<(), Error> {
        match &self.failure {
            Some(error) => Err(error.again()),
            None => Ok(()),
        }
    }

    fn bucket_len(&self) -> usize {
        match &self.way {
            RingTransport::Shared(shared) => shared.bucket_len(),
            RingTransport::Wire(wire) => wire.bucket_len(),
            RingTransport::Alone(values) => values.len(),
        }
    }

    fn values(&mut self, len: usize) -> &mut [f32] {
        match &mut self.way {
            RingTransport::Shared(shared) => shared.bucket(len),
            RingTransport::Wire(wire) => wire.bucket(len),
            RingTransport::Alone(values) => &mut values[..len],
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("generation", &self.generation)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("transport", &self.transport)
            .field("sequence", &self.sequence)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.failure.is_none() {
            self.way.close(None);
        }
    }
}

impl RingTransport {
    fn close(&self, error: Option<&Error>) {
        match self {
            Self::Shared(shared) => shared.close(error),
            Self::Wire(wire) => wire.close(),
            Self::Alone(_) => {}
        }
    }
}

/// The values of a chunk, where there is one per member; the last ones may be short or empty.
pub(crate) fn chunk(len: usize, size: usize, index: usize) -> Range<usize> {
    let width = len.div_ceil(size).next_multiple_of(CACHE_LINE);
    let at = |index: usize| width.saturating_mul(index).min(len);
    at(index)..at(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_values_once() {
        for len in [0, 1, 15, 16, 17, 100, 1000, 4097] {
            for size in 1..9 {
                let chunks: Vec<_> = (0..size).map(|index| chunk(len, size, index)).collect();
                assert_eq!(chunks[0].start, 0);
                assert_eq!(chunks[size - 1].end, len);
                assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }
}
