//! Rows of equal width in large regions that never move: growing copies nothing, and pages that no
//! row touches take no memory.

use bytemuck::Pod;

use crate::memory::Pages;

/// Bytes of a region, unless a row is larger.
const REGION_BYTES: usize = 32 << 20;

/// Bytes of an arena that stay on small pages: a small table should not fill large ones.
pub(crate) const SMALL_BYTES: usize = 4 << 20;

/// Rows of `width` elements, by number.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    regions: Vec<Pages<T>>,
    width: usize,
    /// A region has `2^shift` rows.
    shift: u32,
}

/// How many rows of a width a region holds.
pub(crate) fn rows_of_region<T>(width: usize) -> usize {
    (REGION_BYTES / (width * size_of::<T>()).max(1)).max(1)
}

impl<T: Pod> Arena<T> {
    pub(crate) fn new(width: usize) -> Self {
        Self { regions: Vec::new(), width, shift: rows_of_region::<T>(width).ilog2() }
    }

    /// Makes sure that the rows below a number are there.
    pub(crate) fn cover(&mut self, rows: usize) {
        while self.regions.len() << self.shift < rows {
            let small = if self.regions.is_empty() { SMALL_BYTES } else { 0 };
            self.regions.push(Pages::zeroed(self.width << self.shift, small));
        }
    }

    /// A row.
    #[inline(always)]
    pub(crate) fn row(&self, row: u32) -> &[T] {
        &self.regions[row as usize >> self.shift][self.start(row)..][..self.width]
    }

    /// A row, if it is there.
    #[inline(always)]
    pub(crate) fn get(&self, row: u32) -> Option<&[T]> {
        let start = self.start(row);
        self.regions.get(row as usize >> self.shift)?.get(start..start + self.width)
    }

    /// A row, to write.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, row: u32) -> &mut [T] {
        let start = self.start(row);
        &mut self.regions[row as usize >> self.shift][start..][..self.width]
    }

    /// The first elements of a row, if there are so many.
    #[inline(always)]
    pub(crate) fn first<const COUNT: usize>(&self, row: u32) -> Option<&[T; COUNT]> {
        self.regions.get(row as usize >> self.shift)?.get(self.start(row)..)?.first_chunk()
    }

    #[inline(always)]
    fn start(&self, row: u32) -> usize {
        (row as usize & ((1 << self.shift) - 1)) * self.width
    }
}

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
            assert_eq!(arena.first::<3>(row), Some(&[row as f32; 3]));
            assert_eq!(arena.get(row), Some(arena.row(row)));
        }
        assert_eq!((arena.get(u32::MAX), arena.first::<3>(u32::MAX)), (None, None));
    }
}
