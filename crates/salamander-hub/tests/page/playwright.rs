//! What drives a real browser, for the tests of all pages.

use std::path::PathBuf;

/// Where playwright-core is; says so and returns nothing when it is not there.
pub(crate) fn playwright() -> Option<PathBuf> {
    let folder = std::env::var_os("SALAMANDER_PLAYWRIGHT").map(PathBuf::from);
    let found = folder.filter(|folder| folder.join("playwright-core/package.json").is_file());
    if found.is_none() {
        let reason = "SALAMANDER_PLAYWRIGHT names no folder with playwright-core (npm install playwright-core)";
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        println!("SKIPPED: {reason}");
    }
    found
}
