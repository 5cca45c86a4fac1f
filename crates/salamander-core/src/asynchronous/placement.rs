//! Which server holds which partition: shares that differ by one at most, and no partition moves that need not when
//! the number of servers changes.

/// The server of each of so many partitions, by the two numbers alone: nobody has to be told.
///
/// Servers are added one by one, and each takes its share from those that have most. So between any two numbers only
/// what the servers hold that come or go moves, which is the least that leaves equal shares.
///
/// ```
/// use salamander_core::asynchronous::spread;
/// assert_eq!(spread(6, 1), [0, 0, 0, 0, 0, 0]);
/// assert_eq!(spread(6, 2), [0, 0, 0, 1, 1, 1]);
/// assert_eq!(spread(6, 3), [0, 0, 2, 1, 1, 2]);
/// ```
pub fn spread(partitions: u32, servers: u32) -> Vec<u32> {
    let mut held: Vec<Vec<u32>> = vec![(0..partitions).collect()];
    for newest in 1..servers.max(1) {
        let mut share = Vec::new();
        for _ in 0..partitions / (newest + 1) {
            // The last of those that have most, so that the first ones keep the larger shares.
            let most = held.iter_mut().max_by_key(|held| held.len());
            share.extend(most.and_then(Vec::pop));
        }
        share.sort_unstable();
        held.push(share);
    }
    let mut owners = vec![0; partitions as usize];
    for (server, held) in (0..).zip(held) {
        held.into_iter().for_each(|partition| owners[partition as usize] = server);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many partitions each server has.
    fn shares(owners: &[u32], servers: u32) -> Vec<usize> {
        (0..servers).map(|server| owners.iter().filter(|owner| **owner == server).count()).collect()
    }

    #[test]
    fn shares_are_equal_but_for_one() {
        for partitions in [1, 7, 64, 1024] {
            for servers in [1, 2, 3, 4, 5, 7, 12, 100, 1024, 1500] {
                let shares = shares(&spread(partitions, servers), servers);
                let (least, most) = (shares.iter().min(), shares.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
                assert_eq!(shares.iter().sum::<usize>(), partitions as usize);
            }
        }
    }

    #[test]
    fn only_what_must_move_moves() {
        for partitions in [64u32, 1000, 1024] {
            for (fewer, more) in
                (1..10).flat_map(|fewer| (fewer..16).map(move |more| (fewer, more)))
            {
                let (before, after) = (spread(partitions, fewer), spread(partitions, more));
                let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
                // Equal shares leave at most so many with those that stay.
                let kept = fewer * (partitions / more) + fewer.min(partitions % more);
                assert_eq!(moved.count() as u32, partitions - kept, "{fewer} and {more}");
            }
        }
    }
}
