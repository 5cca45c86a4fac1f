//! Which row of a partition holds an id, in eight bytes for each slot and one cache line for each
//! look-up.
//!
//! Mixing is a bijection, so an id and its mixed form are the same thing. The upper ten bits of the
//! mixed form are the partition, the next bits the slot where the id belongs, and only the rest is
//! kept in the slot (quotienting: Knuth, volume 3, exercise 6.4-13). Ids are put in order by linear
//! probing, so that the layout depends on what is in the table and not on how it got there: the
//! hand of the clock and checkpoints see the same order on every server.
//!
//! A slot of an index with `2^bits` places: rest of the id (54 - bits), one plus the distance from
//! where the id belongs (10), row (bits). Zero is empty.

/// Bits of a mixed id below its partition.
const TAIL_BITS: u32 = 54;
const DISTANCE_BITS: u32 = 10;
const DISTANCE_MASK: u64 = (1 << DISTANCE_BITS) - 1;
const MIN_BITS: u32 = 4;
/// The most places past the end for those that are pushed beyond it.
const MAX_SPILL: usize = 128;

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

/// From tails to rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    slots: Vec<u64>,
    bits: u32,
    len: u32,
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: usize,
    pub(crate) tail: u64,
    pub(crate) row: u32,
}

impl Index {
    /// An index of tails in ascending order, whose rows are their positions.
    pub(crate) fn from_sorted(tails: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        if tails.len() == 0 {
            return Self::default();
        }
        let mut bits = MIN_BITS;
        while !fits(tails.len(), bits) {
            bits += 1;
        }
        Self::build(bits, tails.zip(0u32..))
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// The slots and the place in them where the search for a tail begins, to be fetched ahead.
    #[inline(always)]
    pub(crate) fn home(&self, tail: u64) -> (&[u64], usize) {
        (&self.slots, self.home_of(tail))
    }

    /// The row of a tail.
    #[inline(always)]
    pub(crate) fn find(&self, tail: u64) -> Option<u32> {
        let bits = self.bits;
        let rest = tail & ((1 << (TAIL_BITS - bits)) - 1);
        // What the slot holds above the row, if it is the right one at its place.
        let mut wanted = (rest << DISTANCE_BITS) | 1;
        for slot in self.slots.get(self.home_of(tail)..)? {
            let found = slot >> bits;
            if found == wanted {
                return Some((slot & ((1 << bits) - 1)) as u32);
            }
            // Who is nearer to home than the wanted one would be here comes after it.
            if found & DISTANCE_MASK < wanted & DISTANCE_MASK {
                return None;
            }
            wanted += 1;
        }
        None
    }

    /// Adds a tail that is not there.
    pub(crate) fn insert(&mut self, tail: u64, row: u32) {
        let fitting = fits(self.len() + 1, self.bits) && !self.slots.is_empty();
        if !(fitting && self.try_insert(tail, row)) {
            self.grow();
            while !self.try_insert(tail, row) {
                self.grow();
            }
        }
        self.len += 1;
    }

    /// Removes what is at a place; the next in order moves there if it was pushed beyond it.
    pub(crate) fn remove(&mut self, mut place: usize) {
        while let Some(next) = self.slots.get(place + 1).copied() {
            if (next >> self.bits) & DISTANCE_MASK <= 1 {
                break;
            }
            self.slots[place] = next - (1 << self.bits);
            place += 1;
        }
        self.slots[place] = 0;
        self.len -= 1;
    }

    /// The first entry at a place or behind it.
    pub(crate) fn entry_from(&self, place: usize) -> Option<Entry> {
        let ahead = self.slots.get(place..)?;
        let at = place + ahead.iter().position(|slot| *slot != 0)?;
        Some(self.entry(at, self.slots[at]))
    }

    /// The first entry whose tail is not below the given one.
    pub(crate) fn entry_at_least(&self, tail: u64) -> Option<Entry> {
        let mut entry = self.entry_from(self.home_of(tail))?;
        while entry.tail < tail {
            entry = self.entry_from(entry.place + 1)?;
        }
        Some(entry)
    }

    /// All entries, by ascending tail.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + Clone + '_ {
        let filled = self.slots.iter().enumerate().filter(|(_, slot)| **slot != 0);
        filled.map(|(place, slot)| self.entry(place, *slot))
    }

