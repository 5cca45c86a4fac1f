//! The one hash that puts values into buckets, spelled out here because trained embeddings depend on it: a
//! hash that changed would silently mix up every row of a table.

/// FNV-1a with 64 bits (<https://datatracker.ietf.org/doc/html/rfc9923>). It never changes.
pub(crate) const fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_on(0xcbf2_9ce4_8422_2325, bytes)
}

/// [`fnv1a`] of more bytes, after those that gave the state.
const fn fnv1a_on(mut state: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        state = (state ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    state
}

/// The bucket of a string: FNV-1a of its bytes modulo `buckets`. Zero buckets count as one. This never
/// changes, on any machine and in any version, so it can be used for what is stored.
///
/// ```
/// use salamander_data::preprocess::hash;
///
/// assert_eq!(hash("Zürich", 1000), hash("Zürich".as_bytes(), 1000));
/// assert!((0..1000).contains(&hash("Zürich", 1000)));
/// ```
pub fn hash(value: impl AsRef<[u8]>, buckets: u64) -> i64 {
    // Below 2^63 even when there are more buckets than an i64 counts.
    (fnv1a(value.as_ref()) % buckets.clamp(1, i64::MAX as u64)) as i64
}

/// The bucket of a string in a column: that of `column=value`, so that several columns can share one table and the
/// same string is another row in each. This never changes either.
///
/// ```
/// use salamander_data::preprocess::{hash, hash_of_column};
///
/// assert_eq!(hash_of_column("city", "Bern", 1000), hash("city=Bern", 1000));
/// ```
pub fn hash_of_column(column: &str, value: &str, buckets: u64) -> i64 {
    let state = fnv1a_on(fnv1a(column.as_bytes()), b"=");
    (fnv1a_on(state, value.as_bytes()) % buckets.clamp(1, i64::MAX as u64)) as i64
}

/// The bucket of an integer: that of its decimal text, so that a column has the same buckets whether its
/// file holds text (CSV) or integers (Parquet). This never changes either.
///
/// ```
/// use salamander_data::preprocess::{hash, hash_int};
///
/// assert_eq!(hash_int(-42, 1000), hash("-42", 1000));
/// ```
pub fn hash_int(value: i64, buckets: u64) -> i64 {
    hash(value.to_string(), buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' own list, <http://www.isthe.com/chongo/src/fnv/test_fnv.c>.
    #[test]
    fn published_vectors_hold() {
        let check =
            |text: &str, expected: u64| assert_eq!(fnv1a(text.as_bytes()), expected, "{text}");
        check("", 0xcbf2_9ce4_8422_2325);
        check("a", 0xaf63_dc4c_8601_ec8c);
        check("b", 0xaf63_df4c_8601_f1a5);
        check("f", 0xaf63_db4c_8601_ead9);
        check("fo", 0x0898_5907_b541_d342);
        check("foo", 0xdcb2_7518_fed9_d577);
        check("foob", 0xdd12_0e79_0c25_12af);
        check("fooba", 0xcac1_65af_a2fe_f40a);
        check("foobar", 0x8594_4171_f739_67e8);
    }

    /// Numbers that trained models rely on: never change them.
    #[test]
    fn buckets_never_change() {
        assert_eq!(hash("foobar", 1000), 968);
        assert_eq!((hash("", 10), hash("a", 10), hash_int(7, 10)), (7, 6, 6));
        assert_eq!((hash("a", 0), hash("a", 1)), (0, 0));
        assert!(hash("a", u64::MAX) >= 0);
    }

    #[test]
    fn buckets_are_filled_evenly() {
        for buckets in [16, 100] {
            let mut counts = vec![0; buckets];
            for id in 0..100_000 {
                counts[hash_int(id, buckets as u64) as usize] += 1;
            }
            let mean = 100_000 / buckets;
            assert!(counts.iter().all(|count| (mean * 8 / 10..mean * 12 / 10).contains(count)));
        }
    }
}
