//! Which row of a partition holds an id, in eight bytes for each slot and one cache line for each
//! look-up.
//!
//! Mixing is a bijection, so an id and its mixed form are the same thing. The upper ten bits of the
//! mixed form are the partition, the next bits the line of slots where the id belongs, and only the rest is
//! kept in the slot (quotienting: Knuth, volume 3, exercise 6.4-13). Ids are put in order by linear
//! probing, so that the layout depends on what is in the table and not on how it got there: the
//! hand of the clock and checkpoints see the same order on every server.
//!
//! Each partition has `2^bits` places and grows on its own, so that no request waits for more than
//! one of them. Partitions of a size lie side by side on large pages.
//!
//! Mixing has no secret, so that somebody can choose ids that all belong to one line. A partition that is nearly
//! empty does not grow for them: those that find no place go to a map of their own.

mod slots;

use std::collections::BTreeMap;

use slots::{Slots, SlotsMut, find, fits, home_of};

use crate::PARTITIONS;
use crate::arena::{SMALL_BYTES, rows_of_region};
use crate::memory::{Pages, prefetch};
use crate::search::{LINE, LineSearch};

/// Bits of a mixed id below its partition.
const TAIL_BITS: u32 = 54;
const MIN_BITS: u32 = 4;
/// The most places past the end for those that are pushed beyond it.
const MAX_SPILL: usize = 128;
/// A partition does not grow beyond so many places for each of its ids.
const SPARSE: usize = 16;

/// The part of a mixed id that tells ids of a partition apart.
pub(crate) const fn tail_of(mixed: u64) -> u64 {
    mixed & ((1 << TAIL_BITS) - 1)
}

/// The inverse of [`salamander_core::seed::mix`].
pub(crate) const fn unmix(mixed: u64) -> u64 {
    let mut z = mixed;
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    (z ^ (z >> 30) ^ (z >> 60)).wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

/// The id of a tail in a partition.
pub(crate) const fn id_of(partition: u16, tail: u64) -> u64 {
    unmix(((partition as u64) << TAIL_BITS) | tail)
}

/// From the ids of a table to the rows of its partitions.
#[derive(Debug)]
pub(crate) struct Index {
    /// The slots of all partitions. The first region is one empty line, for partitions without ids.
    regions: Vec<Pages<u64>>,
    /// By bits: who has a place among the regions' partitions of that size.
    levels: Vec<Level>,
    seats: Box<[Seat; PARTITIONS]>,
    lens: Vec<u32>,
    /// The rows of mixed ids that have found no place: none, unless somebody has chosen them.
    crowded: BTreeMap<u64, u32>,
}

/// Places for the slots of partitions of one size.
#[derive(Debug, Default)]
struct Level {
    /// The regions of this size, by number.
    regions: Vec<u32>,
    /// Places that were ever taken, and those of them that are free again and zero.
    taken: usize,
    free: Vec<Seat>,
}

/// Where a partition has its slots; no bits while it has none.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    region: u32,
    start: u32,
    bits: u32,
}

