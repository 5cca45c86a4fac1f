//! Sums of the slices of a step, row by row, in the order of the slices: the same additions whoever
//! sent what and when.

use std::borrow::Cow;

use salamander_core::seed::mix;

/// Rows of one table of one slice, in the sender's memory while it waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentRows<'a> {
    pub(crate) ids: Cow<'a, [u64]>,
    pub(crate) values: Cow<'a, [f32]>,
}

impl SentRows<'_> {
    /// The same, to be kept.
    pub(crate) fn into_owned(self) -> SentRows<'static> {
        SentRows {
            ids: Cow::Owned(self.ids.into_owned()),
            values: Cow::Owned(self.values.into_owned()),
        }
    }
}

/// Adds rows of dimension `dim`; ids come in the order in which they appear first.
pub(crate) fn sum(slices: Vec<SentRows<'static>>, dim: usize) -> SentRows<'static> {
    let total = slices.iter().map(|slice| slice.ids.len()).sum::<usize>();
    let mut slices = slices.into_iter();
    let Some(first) = slices.next() else { return SentRows::default() };
    if total == first.ids.len() {
        return first;
    }
    let (mut ids, mut values) = (first.ids.into_owned(), first.values.into_owned());
    let mut places = Places::new(total);
    for at in 0..ids.len() {
        places.find_or_add(&ids, at, ids[at]);
    }
    for slice in slices {
        for (id, row) in slice.ids.iter().zip(slice.values.chunks_exact(dim)) {
            let at = places.find_or_add(&ids, ids.len(), *id);
            if at == ids.len() {
                ids.push(*id);
                values.extend_from_slice(row);
            } else {
                let sum = &mut values[at * dim..(at + 1) * dim];
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
        }
    }
    SentRows { ids: Cow::Owned(ids), values: Cow::Owned(values) }
}

/// Where ids are in a list: open addressing with room for all.
struct Places {
    /// One plus the position; zero is empty.
    slots: Vec<u32>,
    shift: u32,
}

impl Places {
    fn new(most: usize) -> Self {
        let bits = (2 * most).next_power_of_two().max(2).ilog2();
        Self { slots: vec![0; 1 << bits], shift: 64 - bits }
    }

    /// The position of an id among those known, or `new` once it was entered for it.
    fn find_or_add(&mut self, ids: &[u64], new: usize, id: u64) -> usize {
        // The upper bits are the partition, which all ids here may share.
        let mut slot = (mix(id).rotate_left(10) >> self.shift) as usize;
        loop {
            match self.slots[slot] {
                0 => {
                    self.slots[slot] = new as u32 + 1;
                    return new;
                }
                found if ids[found as usize - 1] == id => return found as usize - 1,
                _ => slot = (slot + 1) % self.slots.len(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_of_a_map(
            slices in prop::collection::vec(prop::collection::btree_set(0u64..50, 0..30), 0..6),
        ) {
            let mut model: BTreeMap<u64, f32> = BTreeMap::new();
            let mut sent = Vec::new();
            for (k, ids) in slices.iter().enumerate() {
                let value = |id: u64| (id as f32 + 0.1) * (k as f32 + 0.3);
                ids.iter().for_each(|id| *model.entry(*id).or_default() += value(*id));
                let values: Cow<'_, [f32]> =
                    ids.iter().flat_map(|id| [value(*id), -value(*id)]).collect();
                sent.push(SentRows { ids: ids.iter().copied().collect(), values });
            }
            let sums = sum(sent, 2);
            prop_assert_eq!(sums.ids.len(), model.len());
            for (id, row) in sums.ids.iter().zip(sums.values.chunks(2)) {
                prop_assert_eq!(row, &[model[id], -model[id]][..]);
            }
        }
    }
}
