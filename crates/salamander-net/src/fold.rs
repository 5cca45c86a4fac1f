//! The order in which the parts of all members are added up: fixed before anything travels, so that
//! neither the transport nor who is first has a say in the last bit.

use std::ops::Range;

use crate::{Error, kernel};

/// Values that are summed at a time: small enough for the first cache, also with several sums at once.
const BLOCK: usize = 1024;
/// Parts start at cache lines of their own.
const CACHE_LINE: usize = 64 / size_of::<f32>();

/// An order of sums over the parts of all members. Members have their parts one after the other, by
/// rank; parts are put on a stack, and after each of them the last two sums are joined so many times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Parts of each member.
    parts: Vec<usize>,
    /// By part.
    joins: Vec<u32>,
}

impl Fold {
    /// With the number of parts of each member, and the joins after each part. They must come to one sum.
    pub fn new(parts: Vec<usize>, joins: Vec<u32>) -> Result<Self, Error> {
        let mut depth = 0u32;
        for after in &joins {
            depth = (depth + 1).checked_sub(*after).filter(|depth| *depth > 0).ok_or_else(unfit)?;
        }
        if depth != 1 || parts.iter().sum::<usize>() != joins.len() {
            return Err(unfit());
        }
        Ok(Self { parts, joins })
    }

    /// One part per member, added in the order of ranks.
    pub fn by_rank(size: usize) -> Self {
        Self { parts: vec![1; size], joins: (0..size).map(|rank| u32::from(rank > 0)).collect() }
    }

    /// Members that it is for.
    pub fn size(&self) -> usize {
        self.parts.len()
    }

    /// Parts of a member.
    pub fn parts(&self, rank: usize) -> usize {
        self.parts.get(rank).copied().unwrap_or(0)
    }

    /// Values of a bucket in which every member has room for its parts, of so many values each.
    pub fn bucket_len(&self, len: usize) -> usize {
        let most = self.parts.iter().copied().max().unwrap_or(0).max(1);
        Self::part(len, most - 1).end
    }

    /// Where a part is in its member's bucket; the sum is where the first one was.
    pub fn part(len: usize, part: usize) -> Range<usize> {
        let start = part * stride(len);
        start..start + len
    }

    /// Whether it is the balanced tree over members that are as many as a power of two, with one part each.
    pub(crate) fn is_balanced(&self) -> bool {
        let mut joins = self.joins.iter().enumerate();
        self.size().is_power_of_two()
            && self.parts.iter().all(|parts| *parts == 1)
            && joins.all(|(part, joins)| *joins == part.trailing_ones())
    }

    /// A hash, by which members see that they have the same.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for number in self.parts.iter().copied().chain(self.joins.iter().map(|n| *n as usize)) {
            hasher.update(&(number as u64).to_le_bytes());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }

    /// All parts in their order: rank, part of that member, joins after it.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let owners = self.parts.iter().enumerate();
        let parts = owners.flat_map(|(rank, count)| (0..*count).map(move |part| (rank, part)));
        parts.zip(&self.joins).map(|((rank, part), joins)| (rank, part, *joins))
    }
}

/// Adds up what one member has, in the order of the fold as far as it goes; a member without parts has nothing
/// that any sum would change by.
pub(crate) fn add_own(bucket: &mut [f32], len: usize, fold: &Fold, rank: usize) {
    match fold.parts(rank) {
        0 => bucket[..len].fill(-0.0),
        1 => {}
        parts => {
            let mut stack = FoldStack::default();
            // Whose joins reach beyond it is added to what is there.
            let joins = fold.steps().filter(|step| step.0 == rank).map(|step| step.2);
            let mut within = Vec::with_capacity(parts);
            let mut depth = 0;
            for (part, joins) in joins.enumerate() {
                let last = part + 1 == parts;
                let joins = if last { depth } else { joins.min(depth) };
                depth = depth + 1 - joins;
                within.push(joins);
            }
            for block in FoldStack::blocks(0..len) {
                for (part, joins) in within.iter().enumerate() {
                    let start = Fold::part(len, part).start;
                    stack.take(&bucket[start + block.start..start + block.end], *joins);
                }
                bucket[block.clone()].copy_from_slice(stack.finish(block.len()));
            }
        }
    }
}

fn unfit() -> Error {
    Error::Refused("the parts of a sum do not come to one sum".to_string())
}

fn stride(len: usize) -> usize {
    len.next_multiple_of(CACHE_LINE)
}

