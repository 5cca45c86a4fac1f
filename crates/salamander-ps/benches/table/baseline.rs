//! The table that most servers have: a map, a lock for each key and a vector on the heap for each
//! row. Its hash is as fast as ours, so that the difference is where rows are and who may touch them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use salamander_core::seed::mix;

/// Rows by id.
#[derive(Default)]
pub(crate) struct Locked {
    rows: HashMap<u64, Mutex<Vec<f32>>, BuildHasherDefault<Mixer>>,
}

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
