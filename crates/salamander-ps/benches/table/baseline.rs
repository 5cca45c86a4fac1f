//! The tables that most servers have: a map, a lock for each key and a vector on the heap for each
//! row; and the same with links of least recent use, as PERSIA keeps them. Hashes are as fast as ours,
//! so that the difference is where rows are and who may touch them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use salamander_core::seed::mix;

/// Rows by id.
#[derive(Default)]
pub(crate) struct Locked {
    rows: Map<Mutex<Vec<f32>>>,
}

type Map<T> = HashMap<u64, T, BuildHasherDefault<Mixer>>;

#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mix(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id);
    }
}

impl Locked {
    pub(crate) fn insert(&mut self, id: u64, row: Vec<f32>) {
        self.rows.insert(id, Mutex::new(row));
    }

    pub(crate) fn gather(&self, ids: &[u64], out: &mut [f32]) {
        let dim = out.len() / ids.len();
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(dim)) {
            if let Some(row) = self.rows.get(id) {
                out.copy_from_slice(&row.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Shards of an evicting map; PERSIA has about as many.
const SHARDS: usize = 128;
/// No neighbour.
const END: u32 = u32::MAX;

/// Rows by id, in shards whose lock is taken for each key; a row that was read becomes the last one to
/// be dropped. PERSIA moves an entry to another place of its list for that and asks the map a second
/// time; here only links change.
pub(crate) struct Evicting {
    shards: Vec<Mutex<BaselineShard>>,
}

struct BaselineShard {
    places: Map<u32>,
    nodes: Vec<Node>,
    oldest: u32,
    newest: u32,
}

struct Node {
    older: u32,
    newer: u32,
    row: Vec<f32>,
}

impl Evicting {
    pub(crate) fn new() -> Self {
        let shard = || BaselineShard {
            places: Map::default(),
            nodes: Vec::new(),
            oldest: END,
            newest: END,
        };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect() }
    }

    pub(crate) fn insert(&mut self, id: u64, row: Vec<f32>) {
        let mut shard = self.shard(id);
        let place = shard.nodes.len() as u32;
        shard.nodes.push(Node { older: END, newer: END, row });
        shard.places.insert(id, place);
        shard.append(place);
    }

    pub(crate) fn gather(&self, ids: &[u64], out: &mut [f32]) {
        let dim = out.len() / ids.len();
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(dim)) {
            let mut shard = self.shard(*id);
            if let Some(place) = shard.places.get(id).copied() {
                shard.refresh(place);
                out.copy_from_slice(&shard.nodes[place as usize].row);
            }
        }
    }

    fn shard(&self, id: u64) -> std::sync::MutexGuard<'_, BaselineShard> {
        // Not the bits that the map takes.
        let number = (mix(id) >> 40) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BaselineShard {
    fn refresh(&mut self, place: u32) {
        if self.newest == place {
            return;
        }
        let Node { older, newer, .. } = self.nodes[place as usize];
        match older {
            END => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        // The newest has returned above, so that there is a newer one.
        self.nodes[newer as usize].older = older;
        self.append(place);
    }

    fn append(&mut self, place: u32) {
        let last = std::mem::replace(&mut self.newest, place);
        let node = &mut self.nodes[place as usize];
        (node.older, node.newer) = (last, END);
        match last {
            END => self.oldest = place,
            last => self.nodes[last as usize].newer = place,
        }
    }
}
