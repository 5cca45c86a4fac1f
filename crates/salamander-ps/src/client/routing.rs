//! Which ids go where, and where their rows go when they come back.

use std::ops::Range;

use salamander_core::push::spread;

use crate::{PARTITIONS, partition_of};

/// How partitions are spread over servers: in equal shares, of which as few as possible move when the
/// number of servers changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Counts the changes of the number of servers.
    pub epoch: u32,
    /// The number of servers.
    pub servers: usize,
}

impl Map {
    /// The server of each partition.
    pub fn owners(&self) -> Vec<u32> {
        // More servers than partitions would have no share.
        spread(PARTITIONS as u32, self.servers.min(PARTITIONS) as u32)
    }

    /// The partitions of a server.
    pub fn partitions(&self, server: usize) -> Vec<Range<u16>> {
        let owners = self.owners();
        let mut ranges: Vec<Range<u16>> = Vec::new();
        for partition in
            (0..PARTITIONS as u16).filter(|p| owners[usize::from(*p)] as usize == server)
        {
            match ranges.last_mut() {
                Some(last) if last.end == partition => last.end += 1,
                _ => ranges.push(partition..partition + 1),
            }
        }
        ranges
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
    fn servers_share_all_partitions() {
        for servers in [1, 2, 3, 5, 7, 100, 1024] {
            let map = Map { epoch: 0, servers };
            let owners = map.owners();
            let mut all = 0;
            for server in 0..servers {
                let mut own = map.partitions(server).into_iter().flatten();
                assert!(own.all(|partition| owners[usize::from(partition)] as usize == server));
                all += map.partitions(server).iter().map(Range::len).sum::<usize>();
            }
            assert_eq!(all, PARTITIONS);
            assert!(map.partitions(servers).is_empty(), "there is no such server");
        }
    }

    #[test]
    fn every_id_goes_to_its_owner() {
        let owners = Map { epoch: 0, servers: 3 }.owners();
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
