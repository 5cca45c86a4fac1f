//! Which partitions a server holds: equal shares, of which as few as possible move when the number of servers changes.

use std::ops::Range;

use salamander_core::asynchronous::spread;

use crate::PARTITIONS;

/// The server of each partition.
pub(crate) fn owners(servers: usize) -> Vec<u32> {
    // More servers than partitions would have no share.
    spread(PARTITIONS as u32, servers.min(PARTITIONS) as u32)
}

/// The partitions of one of so many servers; none for a number that no server has.
pub fn partitions_of(server: usize, servers: usize) -> Vec<Range<u16>> {
    let owners = owners(servers);
    ranges((0..PARTITIONS as u16).filter(|p| owners[usize::from(*p)] as usize == server))
}

/// Partitions in order as ranges.
pub(crate) fn ranges(partitions: impl IntoIterator<Item = u16>) -> Vec<Range<u16>> {
    let mut ranges: Vec<Range<u16>> = Vec::new();
    for partition in partitions {
        match ranges.last_mut() {
            Some(last) if last.end == partition => last.end += 1,
            _ => ranges.push(partition..partition + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_share_all_partitions() {
        for servers in [1, 2, 3, 5, 7, 100, 1024] {
            let owners = owners(servers);
            let mut all = 0;
            for server in 0..servers {
                let own = partitions_of(server, servers);
                all += own.iter().map(Range::len).sum::<usize>();
                let mut own = own.into_iter().flatten();
                assert!(own.all(|partition| owners[usize::from(partition)] as usize == server));
            }
            assert_eq!(all, PARTITIONS);
            assert!(partitions_of(servers, servers).is_empty(), "there is no such server");
        }
    }
}
