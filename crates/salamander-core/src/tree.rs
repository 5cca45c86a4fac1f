//! The fixed binary tree in which the parts of a step are added up: by their numbers, never by who computed them.
//!
//! Leaf `k` is micro-batch `k` of the step. A node covers the leaves from `i * 2^l` up to `(i + 1) * 2^l`, and its sum
//! is that of its left half plus that of its right one; a half without leaves is left out. Floats added in one order
//! give one result, so a step has the same bits however many members share its leaves. A member adds up what lies in
//! nodes that are its own as a whole; where its share ends inside of a node, both sides hand on what they have, and the
//! node is completed where all parts meet.
//!
//! ```
//! use salamander_core::tree::{Share, TreeSum, joins, spans};
//!
//! let whole = |leaves: &[u32]| {
//!     let mut sum = TreeSum::new(Share::whole(leaves));
//!     leaves.iter().for_each(|k| sum.push(*k, k.to_string(), |a, b| format!("({a}+{b})")));
//!     sum.finish(|a, b| format!("({a}+{b})")).remove(0).1
//! };
//! assert_eq!(whole(&[0, 1, 2, 3, 4]), "(((0+1)+(2+3))+4)");
//! assert_eq!(whole(&[0, 3, 5, 6]), "((0+3)+(5+6))");
//!
//! // Three members with two, three and three of eight leaves have one, two and two nodes.
//! let shares = spans(&[0, 1, 2, 3, 4, 5, 6, 7], [0..2, 2..5, 5..8]);
//! assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2]);
//! assert_eq!(joins(&shares.concat()), [0, 1, 0, 1, 2]);
//! ```

use std::ops::Range;

/// A row of leaves, the first and the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first leaf.
    pub first: u32,
    /// Its last leaf.
    pub last: u32,
}

impl Span {
    fn joined(self, right: Self) -> Self {
        Self { first: self.first, last: right.last }
    }

    /// The leaves of the smallest node that has all of it.
    fn node(self) -> Range<u64> {
        let height = u32::BITS - (self.first ^ self.last).leading_zeros();
        let first = u64::from(self.first) >> height << height;
        first..first + (1 << height)
    }

    /// Whether its node has no leaf up to `before`, and none from `next` on.
    fn is_apart(self, before: Option<u32>, next: Option<u32>) -> bool {
        let node = self.node();
        before.is_none_or(|leaf| u64::from(leaf) < node.start)
            && next.is_none_or(|leaf| u64::from(leaf) >= node.end)
    }
}

/// A member's part of the leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// All leaves, in their order.
    pub leaves: &'a [u32],
    /// Which of them are the member's.
    pub own: Range<usize>,
}

impl<'a> Share<'a> {
    /// All of them.
    pub fn whole(leaves: &'a [u32]) -> Self {
        Self { leaves, own: 0..leaves.len() }
    }

    /// The last leaf ahead of it.
    fn before(&self) -> Option<u32> {
        self.own.start.checked_sub(1).and_then(|at| self.leaves.get(at).copied())
    }

    /// The first leaf after it.
    fn next(&self) -> Option<u32> {
        self.leaves.get(self.own.end).copied()
    }
}

/// Adds up the leaves of one member, which come in their order; it holds one sum per level of the tree at most.
#[derive(Clone, Debug)]
pub struct TreeSum<T> {
    before: Option<u32>,
    next: Option<u32>,
    nodes: Vec<(Span, T)>,
}

impl<T> TreeSum<T> {
    /// Nothing is added yet.
    pub fn new(share: Share<'_>) -> Self {
        Self { before: share.before(), next: share.next(), nodes: Vec::new() }
    }

    /// Adds a leaf, which comes after all that were added.
    pub fn push(&mut self, leaf: u32, value: T, join: impl FnMut(T, T) -> T) {
        self.complete(Some(leaf), join);
        self.nodes.push((Span { first: leaf, last: leaf }, value));
    }

    /// The sums of the nodes that are this member's as a whole, in their order.
    pub fn finish(mut self, join: impl FnMut(T, T) -> T) -> Vec<(Span, T)> {
        self.complete(self.next, join);
        self.nodes
    }

    /// Joins what lies in nodes that are complete when `next` is the next leaf. Returns how often.
    fn complete(&mut self, next: Option<u32>, mut join: impl FnMut(T, T) -> T) -> u32 {
        let mut joined = 0;
        while let [.., (left, _), (right, _)] = self.nodes.as_slice()
            && left.joined(*right).is_apart(self.before, next)
            && let (Some((right, b)), Some((left, a))) = (self.nodes.pop(), self.nodes.pop())
        {
            self.nodes.push((left.joined(right), join(a, b)));
            joined += 1;
        }
        joined
    }
}

