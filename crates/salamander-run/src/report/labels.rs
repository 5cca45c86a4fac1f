//! Makes counts and names short enough for the room that a picture has for them.

/// The count in at most `limit` characters: as it is, else as `1.2k`, else as `12k`, and so on.
pub(super) fn shorten(count: u64, limit: usize) -> Option<String> {
    let plain = count.to_string();
    if plain.len() <= limit {
        return Some(plain);
    }
    for (unit, suffix) in [(1e3, 'k'), (1e6, 'M'), (1e9, 'G'), (1e12, 'T'), (1e15, 'P')] {
        let value = count as f64 / unit;
        for decimals in [1, 0] {
            // One decimal is too long from 9.95 on, and below 0.95 the unit is too large.
            let sensible = value >= 0.95 && (decimals == 0 || value < 9.95);
            let text = format!("{value:.decimals$}{suffix}");
            if sensible && text.len() <= limit {
                return Some(text);
            }
        }
    }
    None
}

/// The name in at most `limit` characters, the last two of which tell that it was longer.
pub(super) fn cut(name: &str, limit: usize) -> String {
    if name.chars().count() <= limit {
        return name.to_owned();
    }
    name.chars().take(limit - 2).chain("..".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shortened_to_what_fits() {
        let check = |count, limit, expected: Option<&str>| {
            assert_eq!(shorten(count, limit).as_deref(), expected, "{count} in {limit}");
        };
        check(0, 1, Some("0"));
        check(9_999, 4, Some("9999"));
        check(9_999, 3, Some("10k"));
        check(1_234, 3, Some("1k"));
        check(12_345, 4, Some("12k"));
        check(1_234_567, 4, Some("1.2M"));
        check(999_999, 4, Some("1.0M"));
        check(999_999, 3, Some("1M"));
        check(u64::MAX, 6, Some("18447P"));
        check(123, 2, None);
        check(5, 0, None);
    }

    #[test]
    fn long_names_are_cut_and_say_so() {
        assert_eq!(cut("ankle boot", 10), "ankle boot");
        assert_eq!(cut("abcdefghijk", 10), "abcdefgh..");
    }
}
