//! How the nodes of all members become one sum: the same at each of them, since it follows from the leaves and the
//! number of members alone.

use salamander_core::tree::{joins, spans};
use salamander_net::Fold;

use crate::Error;
use crate::exchange::Place;

/// The order of a sum over all members.
pub(super) struct TreeFold {
    /// Of values.
    pub(super) order: Fold,
    /// Of anything else.
    pub(super) joins: Vec<u32>,
}

impl TreeFold {
    /// Over these leaves, shared by so many members.
    pub(super) fn of(leaves: &[u32], size: usize) -> Result<Self, Error> {
        let shares = (0..size).map(|rank| Place { rank, size }.share(leaves.len()));
        let nodes = spans(leaves, shares);
        let joins = joins(&nodes.concat());
        let order = Fold::new(nodes.iter().map(Vec::len).collect(), joins.clone());
        let order = order.map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Self { order, joins })
    }

    /// The nodes of all members in a row, if each has as many as planned.
    pub(super) fn matched<N>(
        &self,
        members: impl Iterator<Item = Vec<N>>,
    ) -> Result<Vec<N>, Error> {
        let mut all = Vec::with_capacity(self.joins.len());
        for (rank, nodes) in members.enumerate() {
            let (found, planned) = (nodes.len(), self.order.parts(rank));
            if found != planned {
                let reason = format!("worker {rank} has {found} sums of the step, not {planned}");
                return Err(Error::Invalid(reason));
            }
            all.extend(nodes);
        }
        Ok(all)
    }
}
