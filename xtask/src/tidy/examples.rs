//! Public modules of the library open with an example: that is where people begin to read.

use super::BrokenRule;

/// The library whose modules are looked at.
pub(super) const LIBRARY: &str = "crates/salamander-train/src";

/// Finds public modules of a library's root that show nothing; `text_of` gives a file's text, if there is such a file.
pub(super) fn missing(root: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    for module in public_modules(root) {
        let paths = [format!("{LIBRARY}/{module}.rs"), format!("{LIBRARY}/{module}/mod.rs")];
        let found = paths.iter().find_map(|path| Some((path, text_of(path)?)));
        if let Some((path, text)) = found
            && !shows_something(&text)
        {
            let advice =
                "a public module opens with an example: show in `//!` what it is called for";
            failures.push(BrokenRule::new(path, 1, advice));
        }
    }
    failures
}

/// The modules that a root declares for everybody; those that are hidden from the documentation are for nobody.
fn public_modules(root: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    let mut before = "";
    for line in root.lines() {
        let module = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';'));
        modules.extend(module.filter(|_| before != "#[doc(hidden)]"));
        before = line;
    }
    modules
}

fn shows_something(text: &str) -> bool {
    let mut opening = text.lines().take_while(|line| line.starts_with("//!"));
    opening.any(|line| line.starts_with("//! ```"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_modules_without_an_example_are_found() {
        let root = "//! Why.\nmod inner;\npub mod shown;\npub mod bare;\n#[doc(hidden)]\npub mod fuzzing;\n\
                    pub mod folder;\n";
        let text_of = |path: &str| match path.strip_prefix(LIBRARY)? {
            "/shown.rs" => Some("//! Why.\n//!\n//! ```\n//! ```\n".to_string()),
            "/bare.rs" => Some("//! Why.\n\n/// ```\n/// ```\nfn f() {}\n".to_string()),
            "/fuzzing.rs" | "/inner.rs" | "/folder/mod.rs" => Some("//! Why.\n".to_string()),
            _ => None,
        };
        let found: Vec<String> =
            missing(root, text_of).into_iter().map(|failure| failure.path).collect();
        assert_eq!(found, [format!("{LIBRARY}/bare.rs"), format!("{LIBRARY}/folder/mod.rs")]);
    }
}
