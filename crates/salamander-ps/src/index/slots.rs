//! The slots of one partition: ordered linear probing over tails.
//!
//! A slot of `2^bits` places: rest of the tail (54 - bits), one plus the distance from where the tail
//! belongs (10), row (bits). Zero is empty.

use super::{Entry, TAIL_BITS};
use crate::search::{LINE, Search};

const DISTANCE_BITS: u32 = 10;
const DISTANCE_MASK: u64 = (1 << DISTANCE_BITS) - 1;

/// Whether so many entries leave enough free places: thirteen in sixteen may be taken.
pub(super) fn fits(len: usize, bits: u32) -> bool {
    len * 16 <= (1usize << bits) * 13
}

/// The place where a tail belongs among `2^bits`.
#[inline(always)]
pub(super) fn home_of(tail: u64, bits: u32) -> usize {
    (tail >> (TAIL_BITS - bits)) as usize
}

/// The row of a tail whose home is at `home`. Nearly always it lies in the home's cache line, all of
/// which is compared at once: a branch for each slot would be foretold wrongly for every third id.
#[inline(always)]
pub(super) fn find(
    slots: &[u64],
    home: usize,
    tail: u64,
    bits: u32,
    search: impl Search,
) -> Option<u32> {
    let rest = tail & ((1 << (TAIL_BITS - bits)) - 1);
    let skipped = home % LINE;
    let line: &[u64; LINE] = slots.get(home - skipped..)?.first_chunk()?;
    // What a slot holds above the row, if it is the right one at its place.
    let wanted = ((rest << DISTANCE_BITS) | 1).wrapping_sub(skipped as u64);
    let hits = search.hits(line, bits, wanted) & (u32::MAX << skipped);
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
    for (wanted, slot) in ((rest << DISTANCE_BITS) | 1..).zip(slots) {
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
    /// The first entry at a place or behind it.
    pub(super) fn entry_from(&self, place: usize) -> Option<Entry> {
        let ahead = self.slots.get(place..)?;
        let at = place + ahead.iter().position(|slot| *slot != 0)?;
        Some(self.entry(at))
    }

    /// The first entry whose tail is not below the given one.
    pub(super) fn entry_at_least(&self, tail: u64) -> Option<Entry> {
        let mut entry = self.entry_from(home_of(tail, self.bits))?;
        while entry.tail < tail {
            entry = self.entry_from(entry.place + 1)?;
        }
        Some(entry)
    }

    /// All entries, by ascending tail.
    pub(super) fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        let filled = (0..self.slots.len()).filter(move |place| self.slots[*place] != 0);
        filled.map(move |place| self.entry(place))
    }

    fn entry(&self, place: usize) -> Entry {
        let slot = self.slots[place];
        let distance = ((slot >> self.bits) & DISTANCE_MASK) as usize - 1;
        let rest = slot >> (self.bits + DISTANCE_BITS);
        let tail = (((place - distance) as u64) << (TAIL_BITS - self.bits)) | rest;
        Entry { place, tail, row: (slot & ((1 << self.bits) - 1)) as u32 }
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
        let moved = &self.slots[place..place + room];
        let far = moved.iter().any(|s| (s >> self.bits) & DISTANCE_MASK == DISTANCE_MASK);
        if far || place - home >= DISTANCE_MASK as usize {
            return false;
        }
        self.slots.copy_within(place..place + room, place + 1);
        for slot in &mut self.slots[place + 1..=place + room] {
            *slot += 1 << self.bits;
        }
        self.slots[place] = self.pack(tail, place - home, row);
        true
    }

    /// Removes what is at a place; the next in order moves there if it was pushed beyond it.
    pub(super) fn remove(&mut self, mut place: usize) {
        while let Some(next) = self.slots.get(place + 1).copied() {
            if (next >> self.bits) & DISTANCE_MASK <= 1 {
                break;
            }
            self.slots[place] = next - (1 << self.bits);
            place += 1;
        }
        self.slots[place] = 0;
    }

    /// Fills empty slots with tails in ascending order; false if they have no room.
    pub(super) fn fill(&mut self, entries: &[(u64, u32)]) -> bool {
        let mut next = 0;
        for (tail, row) in entries {
            let home = home_of(*tail, self.bits);
            let place = home.max(next);
            if place >= self.slots.len() || place - home >= DISTANCE_MASK as usize {
                return false;
            }
            self.slots[place] = self.pack(*tail, place - home, *row);
            next = place + 1;
        }
        true
    }

    fn pack(&self, tail: u64, distance: usize, row: u32) -> u64 {
        let rest = tail & ((1 << (TAIL_BITS - self.bits)) - 1);
        (((rest << DISTANCE_BITS) | (distance as u64 + 1)) << self.bits) | u64::from(row)
    }
}
