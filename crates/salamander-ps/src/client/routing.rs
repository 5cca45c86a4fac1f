//! Which ids go where, and where their rows go when they come back.

use crate::partition_of;

/// The ids of one table, by server.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// For each server, the places of its ids in what was asked. Empty with a single server, which
    /// gets everything as it is.
    places: Vec<Vec<u32>>,
}

impl Split {
    /// `owners` are those of all partitions.
    pub(super) fn new(servers: usize, owners: &[u32], ids: &[u64]) -> Self {
        if servers <= 1 {
            return Self::default();
        }
        let share = ids.len() / servers;
        let mut places: Vec<Vec<u32>> = Vec::new();
        places.resize_with(servers, || Vec::with_capacity(share + share / 8 + 16));
        for (place, id) in ids.iter().enumerate() {
            places[owners[usize::from(partition_of(*id))] as usize].push(place as u32);
        }
        Self { places }
    }

    /// The places of a server's ids; none if it has all, in order.
    pub(super) fn of(&self, server: usize) -> Option<&[u32]> {
        self.places.get(server).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_goes_to_its_owner() {
        let owners = crate::placement::owners(3);
        let ids: Vec<u64> = (0..1000).map(|id| id * id).collect();
        let split = Split::new(3, &owners, &ids);
        let mut seen = vec![false; ids.len()];
        for server in 0..3 {
            for place in split.of(server).expect("places") {
                let partition = usize::from(partition_of(ids[*place as usize]));
                assert_eq!(owners[partition] as usize, server);
                assert!(!std::mem::replace(&mut seen[*place as usize], true));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
        assert!(Split::new(1, &owners, &ids).of(0).is_none());
    }
}
