//! The features of the facade: each one is in the table of the guide and in that of the crate's front page.

use super::BrokenRule;

pub(super) const MANIFEST: &str = "crates/salamander/Cargo.toml";
/// The pages with a table of features.
pub(super) const PAGES: [&str; 2] =
    ["docs/guide/src/introduction.md", "crates/salamander/src/lib.rs"];

/// Features of the manifest that have no row in a page's table.
pub(super) fn unlisted(manifest: &str, path: &str, page: &str) -> Vec<BrokenRule> {
    let rows: Vec<&str> = rows(page).collect();
    let is_listed = |feature: &str| rows.iter().any(|row| row.contains(&format!("`{feature}`")));
    let failure = |feature: &str| {
        let advice = format!("the feature {feature} of {MANIFEST} has no row in the table: add it");
        BrokenRule::new(path, 1, advice)
    };
    features(manifest).filter(|feature| !is_listed(feature)).map(failure).collect()
}

/// The names of features but for `default`.
fn features(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split_once("[features]\n").map_or("", |(_, rest)| rest);
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter(|line| !line.starts_with([' ', '#', ']']));
    let names = names.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    names.filter(|name| *name != "default")
}

/// The first cells of the table of features.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let lines = page.lines().map(|line| line.trim_start_matches("//!").trim_start());
    let table = lines.skip_while(|line| !line.starts_with("| feature |"));
    table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').nth(1).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: &str = "[features]\n\
        default = [\"cli\"]\n\
        # The command line.\n\
        cli = [\n    \"dep:clap\",\n]\n\
        azure = [\"data/azure\"]\n\
        gcs = []\n\
        \n\
        [dependencies]\n\
        clap = \"4\"\n";

    #[test]
    fn a_feature_that_is_not_listed_is_found() {
        let all = "| feature | brings |\n| --- | --- |\n| `cli` (default) | x |\n| `azure`, `gcs` | y |\n";
        assert!(unlisted(FEATURES, "a.md", all).is_empty());
        let docs: String = all.lines().map(|line| format!("//! {line}\n")).collect();
        assert!(unlisted(FEATURES, "lib.rs", &docs).is_empty());

        let some = "| feature | brings |\n| --- | --- |\n| `cli` | `azure` |\n\n| `gcs` |\n";
        let found = unlisted(FEATURES, "a.md", some);
        let advice: Vec<&str> = found.iter().map(|failure| failure.advice.as_str()).collect();
        assert_eq!(advice.len(), 2, "{advice:?}");
        assert!(advice[0].contains("feature azure of"), "{advice:?}");
        assert!(advice[1].contains("feature gcs of"), "{advice:?}");
    }
}