    #[inline(always)]
    fn home_of(&self, tail: u64) -> usize {
        (tail >> (TAIL_BITS - self.bits)) as usize
    }

    fn entry(&self, place: usize, slot: u64) -> Entry {
        let distance = ((slot >> self.bits) & DISTANCE_MASK) as usize - 1;
        let rest = slot >> (self.bits + DISTANCE_BITS);
        let tail = (((place - distance) as u64) << (TAIL_BITS - self.bits)) | rest;
        Entry { place, tail, row: (slot & ((1 << self.bits) - 1)) as u32 }
    }

    fn pack(&self, tail: u64, distance: usize, row: u32) -> u64 {
        let rest = tail & ((1 << (TAIL_BITS - self.bits)) - 1);
        (((rest << DISTANCE_BITS) | (distance as u64 + 1)) << self.bits) | u64::from(row)
    }

    /// Puts a tail in its order; false if those behind it cannot make room.
    fn try_insert(&mut self, tail: u64, row: u32) -> bool {
        let home = self.home_of(tail);
        let mut place = home;
        while self.slots.get(place).is_some_and(|slot| *slot != 0) {
            if self.entry(place, self.slots[place]).tail > tail {
                break;
            }
            place += 1;
        }
        let Some(room) = self.slots[place.min(self.slots.len())..].iter().position(|s| *s == 0)
        else {
            return false;
        };
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

    fn grow(&mut self) {
        let bits = if self.slots.is_empty() { MIN_BITS } else { self.bits + 1 };
        *self = Self::build(bits, self.entries().map(|entry| (entry.tail, entry.row)));
    }

    /// An index with at least `2^bits` places of tails in ascending order.
    fn build(bits: u32, tails: impl Iterator<Item = (u64, u32)> + Clone) -> Self {
        let places = 1usize << bits;
        let slots = vec![0; places + places.min(MAX_SPILL)];
        let mut index = Self { slots, bits, len: 0 };
        let mut next = 0;
        for (tail, row) in tails.clone() {
            let home = index.home_of(tail);
            let place = home.max(next);
            if place >= index.slots.len() || place - home >= DISTANCE_MASK as usize {
                return Self::build(bits + 1, tails);
            }
            index.slots[place] = index.pack(tail, place - home, row);
            index.len += 1;
            next = place + 1;
        }
        index
    }
}

/// Whether so many entries leave enough free places: thirteen in sixteen may be taken.
fn fits(len: usize, bits: u32) -> bool {
    len * 16 <= (1usize << bits) * 13
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use salamander_core::seed::mix;

    use super::*;

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
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            let mut row = 0;
            for (add, number, shift) in steps {
                let tail = tail_of(number << (18 * shift)) | (number & 7) << 51;
                if add && !model.contains_key(&tail) {
                    index.insert(tail, row);
                    model.insert(tail, row);
                    row = (row + 1) % 16;
                } else if !add && model.remove(&tail).is_some() {
                    let entry = index.entry_at_least(tail).expect("it is there");
                    prop_assert_eq!(entry.tail, tail);
                    index.remove(entry.place);
                }
                prop_assert_eq!(index.find(tail), model.get(&tail).copied());
                prop_assert_eq!(index.len(), model.len());
            }
            let entries: Vec<_> = index.entries().map(|entry| (entry.tail, entry.row)).collect();
            prop_assert_eq!(entries, model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn sorted_tails_build_what_inserts_build(count in 0u64..3000) {
            let mut tails: Vec<u64> = (0..count).map(|id| tail_of(mix(id))).collect();
            tails.sort_unstable();
            let built = Index::from_sorted(tails.iter().copied());
            prop_assert_eq!(built.len(), tails.len());
            for (row, tail) in tails.iter().enumerate() {
                prop_assert_eq!(built.find(*tail), Some(row as u32));
            }
            for id in count..count + 1000 {
                prop_assert_eq!(built.find(tail_of(mix(id))), None);
            }
        }
    }

    #[test]
    fn nothing_is_found_in_an_empty_index() {
        assert_eq!(Index::default().find(5), None);
        assert_eq!(Index::default().entry_at_least(0), None);
    }
}