/// An id of a partition and its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) tail: u64,
    pub(crate) row: u32,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            regions: vec![Pages::zeroed(LINE, SMALL_BYTES)],
            levels: Vec::new(),
            seats: Box::new([Seat::default(); PARTITIONS]),
            lens: vec![0; PARTITIONS],
            crowded: BTreeMap::new(),
        }
    }

    /// Rows of a partition.
    pub(crate) fn len(&self, partition: usize) -> usize {
        self.lens[partition] as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        let bytes = |(bits, level): (u32, &Level)| level.taken * width(bits) * size_of::<u64>();
        let crowded = self.crowded.len() * (size_of::<u64>() + size_of::<u32>());
        (0..).zip(&self.levels).map(bytes).sum::<usize>() + crowded
    }

    /// Fetches the slot where the search for a mixed id begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, mixed: u64) {
        let (slots, home, _) = self.begin(mixed);
        prefetch(slots, home);
    }

    /// The row of a mixed id in its partition.
    #[inline(always)]
    pub(crate) fn find(&self, mixed: u64, search: impl LineSearch) -> Option<u32> {
        let (slots, home, bits) = self.begin(mixed);
        // Behind a partition's slots lie those of another one of its size, where the search ends: all
        // are nearer to their home than the wanted one would be.
        find(slots, home, tail_of(mixed), bits, search).or_else(|| self.find_crowded(mixed))
    }

    #[cold]
    #[inline(never)]
    fn find_crowded(&self, mixed: u64) -> Option<u32> {
        self.crowded.get(&mixed).copied()
    }

    /// Where the search for a mixed id begins.
    #[inline(always)]
    fn begin(&self, mixed: u64) -> (&[u64], usize, u32) {
        let Seat { region, start, bits } = self.seats[(mixed >> TAIL_BITS) as usize];
        let home = start as usize + home_of(tail_of(mixed), bits);
        (&self.regions[region as usize], home, bits)
    }

    /// Adds a mixed id that is not there.
    pub(crate) fn insert(&mut self, mixed: u64, row: u32) {
        let (partition, tail) = ((mixed >> TAIL_BITS) as usize, tail_of(mixed));
        let len = self.len(partition) + 1;
        loop {
            let bits = self.seats[partition].bits;
            if bits > 0 && fits(len, bits) && self.slots_mut(partition).try_insert(tail, row) {
                break;
            }
            if !may_grow(len, bits) {
                self.crowded.insert(mixed, row);
                break;
            }
            self.grow(partition);
        }
        self.lens[partition] += 1;
    }

    /// Removes a tail that is there; the next in order moves to its place if it was pushed beyond it.
    pub(crate) fn remove(&mut self, partition: usize, tail: u64) {
        if self.crowded.remove(&mixed_of(partition, tail)).is_none()
            && let Some(place) = self.slots(partition).place_of(tail)
        {
            self.slots_mut(partition).remove(place);
        }
        self.lens[partition] -= 1;
    }

    /// The first entry of a partition whose tail is not below the given one.
    pub(crate) fn entry_at_least(&self, partition: usize, tail: u64) -> Option<IndexEntry> {
        let slot = self.slots(partition).entry_at_least(tail);
        let crowded = self.crowded_from(partition, tail).next();
        slot.into_iter().chain(crowded).min_by_key(|entry| entry.tail)
    }

    /// All entries of a partition, by ascending tail.
    pub(crate) fn entries(&self, partition: usize) -> impl Iterator<Item = IndexEntry> + '_ {
        let mut slots = self.slots(partition).entries().peekable();
        let mut crowded = self.crowded_from(partition, 0).peekable();
        std::iter::from_fn(move || match (slots.peek(), crowded.peek()) {
            (Some(slot), Some(other)) if other.tail < slot.tail => crowded.next(),
            (Some(_), _) => slots.next(),
            (None, _) => crowded.next(),
        })
    }

    /// Entries of a partition that have found no place, from a tail on.
    fn crowded_from(
        &self,
        partition: usize,
        tail: u64,
    ) -> impl Iterator<Item = IndexEntry> + use<'_> {
        let all = mixed_of(partition, tail)..=mixed_of(partition, tail_of(u64::MAX));
        self.crowded.range(all).map(|(mixed, row)| IndexEntry { tail: tail_of(*mixed), row: *row })
    }

    /// Forgets a partition.
    pub(crate) fn clear(&mut self, partition: usize) {
        self.clear_slots(partition);
        let crowded: Vec<u64> = self.crowded_from(partition, 0).map(|entry| entry.tail).collect();
        for tail in crowded {
            self.crowded.remove(&mixed_of(partition, tail));
        }
        self.lens[partition] = 0;
    }

    fn clear_slots(&mut self, partition: usize) {
        self.slots_mut(partition).slots.fill(0);
        let seat = std::mem::take(&mut self.seats[partition]);
        if seat.bits == 0 {
            return;
        }
        let level = &mut self.levels[seat.bits as usize];
        level.free.push(seat);
        if level.free.len() == level.taken {
            // Numbers of regions stay; their memory goes.
            for region in std::mem::take(level).regions {
                self.regions[region as usize] = Pages::zeroed(0, SMALL_BYTES);
            }
        }
    }

    /// Replaces a partition by tails in ascending order, whose rows are their positions.
    pub(crate) fn fill(
        &mut self,
        partition: usize,
        tails: impl ExactSizeIterator<Item = u64> + Clone,
    ) {
        self.clear(partition);
        if tails.len() > 0 {
            let mut bits = MIN_BITS;
            while !fits(tails.len(), bits) {
                bits += 1;
            }
            self.lens[partition] = tails.len() as u32;
            self.build(partition, bits, &tails.zip(0u32..).collect::<Vec<_>>());
        }
    }

    fn grow(&mut self, partition: usize) {
        let entries = self.slots(partition).entries();
        let entries: Vec<(u64, u32)> = entries.map(|entry| (entry.tail, entry.row)).collect();
        let bits = self.seats[partition].bits;
        self.clear_slots(partition);
        self.build(partition, if bits == 0 { MIN_BITS } else { bits + 1 }, &entries);
    }

    /// Gives a partition at least `2^bits` places and fills them with tails in ascending order.
    fn build(&mut self, partition: usize, bits: u32, entries: &[(u64, u32)]) {
        self.seat(partition, bits);
        if self.slots_mut(partition).fill(entries) {
            return;
        }
        self.clear_slots(partition);
        if may_grow(entries.len(), bits) {
            return self.build(partition, bits + 1, entries);
        }
        self.seat(partition, bits);
        for (tail, row) in entries {
            if !self.slots_mut(partition).try_insert(*tail, *row) {
                self.crowded.insert(mixed_of(partition, *tail), *row);
            }
        }
    }

    fn seat(&mut self, partition: usize, bits: u32) {
        if self.levels.len() <= bits as usize {
            self.levels.resize_with(bits as usize + 1, Level::default);
        }
        let level = &mut self.levels[bits as usize];
        self.seats[partition] = level.free.pop().unwrap_or_else(|| {
            let each = rows_of_region::<u64>(width(bits));
            let (region, row) = (level.taken / each, level.taken % each);
            if region == level.regions.len() {
                level.regions.push(self.regions.len() as u32);
                let small = if region == 0 { SMALL_BYTES } else { 0 };
                self.regions.push(Pages::zeroed(each * width(bits), small));
            }
            level.taken += 1;
            Seat { region: level.regions[region], start: (row * width(bits)) as u32, bits }
        });
    }

    fn slots(&self, partition: usize) -> Slots<'_> {
        let Seat { region, start, bits } = self.seats[partition];
        let slots = &self.regions[region as usize][start as usize..][..width(bits)];
        Slots { slots, bits }
    }

    fn slots_mut(&mut self, partition: usize) -> SlotsMut<'_> {
        let Seat { region, start, bits } = self.seats[partition];
        let slots = &mut self.regions[region as usize][start as usize..][..width(bits)];
        SlotsMut { slots, bits }
    }
}

