//! Milliseconds per sum and CPU seconds per gigabyte, by size and transport.

use crate::median;
use crate::process::{Gloo, MemberProcess, all, ours};

/// Bytes of a bucket, and sums per batch.
const SIZES: [(usize, usize); 4] =
    [(64 << 10, 2000), (1 << 20, 300), (25 << 20, 16), (64 << 20, 6)];
const BATCHES: usize = 7;

/// What was measured for one size.
pub(crate) struct Speed {
    pub(crate) bytes: usize,
    pub(crate) members: usize,
    pub(crate) ways: Vec<Way>,
}

/// What was measured for one transport.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) milliseconds: f64,
    pub(crate) cpu_per_gb: f64,
}

impl Speed {
    pub(crate) fn way(&self, name: &str) -> Option<&Way> {
        self.ways.iter().find(|way| way.name == name)
    }
}

/// Members that are connected and wait for work.
struct BenchGroup {
    name: &'static str,
    members: Vec<MemberProcess>,
}

/// Measures two, three and four members. Ways that end in `-tree` sum in the tree over eight slices, the others in the
/// order of ranks; three members have no whole nodes of it.
pub(crate) fn measure(gloo: Option<&Gloo>) -> Vec<Speed> {
    let mut speeds = Vec::new();
    let both = &["shm", "shm-tree", "tcp", "tcp-tree"][..];
    let two = &["shm", "shm-tree", "tcp", "tcp-tree", "bf16", "tls", "tls-tree"][..];
    for (size, names) in [(2, two), (3, both), (4, both)] {
        let mut groups: Vec<BenchGroup> = names.iter().map(|name| connected(name, size)).collect();
        if let Some(gloo) = gloo.filter(|_| size != 3) {
            groups.push(BenchGroup { name: "gloo", members: gloo.start(size) });
        }
        for (bytes, ops) in SIZES {
            eprintln!("{size} members, {} KB ...", bytes >> 10);
            speeds.push(measure_size(&mut groups, bytes, ops.div_ceil(size / 2)));
        }
    }
    speeds
}

fn connected(name: &'static str, size: usize) -> BenchGroup {
    let (mut members, endpoints) = ours(size, name);
    let endpoints = endpoints.join(" ");
    all(&mut members, |rank| format!("join 1 {name} {rank} {endpoints}"));
    BenchGroup { name, members }
}

/// The groups take turns.
fn measure_size(groups: &mut [BenchGroup], bytes: usize, ops: usize) -> Speed {
    let mut batches = vec![Vec::new(); groups.len()];
    for batch in 0..BATCHES {
        for (group, batches) in groups.iter_mut().zip(&mut batches) {
            let warmup = if batch == 0 { ops } else { ops.div_ceil(10) };
            let order = if group.name.ends_with("-tree") { "tree" } else { "ranks" };
            let len = bytes / 4;
            let answers =
                all(&mut group.members, |_| format!("reduce {len} {warmup} {ops} {order}"));
            batches.push(figures(&answers, bytes, ops));
        }
    }
    let ways = groups
        .iter()
        .zip(batches)
        .map(|(group, batches)| Way {
            name: group.name,
            milliseconds: median(batches.iter().map(|batch| batch.0).collect()),
            cpu_per_gb: median(batches.iter().map(|batch| batch.1).collect()),
        })
        .collect();
    Speed { bytes, members: groups[0].members.len(), ways }
}

/// Milliseconds per sum, and CPU seconds of all members per gigabyte of a bucket.
fn figures(answers: &[String], bytes: usize, ops: usize) -> (f64, f64) {
    let mut seconds = 0f64;
    let mut cpu = 0f64;
    for answer in answers {
        let (elapsed, used) = answer.split_once(' ').expect("two numbers");
        seconds = seconds.max(elapsed.parse().expect("a number"));
        cpu += used.parse::<f64>().expect("a number");
    }
    (seconds * 1e3 / ops as f64, cpu / (bytes as f64 * ops as f64 / 1e9))
}
