//! Memory that processes share: the one module with `unsafe` code, which maps it and hands out
//! parts of it.
//!
//! A segment is sealed against any change of its size, so that no access behind its length can ever
//! raise a signal, whatever another process does. Who may touch which part when is agreed between
//! the members: `shared` says how. A member that breaks the agreement can spoil sums, as it could by
//! sending wrong values, but not more: whatever bits are found are valid numbers.
#![allow(unsafe_code, reason = "mapping shared memory; the bench shows 3 to 30 times over sockets")]

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::fold::FoldStack;
use crate::{Error, Fold, kernel};

/// Bytes ahead of the mailboxes in a control segment.
pub(super) const CONTROL: usize = 4096;

/// The start of a control segment. Only atomic numbers, so any bits in it are valid.
#[repr(C)]
pub(super) struct Control {
    /// Where members meet; only that of rank 0 is used.
    pub(super) meeting: Meeting,
    /// The core that its owner was seen on.
    pub(super) core: Apart,
    /// What its owner does, for odd and for even sequence numbers.
    pub(super) announcements: [Announcement; 2],
}

/// The state of a barrier.
#[repr(C, align(128))]
pub(super) struct Meeting {
    /// Members that are there.
    pub(super) arrived: AtomicU32,
    /// Members that sleep, or did so when they died.
    pub(super) sleepers: AtomicU32,
    /// How often all were there.
    pub(super) count: Apart,
}

/// A number that has a cache line for itself, since others look at it often.
#[repr(C, align(128))]
pub(super) struct Apart(pub(super) AtomicU32);

/// A header in shared memory: kind, generation, sequence, length, origin.
#[repr(C, align(128))]
pub(super) struct Announcement(pub(super) [AtomicU64; 5]);

const _: () = assert!(size_of::<Control>() <= CONTROL);

/// A mapped piece of shared memory.
pub(super) struct Segment {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives as long as the value.
unsafe impl Send for Segment {}

impl Segment {
    /// New memory, and the descriptor with which others map it.
    pub(super) fn create(length: usize) -> Result<(Self, OwnedFd), Error> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create("salamander", flags)?;
        rustix::fs::ftruncate(&descriptor, length as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, seals())?;
        let segment = Self::map(&descriptor, length)?;
        Ok((segment, descriptor))
    }

    /// Maps what another member created, if it is sealed and has exactly this length.
    pub(super) fn open(descriptor: OwnedFd, length: usize) -> Result<Self, Error> {
        let sealed = rustix::fs::fcntl_get_seals(&descriptor)?;
        let found = rustix::fs::fstat(&descriptor)?.st_size;
        if !sealed.contains(seals()) || u64::try_from(found) != Ok(length as u64) {
            let reason = format!("shared memory of {found} bytes with {sealed:?}, not {length}");
            return Err(Error::Mismatch(reason));
        }
        Self::map(&descriptor, length)
    }

    fn map(descriptor: &OwnedFd, length: usize) -> Result<Self, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks a free range of addresses, so nothing else is there.
        let address = unsafe {
            let anywhere = std::ptr::null_mut();
            mmap(anywhere, length, access, MapFlags::SHARED, descriptor.as_fd(), 0)?
        };
        let address = NonNull::new(address.cast())
            .ok_or_else(|| Error::Io(std::io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { address, length })
    }

    /// Takes the pages of a range of bytes now rather than one by one in the first sum. It is only
    /// faster, so its failure is none.
    pub(super) fn populate(&self, range: Range<usize>) {
        let start = range.start / CONTROL * CONTROL;
        let end = range.end.min(self.length);
        if start < end {
            // SAFETY: the range lies in the mapping, and populating changes no byte of it.
            let _ = unsafe {
                let address = self.address.as_ptr().add(start);
                madvise(address.cast(), end - start, Advice::LinuxPopulateWrite)
            };
        }
    }

    /// The head of a control segment.
    pub(super) fn control(&self) -> &Control {
        assert!(self.length >= CONTROL, "a control segment holds its head");
        // SAFETY: the mapping starts at a page and is long enough; `Control` is made of atomics only,
        // which other processes may change at any time.
        unsafe { self.address.cast::<Control>().as_ref() }
    }

