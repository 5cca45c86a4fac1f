//! Numbers in sentences for people.

/// A number of things, in words that fit it.
///
/// ```
/// use salamander_core::words::count;
///
/// assert_eq!(count(1, "worker"), "1 worker");
/// assert_eq!(count(0, "parameter server"), "0 parameter servers");
/// assert_eq!(count(2, "micro-batch"), "2 micro-batches");
/// ```
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') || noun.ends_with("ch") => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// The same, with the verb that fits: `1 worker is`, `2 workers are`.
pub fn count_is(number: u64, noun: &str) -> String {
    format!("{} {}", count(number, noun), if number == 1 { "is" } else { "are" })
}

/// The same for what is past: `1 worker was`, `2 workers were`.
pub fn count_was(number: u64, noun: &str) -> String {
    format!("{} {}", count(number, noun), if number == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_nothing_is_plural() {
        assert_eq!(count_is(1, "worker"), "1 worker is");
        assert_eq!(count_is(0, "worker"), "0 workers are");
        assert_eq!(count_was(1, "pass"), "1 pass was");
        assert_eq!(count_was(3, "pass"), "3 passes were");
    }
}
