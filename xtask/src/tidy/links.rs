//! Links of Markdown pages: a page or a heading that a link names is there, and every page of the guide is in its list.

use std::collections::BTreeMap;

use super::BrokenRule;

const GUIDE: &str = "docs/guide/src/";
const SUMMARY: &str = "docs/guide/src/SUMMARY.md";

/// The Markdown pages by path; `is_there` says whether any other file or folder of the repository is.
pub(super) fn links(
    pages: &BTreeMap<String, String>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    for (path, text) in pages {
        for (line, target) in targets(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let named = if file.is_empty() { path.clone() } else { resolve(path, file) };
            let leaves_the_book = path.starts_with(GUIDE) && !named.starts_with(GUIDE);
            let advice = match pages.get(&named) {
                _ if leaves_the_book => format!("a book has no {named}: write its name as code"),
                None if is_there(&named) => continue,
                None => format!("the link's target {named} is not there: mend the link"),
                Some(_) if heading.is_empty() => continue,
                Some(page) if headings(page).any(|found| found == heading) => continue,
                Some(_) => format!("{named} has no heading #{heading}: mend the link"),
            };
            failures.push(BrokenRule::new(path, line, advice));
        }
    }
    let listed =
        pages.get(SUMMARY).map(|text| targets(text).collect::<Vec<_>>()).unwrap_or_default();
    for path in pages.keys().filter(|path| path.starts_with(GUIDE) && *path != SUMMARY) {
        if !listed.iter().any(|(_, target)| resolve(SUMMARY, target) == *path) {
            failures.push(BrokenRule::new(path, 1, format!("add the page to {SUMMARY}")));
        }
    }
    failures
}

/// Places within the repository that links name, with their lines; code is left out.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });
    prose
        .flat_map(|(index, line)| {
            let outside_code = line.split('`').step_by(2);
            outside_code
                .flat_map(|prose| prose.split("](").skip(1))
                .map(move |rest| (index + 1, rest.split([')', ' ']).next().unwrap_or(rest)))
                .collect::<Vec<_>>()
        })
        .filter(|(_, target)| !target.contains(':') && !target.is_empty())
}

/// The names that headings get in a page's address.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}

/// A relative path as seen from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks pages, and expects failures at these places.
    #[track_caller]
    fn check(pages: &[(&str, &str)], expected: &[(&str, usize)]) {
        let pages =
            pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let failures = links(&pages, |path| path == "src/main.rs");
        let found: Vec<(&str, usize)> =
            failures.iter().map(|failure| (failure.path.as_str(), failure.line)).collect();
        assert_eq!(found, expected, "{failures:?}");
    }

    #[test]
    fn a_link_names_a_page_a_heading_or_a_file() {
        check(
            &[("a.md", "# A page\n[b](docs/b.md#why-not)\n[code](src/main.rs)\n[up](#a-page)")],
            &[("a.md", 2)],
        );
        check(
            &[("a.md", "[b](docs/b.md#why-not)"), ("docs/b.md", "## Why `not`?\n[a](../a.md)")],
            &[],
        );
        check(
            &[("a.md", "[b](b.md#gone) and [c](c.md)"), ("b.md", "# B")],
            &[("a.md", 1), ("a.md", 1)],
        );
        check(&[("a.md", "[web](https://x.y/z) `[no](link.md)`\n```\n[no](link.md)\n```\n")], &[]);
    }

    #[test]
    fn every_page_of_the_guide_is_listed_and_none_links_out_of_it() {
        let summary = (SUMMARY, "- [A](a.md)\n- [B](reference/b.md)");
        let (a, b) = (("docs/guide/src/a.md", "# A"), ("docs/guide/src/reference/b.md", "# B"));
        check(&[summary, a, b], &[]);
        let outside = ("docs/guide/src/a.md", "# A\n[a](../../../src/main.rs)");
        check(&[summary, outside, b], &[("docs/guide/src/a.md", 2)]);
        check(&[summary, a, b, ("docs/guide/src/c.md", "# C")], &[("docs/guide/src/c.md", 1)]);
    }
}
