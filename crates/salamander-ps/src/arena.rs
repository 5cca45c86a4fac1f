//! Rows of equal width in large regions that never move: growing copies nothing, and pages that no
//! row touches take no memory.

use crate::memory::{HUGE, advise_huge_pages};

/// Bytes of a region, unless a row is larger.
const REGION_BYTES: usize = 32 << 20;

/// Bytes of an arena that stay on small pages: a small table should not fill large ones.
const SMALL_BYTES: usize = 4 << 20;

/// Rows of `width` elements, by number.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    regions: Vec<Region<T>>,
    width: usize,
    /// A region has `2^shift` rows.
    shift: u32,
}

/// An array whose rows begin where a large page does: a row of whole lines crosses none.
#[derive(Debug)]
struct Region<T> {
    array: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> Arena<T> {
    pub(crate) fn new(width: usize) -> Self {
        let rows = REGION_BYTES / (width * size_of::<T>()).max(1);
        Self { regions: Vec::new(), width, shift: rows.max(1).ilog2() }
    }

    /// Makes sure that the rows below a number are there.
    pub(crate) fn cover(&mut self, rows: usize)
    where
        Vec<T>: Zeroed,
    {
        while self.regions.len() << self.shift < rows {
            let mut array: Vec<T> = Vec::zeroed((self.width << self.shift) + HUGE / size_of::<T>());
            let start = array.as_ptr().align_offset(HUGE);
            let skipped = if self.regions.is_empty() { SMALL_BYTES / size_of::<T>() } else { 0 };
            let large = start.saturating_add(skipped).min(array.len());
            advise_huge_pages(&mut array[large..]);
            self.regions.push(Region { array, start });
        }
    }

    /// A row.
    #[inline(always)]
    pub(crate) fn row(&self, row: u32) -> &[T] {
        let region = &self.regions[row as usize >> self.shift];
        let start = region.start + self.start(row);
        &region.array[start..start + self.width]
    }

    /// A row, to write.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, row: u32) -> &mut [T] {
        let start = self.start(row);
        let region = &mut self.regions[row as usize >> self.shift];
        let start = region.start + start;
        &mut region.array[start..start + self.width]
    }

    #[inline(always)]
    fn start(&self, row: u32) -> usize {
        (row as usize & ((1 << self.shift) - 1)) * self.width
    }
}

/// Vectors of zeros that the system hands out untouched; only `vec!` of a literal type knows how.
pub(crate) trait Zeroed {
    fn zeroed(length: usize) -> Self;
}

macro_rules! zeroed {
    ($($type:ty),*) => {
        $(impl Zeroed for Vec<$type> {
            fn zeroed(length: usize) -> Self {
                vec![<$type>::default(); length]
            }
        })*
    };
}

zeroed!(f32, u16, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_place_while_the_arena_grows() {
        let mut arena = Arena::<f32>::new(REGION_BYTES / 16);
        for row in 0..9 {
            arena.cover(row as usize + 1);
            arena.row_mut(row).fill(row as f32);
        }
        for row in 0..9 {
            assert!(arena.row(row).iter().all(|value| *value == row as f32));
        }
    }
}
