//! The keys that decide a shuffle's order: 64 bits of the seed and the row, on every machine the same. They spread
//! rows; they hide nothing, so that they may be cheap.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, Rows, SortField};

use crate::flow::Error;

/// Odd, and without a pattern: the golden ratio, and a prime that spreads well.
const LENGTH: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;

/// Rows as bytes that are equal where rows are, and as keys.
pub(crate) struct RowKeys {
    converter: RowConverter,
    seed: u64,
}

impl RowKeys {
    pub(crate) fn new(schema: &SchemaRef, seed: u64) -> Result<Self, Error> {
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        Ok(Self { converter: RowConverter::new(fields.collect())?, seed })
    }

    /// Rows as bytes, which decide where keys are equal.
    pub(crate) fn rows(&self, batch: &RecordBatch) -> Result<Rows, Error> {
        Ok(self.converter.convert_columns(batch.columns())?)
    }

    /// The key of each row.
    pub(crate) fn keys(&self, batch: &RecordBatch) -> Result<Vec<u64>, Error> {
        let rows = self.rows(batch)?;
        Ok(rows.iter().map(|row| key_of(self.seed, row.as_ref())).collect())
    }
}

/// The bucket of a key: keys of a bucket are all below those of the next.
pub(crate) fn bucket_of(key: u64, buckets: u64) -> u64 {
    ((u128::from(key) * u128::from(buckets)) >> 64) as u64
}

/// Folded products of eight bytes at a time; whoever knows the rows could have them meet.
fn key_of(seed: u64, row: &[u8]) -> u64 {
    let mut state = spread(seed ^ (row.len() as u64).wrapping_mul(LENGTH));
    let (words, rest) = row.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    spread(fold(state ^ u64::from_le_bytes(last)))
}

fn fold(state: u64) -> u64 {
    let product = u128::from(state) * u128::from(FOLD);
    (product as u64) ^ ((product >> 64) as u64)
}

/// SplitMix64's last step: each bit of the result depends on all of the state.
fn spread(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_bucket_are_below_those_of_the_next() {
        for buckets in [1, 3, 16] {
            let keys = [0, 1, u64::MAX / 3, u64::MAX / 2, u64::MAX - 1, u64::MAX];
            let found: Vec<u64> = keys.into_iter().map(|key| bucket_of(key, buckets)).collect();
            assert!(found.is_sorted() && found[5] == buckets - 1 && found[0] == 0, "{found:?}");
        }
    }

    #[test]
    fn keys_stay_what_they_are() {
        // Else the same flow would give another order on another machine, or tomorrow.
        let rows = [&b""[..], b"a", b"12345678", b"a longer row, of 25 bytes"];
        let expected = [
            0x3533_6100_a561_19f1,
            0x53d2_5451_2777_eb8f,
            0x5e6d_50f9_4536_ac51,
            0x0478_4c48_7546_d98c,
        ];
        assert_eq!(rows.map(|row| key_of(7, row)), expected);
    }

    #[test]
    fn rows_that_are_nearly_alike_are_spread_evenly_and_seeds_order_them_otherwise() {
        // As numbers are in rows: a byte that says that there is one, and the number with its highest byte first.
        let row = |id: u64| [&[1][..], &(id ^ (1 << 63)).to_be_bytes(), &[1, 0, 0, 0, 7]].concat();
        let (buckets, rows) = (16u64, 16_000u64);
        for seed in [0, 1, 2, 1 << 40] {
            let mut counts = vec![0u64; buckets as usize];
            let keys: Vec<u64> = (0..rows).map(|id| key_of(seed, &row(id))).collect();
            keys.iter().for_each(|key| counts[bucket_of(*key, buckets) as usize] += 1);
            // Chance alone gives 1,000 with a deviation of 31.
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{seed}: {counts:?}");
            // Of two that follow each other the first is the smaller one in half of all cases.
            let rising = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((7_700..8_300).contains(&rising), "{seed}: {rising}");
        }
        let all = |seed| (0..1000).map(|id| key_of(seed, &row(id))).collect::<Vec<u64>>();
        assert!(all(1).iter().zip(all(2)).all(|(one, two)| *one != two));
    }
}
