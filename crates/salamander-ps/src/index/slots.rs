//! The slots of one partition: ordered linear probing over tails, from the cache line where each belongs.
//!
//! A slot of `2^bits` places: rest of the tail (57 - bits), one plus the lines between where the tail
//! belongs and where it is (7), row (bits). Zero is empty. Tails belong to whole lines and not to places
//! in them, so that few are pushed to the next line, whose fetch nobody began: at half of the places
//! taken 7 in 1000 instead of 58.

use super::{IndexEntry, TAIL_BITS};
use crate::search::{LINE, LineSearch};

const DISTANCE_BITS: u32 = 7;
const DISTANCE_MASK: u64 = (1 << DISTANCE_BITS) - 1;

/// Whether so many entries leave enough free places: thirteen in sixteen may be taken.
pub(super) fn fits(len: usize, bits: u32) -> bool {
    len * 16 <= (1usize << bits) * 13
}

/// Bits of a tail that a slot keeps.
#[inline(always)]
fn rest_bits(bits: u32) -> u32 {
    TAIL_BITS + LINE.ilog2() - bits
}

/// The first place of the line where a tail belongs among `2^bits` places.
#[inline(always)]
pub(super) fn home_of(tail: u64, bits: u32) -> usize {
    (tail >> rest_bits(bits)) as usize * LINE
}

/// The row of a tail whose home is at `home`. Nearly always it lies in the home's cache line, all of
/// which is compared at once: a branch for each slot would be foretold wrongly for every third id.
#[inline(always)]
pub(super) fn find(
    slots: &[u64],
    home: usize,
    tail: u64,
    bits: u32,
    search: impl LineSearch,
) -> Option<u32> {
    let line: &[u64; LINE] = slots.get(home..)?.first_chunk()?;
    let rest = tail & ((1 << rest_bits(bits)) - 1);
    // What a slot holds above the row, if it is the right one.
    let hits = search.hits(line, bits, (rest << DISTANCE_BITS) | 1);
    if hits == 0 {
        return find_behind(slots.get(home..)?, rest, bits);
    }
    let slot = line[hits.trailing_zeros() as usize % LINE];
    Some((slot & ((1 << bits) - 1)) as u32)
}

/// The row of a tail by the rest of it, in the slots from its home on.
#[cold]
#[inline(never)]
fn find_behind(slots: &[u64], rest: u64, bits: u32) -> Option<u32> {
    for (at, slot) in slots.iter().take(DISTANCE_MASK as usize * LINE).enumerate() {
        let wanted = (rest << DISTANCE_BITS) | (at / LINE + 1) as u64;
        let found = slot >> bits;
        if found == wanted {
            return Some((slot & ((1 << bits) - 1)) as u32);
        }
        // Who is nearer to home than the wanted one would be here comes after it.
        if found & DISTANCE_MASK < wanted & DISTANCE_MASK {
            return None;
        }
    }
    None
}

/// Slots to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots<'a> {
    pub(super) slots: &'a [u64],
    pub(super) bits: u32,
}

/// Slots to change.
#[derive(Debug)]
pub(super) struct SlotsMut<'a> {
    pub(super) slots: &'a mut [u64],
    pub(super) bits: u32,
}

impl<'a> Slots<'a> {
    /// The first entry whose tail is not below the given one.
    pub(super) fn entry_at_least(&self, tail: u64) -> Option<IndexEntry> {
        self.place_at_least(tail).map(|place| self.entry(place))
    }

    /// The place of a tail that is there.
    pub(super) fn place_of(&self, tail: u64) -> Option<usize> {
        self.place_at_least(tail).filter(|place| self.entry(*place).tail == tail)
    }

    fn place_at_least(&self, tail: u64) -> Option<usize> {
        let home = home_of(tail, self.bits);
        let mut filled = (home..self.slots.len()).filter(|place| self.slots[*place] != 0);
        filled.find(|place| self.entry(*place).tail >= tail)
    }

    /// All entries, by ascending tail.
    pub(super) fn entries(self) -> impl Iterator<Item = IndexEntry> + 'a {
        let filled = (0..self.slots.len()).filter(move |place| self.slots[*place] != 0);
        filled.map(move |place| self.entry(place))
    }

    fn entry(&self, place: usize) -> IndexEntry {
        let slot = self.slots[place];
        let distance = ((slot >> self.bits) & DISTANCE_MASK) as usize - 1;
        let rest = slot >> (self.bits + DISTANCE_BITS);
        let tail = (((place / LINE - distance) as u64) << rest_bits(self.bits)) | rest;
        IndexEntry { tail, row: (slot & ((1 << self.bits) - 1)) as u32 }
    }
}

impl SlotsMut<'_> {
    fn read(&self) -> Slots<'_> {
        Slots { slots: self.slots, bits: self.bits }
    }

    /// Puts a tail in its order; false if those behind it cannot make room.
    pub(super) fn try_insert(&mut self, tail: u64, row: u32) -> bool {
        let home = home_of(tail, self.bits);
        let mut place = home;
        while self.slots.get(place).is_some_and(|slot| *slot != 0) {
            if self.read().entry(place).tail > tail {
                break;
            }
            place += 1;
        }
        let behind = self.slots.get(place..).unwrap_or_default();
        let Some(room) = behind.iter().position(|slot| *slot == 0) else { return false };
        // Those that go from the end of a line to the next one are farther from home than before.
        let last_of_lines = |place: &usize| place % LINE == LINE - 1;
        let is_far = |place: usize| self.distance(self.slots[place]) == DISTANCE_MASK;
        let far = (place..place + room).filter(last_of_lines).any(is_far);
        let distance = place / LINE - home / LINE;
        if far || distance >= DISTANCE_MASK as usize {
            return false;
        }
        for last in (place..place + room).filter(last_of_lines) {
            self.slots[last] += 1 << self.bits;
        }
        self.slots.copy_within(place..place + room, place + 1);
        self.slots[place] = self.pack(tail, distance, row);
        true
    }

    /// Removes what is at a place; the next in order moves there if it was pushed beyond it.
    pub(super) fn remove(&mut self, mut place: usize) {
        while let Some(next) = self.slots.get(place + 1).copied() {
            let nearer = u64::from((place + 1).is_multiple_of(LINE));
            if self.distance(next) <= nearer {
                break;
            }
            self.slots[place] = next - (nearer << self.bits);
            place += 1;
        }
        self.slots[place] = 0;
    }

    /// One plus the lines that a slot is away from home; zero for an empty one.
    fn distance(&self, slot: u64) -> u64 {
        (slot >> self.bits) & DISTANCE_MASK
    }

    /// Fills empty slots with tails in ascending order; false if they have no room.
    pub(super) fn fill(&mut self, entries: &[(u64, u32)]) -> bool {
        let mut next = 0;
        for (tail, row) in entries {
            let home = home_of(*tail, self.bits);
            let place = home.max(next);
            let distance = place / LINE - home / LINE;
            if place >= self.slots.len() || distance >= DISTANCE_MASK as usize {
                return false;
            }
            self.slots[place] = self.pack(*tail, distance, *row);
            next = place + 1;
        }
        true
    }

    fn pack(&self, tail: u64, distance: usize, row: u32) -> u64 {
        let rest = tail & ((1 << rest_bits(self.bits)) - 1);
        (((rest << DISTANCE_BITS) | (distance as u64 + 1)) << self.bits) | u64::from(row)
    }
}
