//! The tests in two tiers: what README runs, and what takes minutes more.

use std::path::Path;

/// README's command; with `all` also the long tests. One choice of packages for both, so that nothing heavy is built
/// twice.
pub(crate) fn run(root: &Path, all: bool) -> anyhow::Result<()> {
    crate::cargo(root, &["test", "--workspace"], &[])?;
    if all {
        let long = ["test", "--workspace", "--features", "tests/long", "--test", "integration"];
        crate::cargo(root, &[&long[..], &["--", "long::"]].concat(), &[])?;
    }
    Ok(())
}
