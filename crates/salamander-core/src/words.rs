//! Numbers in sentences for people, and the program's own name in what they may type.

use std::ffi::OsString;
use std::path::PathBuf;

/// A number of things, in words that fit it.
///
/// ```
/// use salamander_core::words::count;
///
/// assert_eq!(count(1, "worker"), "1 worker");
/// assert_eq!(count(0, "parameter server"), "0 parameter servers");
/// assert_eq!(count(2, "micro-batch"), "2 micro-batches");
/// assert_eq!(count(2, "epoch"), "2 epochs");
/// ```
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        // The ch of an epoch is a k.
        _ if noun.ends_with("epoch") => format!("{number} {noun}s"),
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

/// This program as somebody may type it: `salamander`, or the way by which a program of one's own was started.
pub fn program_name() -> String {
    typed(std::env::args_os().next())
}

/// Of a plugin of kubectl the name is that of the program that it is.
fn typed(started: Option<OsString>) -> String {
    let path = PathBuf::from(started.unwrap_or_default());
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    match &*name {
        "" | "salamander" | "kubectl-salamander" => "salamander".to_string(),
        _ if path.to_string_lossy().contains(' ') => format!("'{}'", path.display()),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_ones_own_is_typed_as_it_was_started() {
        let check = |started: &str, expected: &str| {
            assert_eq!(typed(Some(started.into())), expected);
        };
        check("salamander", "salamander");
        check("/usr/local/bin/salamander", "salamander");
        check("target/release/salamander", "salamander");
        check("target/release/my_model", "target/release/my_model");
        check("/my models/rings", "'/my models/rings'");
        assert_eq!(typed(None), "salamander");
    }

    #[test]
    fn one_is_singular_and_nothing_is_plural() {
        assert_eq!(count_is(1, "worker"), "1 worker is");
        assert_eq!(count_is(0, "worker"), "0 workers are");
        assert_eq!(count_was(1, "pass"), "1 pass was");
        assert_eq!(count_was(3, "pass"), "3 passes were");
    }
}
