//! Which ids go where, and where their rows go when they come back.

use std::ops::Range;

use crate::{PARTITIONS, partition_of};

/// How partitions are spread over servers: in ranges of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Counts the changes of the number of servers.
    pub epoch: u32,
    /// The number of servers.
    pub servers: usize,
}

impl Map {
    /// The server of a partition.
    pub fn owner(&self, partition: u16) -> usize {
        usize::from(partition) * self.servers / PARTITIONS
    }

    /// The partitions of a server.
    pub fn partitions(&self, server: usize) -> Range<u16> {
        let servers = self.servers.max(1);
        let first = |server: usize| (server * PARTITIONS).div_ceil(servers).min(PARTITIONS) as u16;
        first(server)..first(server + 1)
    }
}

/// The ids of one table, by server.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// For each server, the places of its ids in what was asked. Empty with a single server, which
    /// gets everything as it is.
    places: Vec<Vec<u32>>,
}

impl Split {
    pub(super) fn new(map: &Map, ids: &[u64]) -> Self {
        if map.servers <= 1 {
            return Self::default();
        }
        let share = ids.len() / map.servers;
        let mut places: Vec<Vec<u32>> = Vec::new();
        places.resize_with(map.servers, || Vec::with_capacity(share + share / 8 + 16));
        for (place, id) in ids.iter().enumerate() {
            places[map.owner(partition_of(*id))].push(place as u32);
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
    fn servers_share_all_partitions() {
        for servers in [1, 2, 3, 5, 7, 100, 1024] {
            let map = Map { epoch: 0, servers };
            let mut next = 0;
            for server in 0..servers {
                let range = map.partitions(server);
                assert_eq!(range.start, next);
                next = range.end;
                assert!(range.clone().all(|partition| map.owner(partition) == server));
                assert!((range.len() as i64 - (PARTITIONS / servers) as i64).abs() <= 1);
            }
            assert_eq!(usize::from(next), PARTITIONS);
        }
    }

    #[test]
    fn every_id_goes_to_its_owner() {
        let map = Map { epoch: 0, servers: 3 };
        let ids: Vec<u64> = (0..1000).map(|id| id * id).collect();
        let split = Split::new(&map, &ids);
        let mut seen = vec![false; ids.len()];
        for server in 0..3 {
            for place in split.of(server).expect("places") {
                let id = ids[*place as usize];
                assert_eq!(map.owner(partition_of(id)), server);
                assert!(!std::mem::replace(&mut seen[*place as usize], true));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
        assert!(Split::new(&Map { epoch: 0, servers: 1 }, &ids).of(0).is_none());
    }
}