    /// Copies bytes into the segment.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.assert_inside(offset, bytes.len());
        // SAFETY: the range lies in the mapping, and `bytes` is outside of it.
        unsafe {
            let target = self.address.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    /// Appends bytes of the segment to `bytes`.
    pub(super) fn append_to(&self, offset: usize, length: usize, bytes: &mut Vec<u8>) {
        self.assert_inside(offset, length);
        bytes.reserve(length);
        // SAFETY: the source lies in the mapping; the target is reserved, and set once written.
        unsafe {
            let source = self.address.as_ptr().add(offset);
            let target = bytes.as_mut_ptr().add(bytes.len());
            std::ptr::copy_nonoverlapping(source, target, length);
            bytes.set_len(bytes.len() + length);
        }
    }

    /// A range of the segment's values. Between collectives they are their owner's alone.
    pub(super) fn values(&mut self, range: Range<usize>) -> &mut [f32] {
        let bytes = size_of::<f32>();
        assert!(range.start <= range.end && range.end <= self.length / bytes, "{range:?} fits");
        // SAFETY: the range lies in the mapping, which starts at a page and is aligned; all bits are
        // valid numbers. The members have agreed that nobody else touches the range meanwhile, and
        // the borrow keeps this process from doing so.
        unsafe {
            let start = self.address.cast::<f32>().as_ptr().add(range.start);
            std::slice::from_raw_parts_mut(start, range.len())
        }
    }

    fn assert_inside(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{offset} + {length} is inside");
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all borrows of it have ended.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// Sums a range over all segments, in their order, and puts the result into all of them.
pub(super) fn sum_into_all(segments: &mut [Segment], range: Range<usize>) {
    let mut slices: Vec<&mut [f32]> =
        segments.iter_mut().map(|segment| segment.values(range.clone())).collect();
    kernel::sum_into_all(&mut slices);
}

/// Sums a range of all parts of all segments in the order of a fold, and puts the result into all segments.
pub(super) fn fold_into_all(
    segments: &mut [Segment],
    range: Range<usize>,
    len: usize,
    fold: &Fold,
) {
    let mut stack = FoldStack::default();
    for block in FoldStack::blocks(range) {
        for (rank, part, joins) in fold.steps() {
            let start = Fold::part(len, part).start;
            let values = segments[rank].values(start + block.start..start + block.end);
            stack.take(values, joins);
        }
        let sums = stack.finish(block.len());
        for segment in segments.iter_mut() {
            segment.values(block.clone()).copy_from_slice(sums);
        }
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with several mappings, as in several processes.
    fn twice(length: usize) -> (Segment, Segment) {
        let (mine, descriptor) = Segment::create(length).expect("shared memory");
        let theirs = Segment::open(descriptor, length).expect("the same");
        (mine, theirs)
    }

    #[test]
    fn written_bytes_are_seen_through_another_mapping() {
        let (mut mine, theirs) = twice(2 * CONTROL);
        mine.write(CONTROL, b"hello");
        let mut bytes = b"> ".to_vec();
        theirs.append_to(CONTROL, 5, &mut bytes);
        assert_eq!(bytes, b"> hello");
    }

    #[test]
    fn sum_is_that_of_plain_slices() {
        let count = 5000;
        let mut plain: Vec<Vec<f32>> = (0..3)
            .map(|member| (0..count).map(|i| (i * 31 + member) as f32 * 0.37).collect())
            .collect();
        let (mut near, mut far): (Vec<_>, Vec<_>) = (0..3).map(|_| twice(4 * count)).unzip();
        for (segment, values) in near.iter_mut().zip(&plain) {
            segment.populate(0..4 * count);
            segment.values(0..count).copy_from_slice(values);
        }
        sum_into_all(&mut far, 16..count - 7);
        for index in 16..count - 7 {
            let sum = plain[0][index] + plain[1][index] + plain[2][index];
            plain.iter_mut().for_each(|member| member[index] = sum);
        }
        for (segment, values) in near.iter_mut().zip(&plain) {
            assert_eq!(segment.values(0..count), values);
        }
    }

    #[test]
    fn unsealed_or_wrong_memory_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("test", flags).expect("a memfd");
        rustix::fs::ftruncate(&open, 4096).expect("it grows");
        assert!(Segment::open(open, 4096).is_err(), "it could shrink under the mapping");
        let (_, descriptor) = Segment::create(4096).expect("shared memory");
        assert!(Segment::open(descriptor, 8192).is_err(), "half of it is missing");
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        assert!(Segment::open(file.into(), 4096).is_err(), "a file has no seals");
    }

    #[test]
    fn sealed_memory_keeps_its_size() {
        let (_segment, descriptor) = Segment::create(4096).expect("shared memory");
        assert!(rustix::fs::ftruncate(&descriptor, 0).is_err());
        assert!(rustix::fs::ftruncate(&descriptor, 8192).is_err());
    }
}