/// The nodes of each member, whose shares are rows of `leaves` that follow each other.
pub fn spans(leaves: &[u32], shares: impl IntoIterator<Item = Range<usize>>) -> Vec<Vec<Span>> {
    let of = |own: Range<usize>| {
        let mut sum = TreeSum::new(Share { leaves, own: own.clone() });
        leaves[own].iter().for_each(|leaf| sum.push(*leaf, (), |(), ()| ()));
        sum.finish(|(), ()| ()).into_iter().map(|(span, ())| span).collect()
    };
    shares.into_iter().map(of).collect()
}

/// How the nodes of all members become one sum: when one has come, so often the last two sums are joined.
pub fn joins(spans: &[Span]) -> Vec<u32> {
    let mut sum = TreeSum::new(Share::whole(&[]));
    let mut joins = Vec::with_capacity(spans.len());
    for (at, span) in spans.iter().enumerate() {
        sum.nodes.push((*span, ()));
        joins.push(sum.complete(spans.get(at + 1).map(|next| next.first), |(), ()| ()));
    }
    joins
}

/// Adds up the nodes of all members, with the joins after each; nothing if there are none.
pub fn fold<T>(
    parts: impl IntoIterator<Item = T>,
    joins: &[u32],
    mut join: impl FnMut(T, T) -> T,
) -> Option<T> {
    let mut stack: Vec<T> = Vec::new();
    for (part, joins) in parts.into_iter().zip(joins) {
        stack.push(part);
        for _ in 0..*joins {
            if let (Some(right), Some(left)) = (stack.pop(), stack.pop()) {
                stack.push(join(left, right));
            }
        }
    }
    stack.pop()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: halves of halves.
    fn reference(leaves: &[u32], node: Range<u32>) -> Option<String> {
        let inside: Vec<u32> = leaves.iter().copied().filter(|leaf| node.contains(leaf)).collect();
        if node.len() == 1 || inside.len() < 2 {
            return inside.first().map(u32::to_string);
        }
        let middle = node.start + node.len() as u32 / 2;
        match (reference(leaves, node.start..middle), reference(leaves, middle..node.end)) {
            (Some(left), Some(right)) => Some(join(left, right)),
            (left, right) => left.or(right),
        }
    }

    fn join(left: String, right: String) -> String {
        format!("({left}+{right})")
    }

    /// What members with these shares come to.
    fn together(leaves: &[u32], shares: &[Range<usize>]) -> Option<String> {
        let planned = spans(leaves, shares.iter().cloned());
        let mut parts = Vec::new();
        for (share, planned) in shares.iter().zip(&planned) {
            let mut sum = TreeSum::new(Share { leaves, own: share.clone() });
            leaves[share.clone()].iter().for_each(|leaf| sum.push(*leaf, leaf.to_string(), join));
            let own = sum.finish(join);
            assert_eq!(own.iter().map(|(span, _)| *span).collect::<Vec<_>>(), *planned);
            parts.extend(own.into_iter().map(|(_, sum)| sum));
        }
        fold(parts, &joins(&planned.concat()), join)
    }

    proptest! {
        #[test]
        fn any_number_of_members_adds_in_the_order_of_one(
            present in proptest::collection::vec(any::<bool>(), 1..70), members in 1usize..12,
        ) {
            let leaves: Vec<u32> =
                (0..present.len() as u32).filter(|k| present[*k as usize]).collect();
            let size = (present.len() as u32).next_power_of_two();
            let cut = |member: usize| member * leaves.len() / members;
            let shares: Vec<_> = (0..members).map(|member| cut(member)..cut(member + 1)).collect();
            prop_assert_eq!(together(&leaves, &shares), reference(&leaves, 0..size));
        }
    }

    #[test]
    fn shares_that_are_nodes_need_one_part_each() {
        let leaves: Vec<u32> = (0..64).collect();
        for members in [1, 2, 4, 8, 16, 32, 64] {
            let width = 64 / members;
            let shares = (0..members).map(|member| member * width..(member + 1) * width);
            assert!(spans(&leaves, shares).iter().all(|own| own.len() == 1), "{members}");
        }
    }

    #[test]
    fn the_last_leaf_of_all_has_a_node() {
        let parts = spans(&[u32::MAX - 1, u32::MAX], [0..1, 1..2]);
        assert_eq!(joins(&parts.concat()), [0, 1]);
    }
}
