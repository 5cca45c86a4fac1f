//! Curves as columns: chunks of points with their extremes, and a reduction that loses none of these.

/// Points of a full chunk.
pub(crate) const CHUNK: usize = 1024;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredPoint {
    /// Optimizer steps done.
    pub step: i64,
    /// What was measured; may be no number.
    pub value: f64,
}

/// What is known of a chunk without its points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ChunkSummary {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) points: u64,
    /// The smallest and the largest value; the first of equals.
    pub(crate) min: Option<StoredPoint>,
    pub(crate) max: Option<StoredPoint>,
    /// The first step without a number.
    pub(crate) nan: Option<i64>,
}

impl ChunkSummary {
    pub(crate) fn of(points: &[StoredPoint]) -> Self {
        let mut all = CurveBucket::default();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for point in points {
            all.take(*point);
            (first, last) = (first.min(point.step), last.max(point.step));
        }
        let CurveBucket { min, max, nan } = all;
        Self { first, last, points: points.len() as u64, min, max, nan }
    }
}

/// Steps as varints of their differences, values as they are.
pub(crate) fn encode(points: &[StoredPoint]) -> (Vec<u8>, Vec<u8>) {
    let mut steps = Vec::with_capacity(points.len() * 2);
    let mut values = Vec::with_capacity(points.len() * 8);
    let mut before = 0i64;
    for point in points {
        let difference = point.step.wrapping_sub(before);
        // Zigzag: small differences are small numbers, whatever their sign.
        let mut rest = ((difference << 1) ^ (difference >> 63)) as u64;
        while rest >= 0x80 {
            steps.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        steps.push(rest as u8);
        values.extend_from_slice(&point.value.to_le_bytes());
        before = point.step;
    }
    (steps, values)
}

/// The points of a chunk; `None`: these bytes are none.
pub(crate) fn decode(steps: &[u8], values: &[u8]) -> Option<Vec<StoredPoint>> {
    let (values, rest) = values.as_chunks::<8>();
    let mut points = Vec::with_capacity(values.len());
    let (mut at, mut step) = (0, 0i64);
    for value in values {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = *steps.get(at)?;
            at += 1;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        step = step.wrapping_add((number >> 1) as i64 ^ -((number & 1) as i64));
        points.push(StoredPoint { step, value: f64::from_le_bytes(*value) });
    }
    (rest.is_empty() && at == steps.len()).then_some(points)
}

/// Keeps the smallest and the largest value of each stretch of steps, so that a line through them looks like the line
/// through all points.
pub(crate) struct Reducer {
    from: i64,
    width: i64,
    buckets: Vec<CurveBucket>,
}

#[derive(Clone, Copy, Default)]
struct CurveBucket {
    min: Option<StoredPoint>,
    max: Option<StoredPoint>,
    nan: Option<i64>,
}

impl CurveBucket {
    fn take(&mut self, point: StoredPoint) {
        if point.value.is_nan() {
            self.nan.get_or_insert(point.step);
            return;
        }
        if self.min.is_none_or(|min| point.value < min.value) {
            self.min = Some(point);
        }
        if self.max.is_none_or(|max| point.value > max.value) {
            self.max = Some(point);
        }
    }
}

impl Reducer {
    /// For the steps `from..=to`, in so many stretches at most.
    pub(crate) fn new(from: i64, to: i64, stretches: usize) -> Self {
        let steps = i128::from(to) - i128::from(from) + 1;
        let stretches = stretches.clamp(1, 1 << 16) as i128;
        let width = ((steps + stretches - 1) / stretches).clamp(1, i64::MAX.into());
        let buckets = ((steps + width - 1) / width).clamp(1, stretches) as usize;
        Self { from, width: width as i64, buckets: vec![CurveBucket::default(); buckets] }
    }

    fn place(&self, step: i64) -> Option<usize> {
        let place = (i128::from(step) - i128::from(self.from)) / i128::from(self.width);
        let inside = step >= self.from && place < self.buckets.len() as i128;
        inside.then_some(place as usize)
    }

    /// Takes a chunk by what is known of it; `false`: it reaches over several stretches, and its points are needed.
    pub(crate) fn take_summary(&mut self, summary: &ChunkSummary) -> bool {
        let (first, last) = (self.place(summary.first), self.place(summary.last));
        let (Some(place), true) = (first, first == last) else { return false };
        let bucket = &mut self.buckets[place];
        summary.min.into_iter().chain(summary.max).for_each(|point| bucket.take(point));
        if let Some(step) = summary.nan {
            bucket.take(StoredPoint { step, value: f64::NAN });
        }
        true
    }

    /// Takes a point; one outside of the steps is left out.
    pub(crate) fn take(&mut self, point: StoredPoint) {
        if let Some(place) = self.place(point.step) {
            self.buckets[place].take(point);
        }
    }

    /// What is left: points of the curve in the order of their steps.
    pub(crate) fn finish(self) -> Vec<StoredPoint> {
        let mut kept: Vec<StoredPoint> = Vec::new();
        for CurveBucket { min, max, nan } in self.buckets {
            let nan = nan.map(|step| StoredPoint { step, value: f64::NAN });
            let mut of_bucket: Vec<StoredPoint> = min.into_iter().chain(max).chain(nan).collect();
            of_bucket.sort_by_key(|point| point.step);
            of_bucket.dedup_by_key(|point| (point.step, point.value.to_bits()));
            kept.extend(of_bucket);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points() -> impl Strategy<Value = Vec<StoredPoint>> {
        let value = prop_oneof![any::<f64>(), Just(f64::NAN), -10.0..10.0];
        let point = (any::<i64>(), value).prop_map(|(step, value)| StoredPoint { step, value });
        prop::collection::vec(point, 0..200)
    }

    fn bits(points: &[StoredPoint]) -> Vec<(i64, u64)> {
        points.iter().map(|point| (point.step, point.value.to_bits())).collect()
    }

    proptest! {
        #[test]
        fn chunks_come_back_as_they_were(points in points()) {
            let (steps, values) = encode(&points);
            prop_assert_eq!(bits(&decode(&steps, &values).expect("whole")), bits(&points));
        }

        #[test]
        fn any_bytes_are_points_or_none(steps: Vec<u8>, values: Vec<u8>) {
            let _ = decode(&steps, &values);
        }

        #[test]
        fn extremes_survive(values in prop::collection::vec(-1e3..1e3, 1..3000), stretches in 1usize..300) {
            let points: Vec<StoredPoint> = values
                .iter()
                .enumerate()
                .map(|(step, value)| StoredPoint { step: step as i64, value: *value })
                .collect();
            let mut reducer = Reducer::new(0, points.len() as i64 - 1, stretches);
            for chunk in points.chunks(16) {
                if !reducer.take_summary(&ChunkSummary::of(chunk)) {
                    chunk.iter().for_each(|point| reducer.take(*point));
                }
            }
            let width = reducer.width;
            let kept = reducer.finish();
            prop_assert!(kept.len() <= stretches * 2);
            prop_assert!(kept.is_sorted_by_key(|point| point.step));
            for stretch in points.chunk_by(|a, b| a.step / width == b.step / width) {
                let of = |points: &[StoredPoint]| {
                    let all = ChunkSummary::of(points);
                    (all.min.map(|p| p.value), all.max.map(|p| p.value))
                };
                let same = |point: &&StoredPoint| point.step / width == stretch[0].step / width;
                let left: Vec<StoredPoint> = kept.iter().filter(same).copied().collect();
                prop_assert_eq!(of(&left), of(stretch));
            }
        }
    }

    #[test]
    fn what_is_no_number_is_kept_as_a_gap() {
        let points =
            [(1, 1.0), (2, f64::NAN), (3, 3.0)].map(|(step, value)| StoredPoint { step, value });
        let mut reducer = Reducer::new(0, 9, 1);
        assert!(reducer.take_summary(&ChunkSummary::of(&points)));
        assert_eq!(bits(&reducer.finish()), bits(&points));
    }
}
