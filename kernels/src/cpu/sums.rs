//! Long sums: in f32 side by side, taken over into f64 every few thousand values.

/// Sums that run side by side; the order of a sum depends on the number of values alone.
const LANES: usize = 32;

/// Values after which sums in f32 are taken over into f64.
const EXACT: usize = 1 << 12;

/// Two sums over many values.
pub(super) struct Sums {
    lanes: [[f32; LANES]; 2],
    totals: [[f64; LANES]; 2],
    values: usize,
}

impl Default for Sums {
    fn default() -> Self {
        Self { lanes: [[0.0; LANES]; 2], totals: [[0.0; LANES]; 2], values: 0 }
    }
}

impl Sums {
    /// Adds what `terms` makes of each place of the slices, which have the length of the first.
    #[inline(always)]
    pub(super) fn add<const N: usize>(
        &mut self,
        values: [&[f32]; N],
        terms: impl Fn([f32; N]) -> (f32, f32),
    ) {
        let len = values[0].len();
        for start in (0..len).step_by(EXACT) {
            let end = len.min(start + EXACT);
            self.add_few(values.map(|values| &values[start..end]), &terms);
        }
    }

    /// Not more than may be added in f32.
    #[inline(always)]
    fn add_few<const N: usize>(
        &mut self,
        values: [&[f32]; N],
        terms: impl Fn([f32; N]) -> (f32, f32),
    ) {
        let len = values[0].len();
        let [mut first, mut second] = self.lanes;
        let whole = len / LANES * LANES;
        for start in (0..whole).step_by(LANES) {
            let block: [&[f32; LANES]; N] =
                values.map(|values| values[start..].first_chunk().expect("a whole block is left"));
            for lane in 0..LANES {
                let (a, b) = terms(block.map(|block| block[lane]));
                first[lane] += a;
                second[lane] += b;
            }
        }
        for (lane, place) in (whole..len).enumerate() {
            let (a, b) = terms(values.map(|values| values[place]));
            first[lane] += a;
            second[lane] += b;
        }
        self.lanes = [first, second];
        self.values += len;
        if self.values >= EXACT {
            self.take_over();
        }
    }

    fn take_over(&mut self) {
        for (totals, lanes) in self.totals.iter_mut().zip(&mut self.lanes) {
            for (total, lane) in totals.iter_mut().zip(lanes) {
                *total += f64::from(std::mem::take(lane));
            }
        }
        self.values = 0;
    }

    /// Both sums.
    pub(super) fn total(mut self) -> (f64, f64) {
        self.take_over();
        (self.totals[0].iter().sum(), self.totals[1].iter().sum())
    }
}
