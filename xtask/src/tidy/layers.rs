//! Keeps the light crates light: which packages a crate must not see, however deep.

use super::BrokenRule;

/// Every other crate of ours.
const OURS: &str = "salamander";

/// Each crate that hides from something, and what it hides from; `ARCHITECTURE.md` has the same as a table.
pub(super) const MUST_NOT_SEE: &[(&str, &[&str])] = &[
    ("salamander-core", &["tokio", "burn", "tonic", "kube"]),
    ("salamander-data", &["burn", "tonic", "kube"]),
    ("salamander", &["clap", "ureq", "png", "indicatif", "tracing-subscriber", "kube"]),
    ("salamander-files", &[OURS, "tokio", "burn", "tonic", "kube", "clap"]),
    ("salamander-run", &["clap", "ureq", "png", "indicatif", "tracing-subscriber", "kube"]),
    ("salamander-derive", &[OURS, "burn", "tokio", "tonic", "kube", "clap"]),
    ("salamander-net", &["burn", "tokio", "tonic", "kube"]),
    ("salamander-proto", &["burn", "kube"]),
    ("salamander-ps", &["burn", "tokio", "tonic", "kube"]),
    ("salamander-flow", &["burn", "kube", "clap", "tokio", "tonic", "datafusion"]),
    ("salamander-hub", &["burn", "kube", "clap", "salamander-run"]),
    ("salamander-search", &["tokio", "burn", "tonic", "kube", "rusqlite"]),
    ("salamander-serve", &["burn", "kube", "clap"]),
    ("salamander-kube", &["burn"]),
    ("salamander-master", &["burn", "kube"]),
    ("salamander-track", &["burn", "tonic", "kube"]),
    ("salamander-train", &["kube"]),
    ("salamander-models", &["clap", "salamander-run", "kube"]),
    ("salamander-kernels", &[OURS, "kube"]),
];

/// Crates that are looked at without their default features.
pub(super) const IS_BARE: [&str; 1] = ["salamander"];

/// Finds forbidden packages in the output of `cargo tree --prefix none`. A family counts as its
/// head: who sees `burn-tensor` sees Burn.
pub(super) fn forbidden(package: &str, forbidden: &[&str], tree: &str) -> Vec<BrokenRule> {
    let mut seen: Vec<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen.retain(|name| *name != package && forbidden.iter().any(|head| is_of_family(name, head)));
    let manifest = match package {
        "salamander-kernels" => "kernels/Cargo.toml".to_string(),
        "salamander-proto" => "proto/Cargo.toml".to_string(),
        package => format!("crates/{package}/Cargo.toml"),
    };
    let failure = |name: &&str| {
        let advice = format!(
            "{package} must not see {name}: remove what brings it in, which \
             `cargo tree -p {package} -e normal -i {name}` shows"
        );
        BrokenRule::new(&manifest, 1, advice)
    };
    seen.iter().map(failure).collect()
}

fn is_of_family(name: &str, head: &str) -> bool {
    name.strip_prefix(head).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn check(tree: &str, expected: &[&str]) {
        let found = forbidden("salamander-core", &["tokio", "burn"], tree);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (failure, name) in found.iter().zip(expected) {
            assert!(failure.advice.contains(&format!("must not see {name}:")), "{failure}");
        }
    }

    #[test]
    fn forbidden_packages_are_found_once_each() {
        check("salamander-core v0.1.0 (here)\nserde v1.0.0\nserde v1.0.0 (*)\n", &[]);
        check("a v1.0.0\ntokio v1.0.0\ntokio v1.0.0 (*)\nburn v0.22.1\n", &["burn", "tokio"]);
    }

    #[test]
    fn a_crate_may_see_itself() {
        let tree = "salamander-files v0.1.0 (here)\nsalamander-core v0.1.0 (there)\n";
        let found = forbidden("salamander-files", &[OURS], tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].advice.contains("must not see salamander-core:"), "{found:?}");
    }

    /// The rows of the page's table of crates that hide from something, by package.
    fn table(page: &str) -> BTreeMap<String, BTreeSet<String>> {
        let rows = page.lines().skip_while(|line| !line.starts_with("| crate | holds |")).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let hides = |row: &str| -> (String, BTreeSet<String>) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 5, "{row}");
            // `proto (salamander-proto)`: the folder and the package.
            let package = cells[1].split_once('(').map_or(cells[1], |(_, rest)| rest);
            let names = cells[3].split('(').next().unwrap_or_default().split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            let names =
                names.map(|name| if name == "every other crate of ours" { OURS } else { name });
            (package.trim_end_matches(')').to_string(), names.map(str::to_string).collect())
        };
        rows.map(hides).filter(|(_, names)| !names.is_empty()).collect()
    }

    #[test]
    fn the_page_and_the_rule_agree() {
        let rule: BTreeMap<String, BTreeSet<String>> = MUST_NOT_SEE
            .iter()
            .map(|(package, names)| {
                (package.to_string(), names.iter().map(|name| name.to_string()).collect())
            })
            .collect();
        assert_eq!(table(include_str!("../../../ARCHITECTURE.md")), rule);
    }

    #[test]
    fn families_count_and_likenesses_do_not() {
        check("burn-tensor v0.22.1\n", &["burn-tensor"]);
        check("burnish v1.0.0\n\n[dev-dependencies]\n", &[]);
    }
}