/// The sums that are not joined yet, a block at a time.
#[derive(Default)]
pub(crate) struct FoldStack {
    sums: Vec<[f32; BLOCK]>,
    depth: usize,
}

impl FoldStack {
    /// Cuts a row of values into blocks.
    pub(crate) fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = range.end;
        range.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
    }

    /// Takes a block of the next part.
    pub(crate) fn take(&mut self, values: &[f32], joins: u32) {
        let len = values.len();
        if joins > 0 && self.depth > 0 {
            kernel::add(&mut self.sums[self.depth - 1][..len], values);
        } else {
            if self.sums.len() == self.depth {
                self.sums.push([0.0; BLOCK]);
            }
            self.sums[self.depth][..len].copy_from_slice(values);
            self.depth += 1;
        }
        for _ in 1..joins {
            let (lower, top) = self.sums.split_at_mut(self.depth - 1);
            if let (Some(below), Some(top)) = (lower.last_mut(), top.first()) {
                kernel::add(&mut below[..len], &top[..len]);
                self.depth -= 1;
            }
        }
    }

    /// The sum of the block, when all parts were taken.
    pub(crate) fn finish(&mut self, len: usize) -> &[f32] {
        debug_assert_eq!(self.depth, 1, "a fold comes to one sum");
        self.depth = 0;
        &self.sums[0][..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_leaves_several_sums_is_refused() {
        let check = |parts: &[usize], joins: &[u32], fits: bool| {
            assert_eq!(
                Fold::new(parts.to_vec(), joins.to_vec()).is_ok(),
                fits,
                "{parts:?} {joins:?}"
            );
        };
        check(&[1, 1], &[0, 1], true);
        check(&[2, 0, 1], &[0, 0, 2], true);
        check(&[1, 1], &[0, 0], false);
        check(&[1, 1], &[0, 2], false);
        check(&[1, 1], &[1, 0], false);
        check(&[1, 2], &[0, 1], false);
        check(&[0, 0], &[], false);
    }

    #[test]
    fn a_tree_is_balanced_if_all_its_leaves_are_as_deep() {
        let check = |parts: &[usize], joins: &[u32], balanced: bool| {
            let fold = Fold::new(parts.to_vec(), joins.to_vec()).expect("one sum");
            assert_eq!(fold.is_balanced(), balanced, "{parts:?} {joins:?}");
        };
        check(&[1], &[0], true);
        check(&[1, 1], &[0, 1], true);
        check(&[1; 4], &[0, 1, 0, 2], true);
        check(&[1; 8], &[0, 1, 0, 2, 0, 1, 0, 3], true);
        check(&[1; 3], &[0, 1, 1], false);
        check(&[1; 4], &[0, 1, 1, 1], false);
        check(&[1; 4], &[0, 0, 0, 3], false);
        check(&[2, 2], &[0, 1, 0, 2], false);
        check(&[1, 3], &[0, 1, 0, 2], false);
    }

    #[test]
    fn joins_are_from_the_top_of_the_stack() {
        // Powers of two show which sums were rounded before which.
        let values = [1.0e8f32, 3.0, 3.0, -1.0e8];
        let sum = |joins: [u32; 4]| {
            let mut stack = FoldStack::default();
            values.iter().zip(joins).for_each(|(value, joins)| stack.take(&[*value], joins));
            stack.finish(1)[0]
        };
        assert_eq!(sum([0, 1, 1, 1]), ((1.0e8 + 3.0) + 3.0) - 1.0e8f32);
        assert_eq!(sum([0, 1, 0, 2]), (1.0e8 + 3.0) + (3.0 - 1.0e8f32));
        assert_eq!(sum([0, 0, 1, 2]), 1.0e8 + ((3.0 + 3.0) - 1.0e8f32));
        assert_eq!(sum([0, 0, 0, 3]), 1.0e8 + (3.0 + (3.0 - 1.0e8f32)));
    }

    #[test]
    fn adding_minus_zero_changes_no_bit() {
        for value in [0.0f32, -0.0, 1.5, -2.5, f32::MIN_POSITIVE / 2.0, f32::INFINITY] {
            for values in [[value, -0.0], [-0.0, value]] {
                let mut stack = FoldStack::default();
                values.iter().zip([0, 1]).for_each(|(v, joins)| stack.take(&[*v], joins));
                assert_eq!(stack.finish(1)[0].to_bits(), value.to_bits());
            }
        }
    }
}
