//! The tests that pages name as proofs: a claim whose test was renamed or removed is a claim that nobody checks.

use std::collections::BTreeSet;

use super::BrokenRule;

/// The page whose names of tests stand alone.
const PLAIN: &str = "docs/proof.md";
/// On others they have their module before them, as other words have not.
pub(super) const PAGES: [&str; 2] = [PLAIN, "docs/kubernetes.md"];

/// Names of functions in a Rust file.
pub(super) fn functions(text: &str) -> impl Iterator<Item = &str> {
    let named = text.lines().filter_map(|line| line.trim_start().split_once("fn "));
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    named.map(move |(_, rest)| rest.split(|c: char| !is_name(c)).next().unwrap_or_default())
}

/// Names of tests on a page that no file has. A name of a test is a sentence: three words and more.
pub(super) fn proofs(path: &str, page: &str, known: &BTreeSet<String>) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let code = line.split('`').skip(1).step_by(2);
        let code = code.filter_map(|code| match path == PLAIN {
            true => Some(code),
            false => code.rsplit_once("::").map(|(_, name)| name),
        });
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let tests = code.filter(|name| name.chars().all(is_word) && name.matches('_').count() >= 2);
        for name in tests.filter(|name| !known.contains(*name)) {
            let advice = format!("there is no test {name}: write which one it is now");
            failures.push(BrokenRule::new(path, index + 1, advice));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_named() {
        let file =
            "#[test]\nfn a_fact_holds() {}\n    pub(crate) async fn another_fact_holds(x: u8) {}\n";
        let known: BTreeSet<String> = functions(file).map(str::to_string).collect();
        assert_eq!(known.len(), 2);
        let page =
            "| 1 | `a_fact_holds`, `stored::claim`, `counted` |\n| 2 | `a_lost_fact_holds` |\n";
        let failures = proofs(PLAIN, page, &known);
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].line, 2);
        let page = "`metric_of_a_run`, `life::a_fact_holds`, `life::..`,\n`long::life::a_lost_fact_holds`\n";
        let failures = proofs(PAGES[1], page, &known);
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].line, 2);
    }
}