/// The mixed form of a tail in a partition.
pub(crate) fn mixed_of(partition: usize, tail: u64) -> u64 {
    (partition as u64) << TAIL_BITS | tail
}

/// Whether a partition with so many ids may have more than `2^bits` places.
fn may_grow(len: usize, bits: u32) -> bool {
    bits == 0 || 1usize << bits < SPARSE * len
}

/// Slots of a partition with `2^bits` places: whole lines.
fn width(bits: u32) -> usize {
    let places = 1usize << bits;
    (places + places.min(MAX_SPILL)).next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use salamander_core::seed::mix;

    use super::*;
    use crate::search::Plain;

    proptest! {
        #[test]
        fn unmixing_undoes_mixing(id: u64) {
            prop_assert_eq!(unmix(mix(id)), id);
            let mixed = mix(id);
            prop_assert_eq!(id_of((mixed >> 54) as u16, tail_of(mixed)), id);
        }

        /// Clustered tails make long runs and many moves.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u32..3), 0..600),
        ) {
            let mut index = Index::new();
            let mut model = BTreeMap::new();
            let mut row = 0;
            for (add, number, shift) in steps {
                let tail = tail_of(number << (18 * shift)) | (number & 7) << 51;
                let mixed = (5 << 54) | tail;
                if add && !model.contains_key(&tail) {
                    index.insert(mixed, row);
                    model.insert(tail, row);
                    row = (row + 1) % 16;
                } else if !add && model.remove(&tail).is_some() {
                    let entry = index.entry_at_least(5, tail).expect("it is there");
                    prop_assert_eq!(entry.tail, tail);
                    index.remove(5, entry.tail);
                }
                prop_assert_eq!(index.find(mixed, Plain), model.get(&tail).copied());
                prop_assert_eq!(index.len(5), model.len());
            }
            let entries: Vec<_> = index.entries(5).map(|entry| (entry.tail, entry.row)).collect();
            prop_assert_eq!(entries, model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn sorted_tails_build_what_inserts_build(count in 0u64..3000) {
            let mut tails: Vec<u64> = (0..count).map(|id| tail_of(mix(id))).collect();
            tails.sort_unstable();
            let mut built = Index::new();
            built.insert(mix(0), 0);
            built.fill(7, tails.iter().copied());
            prop_assert_eq!(built.len(7), tails.len());
            for (row, tail) in tails.iter().enumerate() {
                prop_assert_eq!(built.find(7 << 54 | tail, Plain), Some(row as u32));
            }
            for id in count..count + 1000 {
                prop_assert_eq!(built.find(7 << 54 | tail_of(mix(id)), Plain), None);
            }
            built.clear(7);
            prop_assert_eq!(built.entries(7).count(), 0);
        }
    }

    /// All of them belong to one line, however many places there are.
    #[test]
    fn ids_that_were_chosen_to_meet_take_little_memory() {
        let chosen: Vec<u64> = (0..5_000).map(|number| 9 << TAIL_BITS | 1 << 53 | number).collect();
        let mut index = Index::new();
        for (row, mixed) in (0u32..).zip(&chosen) {
            index.insert(*mixed, row);
        }
        index.insert(9 << TAIL_BITS | 7, 5_000);
        let limit = 2 * SPARSE * chosen.len() * size_of::<u64>();
        assert!(index.bytes() < 2 * limit, "{} bytes", index.bytes());
        let rows: Vec<u32> = index.entries(9).map(|entry| entry.row).collect();
        assert_eq!(rows, [5_000].into_iter().chain(0..5_000).collect::<Vec<_>>());
        for (row, mixed) in (0u32..).zip(&chosen) {
            assert_eq!(index.find(*mixed, Plain), Some(row));
            let found = index.entry_at_least(9, tail_of(*mixed)).expect("it is there");
            assert_eq!((found.tail, found.row), (tail_of(*mixed), row));
        }
        let mut built = Index::new();
        built.fill(9, index.entries(9).map(|entry| entry.tail).collect::<Vec<_>>().into_iter());
        assert!(built.bytes() < 2 * limit && built.entries(9).count() == 5_001);
        for mixed in &chosen {
            index.remove(9, tail_of(*mixed));
            assert_eq!(index.find(*mixed, Plain), None);
        }
        assert_eq!((index.len(9), index.entries(9).count()), (1, 1));
        built.clear(9);
        assert_eq!((built.len(9), built.entries(9).count()), (0, 0));
    }

    #[test]
    fn nothing_is_found_in_an_empty_index() {
        assert_eq!(Index::new().find(5, Plain), None);
        assert_eq!(Index::new().entry_at_least(0, 0), None);
    }
}
