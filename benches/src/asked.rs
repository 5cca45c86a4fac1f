//! Which parts of a bench somebody asked for. One file of plain std, like `record.rs`, for benches that take it in by
//! its path.

/// The words behind `--bench`.
pub(crate) struct AskedParts(Vec<String>);

impl AskedParts {
    /// Nothing where `cargo test --all-targets` starts benches as well, which only has to show that they build.
    pub(crate) fn read() -> Option<Self> {
        let (flags, parts): (Vec<String>, Vec<String>) =
            std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
        flags.iter().any(|flag| flag == "--bench").then_some(Self(parts))
    }

    /// Whether a part was asked for: each is, where none was named.
    pub(crate) fn has(&self, part: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|asked| asked == part)
    }
}
