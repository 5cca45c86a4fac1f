//! Bytes that are nearly right, for tests of decoders: what a fuzz target begins with, changed at random. A fuzzer
//! finds more; this needs none, and runs with everything else.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many are tried if nothing else is said.
const EXECUTIONS: u64 = 20_000;

/// Changes of one seed at most.
const CHANGES: usize = 6;

/// Gives the files of a folder to `entry`, and then mutations of them, for so many seconds if that is said. The same
/// mutations each time. Returns how many there were.
pub fn try_mutations(
    seeds: &Path,
    seconds: Option<&str>,
    mut entry: impl FnMut(&[u8]),
) -> io::Result<u64> {
    let seconds = seconds.map(|text| text.parse().map_err(io::Error::other)).transpose()?;
    let (longest, begun) = (seconds.map(Duration::from_secs), Instant::now());
    let mut paths: Vec<_> =
        std::fs::read_dir(seeds)?.map(|file| Ok(file?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    let seeds = paths.iter().map(std::fs::read).collect::<io::Result<Vec<_>>>()?;
    seeds.iter().for_each(|seed| entry(seed));
    let (mut random, mut executions) = (Random(1), 0);
    while !seeds.is_empty() && longest.map_or(executions < EXECUTIONS, |end| begun.elapsed() < end)
    {
        let (one, other) = (random.below(seeds.len()), random.below(seeds.len()));
        entry(&mutate(&seeds[one], &seeds[other], &mut random));
        executions += 1;
    }
    Ok(executions)
}

/// SplitMix64, which this crate has from nowhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Bits flip, bytes are lost, come twice or come from another seed, and numbers become large.
fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(CHANGES) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(40)).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let from = random.below(other.len() + 1);
                let to = (from + random.below(40)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let large = [u8::MAX; 8];
                bytes.splice(at..at, large[..random.below(9)].iter().copied());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_come_first_and_mutations_are_the_same_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("b"), b"second seed").expect("written");
        std::fs::write(folder.path().join("a"), b"first").expect("written");
        let run = || {
            let mut tried = Vec::new();
            let executions = try_mutations(folder.path(), None, |bytes| tried.push(bytes.to_vec()));
            assert_eq!(executions.expect("read"), EXECUTIONS);
            tried
        };
        let tried = run();
        assert_eq!(tried[..2], [b"first".to_vec(), b"second seed".to_vec()]);
        assert_eq!(tried, run());
        let others = tried[2..].iter().filter(|bytes| **bytes != tried[0] && **bytes != tried[1]);
        assert!(others.count() as u64 > EXECUTIONS / 2);
    }

    #[test]
    fn a_wrong_number_of_seconds_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(try_mutations(folder.path(), Some("soon"), |_| {}).is_err());
    }
}
