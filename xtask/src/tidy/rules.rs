//! The house rules about files, each a function from a path and its text to what is wrong with it.

use super::BrokenRule;

const MAX_BYTES: usize = 2 * 1024 * 1024;
/// rustfmt wraps code at 100; what it leaves alone, such as text in strings, gets a little more.
const MAX_COLUMNS: usize = 120;
/// Prose of pages that are written by hand.
const MAX_PROSE: usize = 100;
const MAX_LINES: usize = 500;
/// Half of the files are shorter than this.
const MEDIAN_LINES: usize = 200;

/// What has no place in a finished file, written so that this file does not contain it.
const UNFINISHED: [(&str, &str); 4] = [
    (concat!("todo", "!("), "write the missing part, or return an error that says it is missing"),
    (concat!("unimplemented", "!("), "write the missing part, or return an error that says so"),
    (concat!("dbg", "!("), "remove it, or use tracing"),
    (concat!("#[", "ignore"), "make the test run everywhere, or delete it"),
];

/// Macros that panic when nobody reads the output any more; written so that this file does not contain them.
const PRINTING: [&str; 4] = [
    concat!("println", "!("),
    concat!("print", "!("),
    concat!("eprintln", "!("),
    concat!("eprint", "!("),
];
/// Where they have no place, what is exempt, and what to write instead.
const COMMAND_LINE: &str = "crates/salamander-cli/src/";
const NOT_PRINTED: [&str; 2] =
    ["crates/salamander-cli/src/out.rs", "crates/salamander-cli/src/scaffold/main.rs"];

/// Where the names of environment variables are, and how they begin elsewhere.
const VARIABLES: &str = "crates/salamander-core/src/environment.rs";
const VARIABLE: &str = concat!("\"SALA", "MANDER_");

/// Where the names of a run's files are, those that are written in quotes nowhere else, and which programs write files
/// of that name that are no run's yet.
const RUN_LAYOUT: &str = "crates/salamander-core/src/layout.rs";
const RUN_FILES: [&str; 12] = [
    "\"experiment.yaml\"",
    "\"plan.json\"",
    "\"metrics.jsonl\"",
    "\"histograms.jsonl\"",
    "\"course.json\"",
    "\"summary.json\"",
    "\"report.json\"",
    "\"confusion.svg\"",
    "\"provenance.json\"",
    "\"search.json\"",
    "\"search.jsonl\"",
    "\"manifest.json\"",
];
const NO_RUNS: [&str; 2] = ["crates/salamander-cli/src/scaffold", "crates/salamander-cli/src/demo"];

/// The first folders of paths that exist on one machine only.
const MACHINE_FOLDERS: [&str; 3] = ["home", "root", "work"];

/// All rules about one Rust file.
pub(super) fn rust(path: &str, text: &str) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    failures.extend(opening(path, text));
    failures.extend(name(path));
    failures.extend(layout(path, text));
    failures.extend(length(path, text));
    failures.extend(lines(path, text));
    failures.extend(printing(path, text));
    failures.extend(variables(path, text));
    failures.extend(run_files(path, text));
    failures
}

/// Pages that are written by hand are wrapped, so that they can be read and compared anywhere.
pub(super) fn prose(path: &str, text: &str) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    if !is_written_by_hand(path) {
        return failures;
    }
    let mut is_code = false;
    for (number, line) in numbered(text) {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        let columns = line.chars().count();
        if columns > MAX_PROSE && !is_code && !fence && can_be_wrapped(line) {
            let advice = format!("{columns} characters of prose, and {MAX_PROSE} are the limit");
            failures.push(BrokenRule::new(path, number, advice));
        }
    }
    failures
}

/// Large files belong where large files are stored, not into every clone.
pub(super) fn size(path: &str, bytes: usize) -> Option<BrokenRule> {
    let advice = "over 2 MB: make it smaller, or have a command that fetches or generates it";
    (bytes > MAX_BYTES).then(|| BrokenRule::new(path, 1, advice))
}

/// Text that names a folder of somebody's machine is wrong on all others.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    for (number, line) in numbered(text) {
        let found = MACHINE_FOLDERS.iter().find(|folder| line.contains(&format!("/{folder}/")));
        if let Some(folder) = found {
            let advice = format!("a path under /{folder}: use one relative to the repository");
            failures.push(BrokenRule::new(path, number, advice));
        }
    }
    failures
}

/// Most files are to be read in one go, so half of them have to be short.
pub(super) fn median(lengths: &[(String, usize)]) -> Option<BrokenRule> {
    let short = lengths.iter().filter(|(_, lines)| *lines < MEDIAN_LINES).count();
    let (path, lines) = lengths.iter().max_by_key(|(_, lines)| *lines)?;
    let advice = format!(
        "only {short} of {} files have under {MEDIAN_LINES} lines: split the longest, as this one",
        lengths.len()
    );
    (short * 2 < lengths.len()).then(|| BrokenRule::new(path, *lines, advice))
}

/// The lines of a file without the module of tests at its end.
pub(super) fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).rposition(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

fn is_written_by_hand(path: &str) -> bool {
    let is_page = path.starts_with("docs/") && path.ends_with(".md");
    let is_generated = path.starts_with("docs/guide/src/reference/");
    matches!(path, "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md" | "CHANGELOG.md")
        || (is_page && !is_generated)
}

/// Tables, headings, HTML, lines with an address and single words stay as they are.
fn can_be_wrapped(line: &str) -> bool {
    let is_whole = line.trim_start().starts_with(['|', '#', '<']) || line.contains("://");
    !is_whole && line.split_whitespace().nth(1).is_some()
}

fn opening(path: &str, text: &str) -> Option<BrokenRule> {
    let mut rest = text.trim_start();
    // Inner attributes may come first; the end of a line is the end of one, but for lists of lints.
    while rest.starts_with("#![") {
        let end = rest.find("]\n").map_or(rest.len(), |end| end + 2);
        rest = rest[end..].trim_start();
    }
    let advice = "open the file with a `//!` sentence that says why it exists";
    (!rest.starts_with("//!")).then(|| BrokenRule::new(path, 1, advice))
}

fn name(path: &str) -> Option<BrokenRule> {
    let module = path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs")).unwrap_or(path);
    let name = module.rsplit('/').next().unwrap_or(module);
    let vague = matches!(name, "utils" | "common" | "misc");
    vague.then(|| BrokenRule::new(path, 1, "name the module after what it holds"))
}

fn layout(path: &str, text: &str) -> Option<BrokenRule> {
    let crate_path = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/src/lib.rs"));
    let is_root = crate_path.is_some_and(|name| !name.contains('/'));
    let described = text.lines().any(|line| line.trim_end() == "//! # Layout");
    let advice = "add a `//! # Layout` section that says which module holds what";
    (is_root && !described).then(|| BrokenRule::new(path, 1, advice))
}

fn length(path: &str, text: &str) -> Option<BrokenRule> {
    let lines = code_lines(text);
    let advice = format!("{lines} lines, and {MAX_LINES} are the limit: split the file by subject");
    (lines > MAX_LINES).then(|| BrokenRule::new(path, MAX_LINES + 1, advice))
}

fn lines(path: &str, text: &str) -> Vec<BrokenRule> {
    let mut failures = Vec::new();
    for (number, line) in numbered(text) {
        let columns = line.chars().count();
        if columns > MAX_COLUMNS && !line.contains("://") {
            let advice = format!("{columns} characters, and {MAX_COLUMNS} are the limit: wrap it");
            failures.push(BrokenRule::new(path, number, advice));
        }
        for (pattern, advice) in UNFINISHED.iter().filter(|(pattern, _)| line.contains(pattern)) {
            failures.push(BrokenRule::new(path, number, format!("`{pattern}`: {advice}")));
        }
    }
    failures
}

/// The command line prints through one module, because the standard macros panic on a closed pipe.
fn printing(path: &str, text: &str) -> Vec<BrokenRule> {
    let exempt = NOT_PRINTED.iter().any(|exempt| path.starts_with(exempt));
    if exempt || !path.starts_with(COMMAND_LINE) {
        return Vec::new();
    }
    let advice = "panics on a closed pipe: write `outln!(..)?` or `errln!(..)`, from out.rs";
    let prints = |line: &str| PRINTING.iter().find(|pattern| starts_word(line, pattern));
    numbered(text)
        .filter_map(|(number, line)| prints(line).map(|pattern| (number, pattern)))
        .map(|(number, pattern)| BrokenRule::new(path, number, format!("`{pattern}`: {advice}")))
        .collect()
}

/// Environment variables have one owner, from which the guide's page is written.
fn variables(path: &str, text: &str) -> Vec<BrokenRule> {
    let is_program = path.starts_with("crates/") && path.contains("/src/");
    if !is_program
        || path == VARIABLES
        || path.ends_with("/tests.rs")
        || path.ends_with("/reference.rs")
    {
        return Vec::new();
    }
    let advice = format!("add the variable to {VARIABLES}, and take its name from there");
    numbered(text)
        .take(code_lines(text))
        .filter(|(_, line)| line.contains(VARIABLE))
        .map(|(number, _)| BrokenRule::new(path, number, advice.as_str()))
        .collect()
}

/// The names of a run's files have one owner, so that a reader finds who writes and who reads each.
fn run_files(path: &str, text: &str) -> Vec<BrokenRule> {
    let is_program = path.starts_with("crates/") && path.contains("/src/");
    let exempt = path == RUN_LAYOUT || NO_RUNS.iter().any(|exempt| path.starts_with(exempt));
    if !is_program || exempt || path.ends_with("tests.rs") {
        return Vec::new();
    }
    let named = |line: &str| RUN_FILES.iter().find(|name| line.contains(*name));
    numbered(text)
        .take(code_lines(text))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter_map(|(number, line)| named(line).map(|name| (number, name)))
        .map(|(number, name)| {
            let advice = format!("{name} is a file of a run: take its name from {RUN_LAYOUT}");
            BrokenRule::new(path, number, advice)
        })
        .collect()
}

/// Whether the pattern is in the line and no part of a longer name.
fn starts_word(line: &str, pattern: &str) -> bool {
    let is_name = |before: char| before.is_alphanumeric() || before == '_';
    line.match_indices(pattern).any(|(at, _)| !line[..at].ends_with(is_name))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a Rust file, and expects failures at these lines.
    #[track_caller]
    fn check(path: &str, text: &str, expected: &[usize]) {
        let failures = rust(path, text);
        let found: Vec<usize> = failures.iter().map(|failure| failure.line).collect();
        assert_eq!(found, expected, "{failures:?}");
    }

    #[test]
    fn file_opens_with_its_purpose() {
        check("a.rs", "//! Why.\n", &[]);
        check("a.rs", "#![no_std]\n#![allow(\n    dead_code,\n)]\n\n//! Why.\n", &[]);
        check("a.rs", "// Why.\n", &[1]);
        check("a.rs", "#![no_std]\nfn main() {}\n", &[1]);
        check("a.rs", "", &[1]);
    }

    #[test]
    fn unfinished_code_is_found_at_its_line() {
        for (pattern, _) in UNFINISHED {
            check("a.rs", &format!("//! Why.\n\n    {pattern}\n"), &[3]);
        }
    }

    #[test]
    fn long_lines_fail_unless_they_hold_an_address() {
        let long = "x".repeat(MAX_COLUMNS);
        check("a.rs", &format!("//! Why.\n{long}\n"), &[]);
        check("a.rs", &format!("//! Why.\n{long}x\n"), &[2]);
        check("a.rs", &format!("//! Why.\n\"https://{long}\"\n"), &[]);
    }

    #[test]
    fn columns_are_characters_and_not_bytes() {
        check("a.rs", &format!("//! {}\n", "é".repeat(100)), &[]);
    }

    #[test]
    fn long_files_fail_but_for_the_tests_at_their_end() {
        let code = format!("//! Why.\n{}", "//\n".repeat(MAX_LINES - 1));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "//\n".repeat(MAX_LINES));
        check("a.rs", &code, &[]);
        check("a.rs", &format!("{code}{tests}"), &[]);
        check("a.rs", &format!("{code}//\n"), &[MAX_LINES + 1]);
        check("a.rs", &format!("{code}#[cfg(test)]\nmod tests;\n"), &[MAX_LINES + 1]);
    }

    #[test]
    fn vague_names_fail() {
        check("crates/a/src/utils.rs", "//! Why.\n", &[1]);
        check("tests/common/mod.rs", "//! Why.\n", &[1]);
        check("misc.rs", "//! Why.\n", &[1]);
        check("crates/a/src/uncommon.rs", "//! Why.\n", &[]);
    }

    #[test]
    fn crates_describe_their_layout() {
        check("crates/a/src/lib.rs", "//! Why.\n//!\n//! # Layout\n", &[]);
        check("crates/a/src/lib.rs", "//! Why.\n", &[1]);
        check("crates/a/src/b/src/lib.rs", "//! Why.\n", &[]);
        check("model_zoo/src/lib.rs", "//! Why.\n", &[]);
    }

    #[test]
    fn every_failure_of_a_file_is_reported() {
        let line = format!("{} {}", UNFINISHED[0].0, UNFINISHED[2].0);
        check("misc.rs", &format!("{line}\n{line}\n"), &[1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn the_command_line_prints_through_one_module() {
        for pattern in PRINTING {
            let text = format!("//! Why.\n    {pattern}\"x\");\n");
            check("crates/salamander-cli/src/models.rs", &text, &[2]);
            check("crates/salamander-cli/src/out.rs", &text, &[]);
            check("crates/salamander-cli/src/scaffold/main.rs", &text, &[]);
            check("crates/salamander-run/src/run.rs", &text, &[]);
        }
        let own = "//! Why.\n    outln!(\"x\")?;\n    errln!(\"x\");\n";
        check("crates/salamander-cli/src/models.rs", own, &[]);
    }

    #[test]
    fn environment_variables_have_one_owner() {
        let text = format!("//! Why.\n    std::env::var({VARIABLE}LOG\");\n");
        check("crates/salamander-cli/src/roles.rs", &text, &[2]);
        check(VARIABLES, &text, &[]);
        check("crates/salamander-net/tests/net/failures.rs", &text, &[]);
        let tests = format!("//! Why.\n#[cfg(test)]\nmod tests {{\n{VARIABLE}BLESS\"\n}}\n");
        check("crates/salamander-cli/src/roles.rs", &tests, &[]);
    }

    #[test]
    fn a_run_file_named_elsewhere_is_found() {
        let text = "//! Why.\n    let path = folder.join(\"summary.json\");\n";
        check("crates/salamander-hub/src/queue.rs", text, &[2]);
        check(RUN_LAYOUT, text, &[]);
        check("crates/salamander-cli/src/scaffold/tabular.rs", text, &[]);
        check("crates/salamander-hub/src/queue_tests.rs", text, &[]);
        check("crates/salamander-hub/tests/hub/queue.rs", text, &[]);
        let shown = "//! Why.\n/// \"summary.json\"\nconst OWN: &str = \"own_summary.json\";\n";
        check("crates/salamander-hub/src/queue.rs", shown, &[]);
        let tests = "//! Why.\n#[cfg(test)]\nmod tests {\n    \"plan.json\"\n}\n";
        check("crates/salamander-hub/src/queue.rs", tests, &[]);
    }

    #[test]
    fn machine_paths_fail_in_every_text() {
        let home = format!("/{}/", MACHINE_FOLDERS[0]);
        let found = machine_paths("README.md", &format!("cd\ncd {home}me\nhome/me\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn prose_is_wrapped() {
        let long = "word ".repeat(MAX_PROSE / 5) + "more";
        let check = |path: &str, text: &str, expected: &[usize]| {
            let failures = prose(path, text);
            let found: Vec<usize> = failures.iter().map(|failure| failure.line).collect();
            assert_eq!(found, expected, "{path}: {failures:?}");
        };
        for path in ["README.md", "CHANGELOG.md", "docs/proof.md", "docs/guide/src/data.md"] {
            check(path, &format!("# Page\n\n{long}\n- {long}\n"), &[3, 4]);
            check(path, &"word ".repeat(MAX_PROSE / 5), &[]);
            check(path, &format!("| {long} |\n```sh\n{long}\n```\n# {long}\n"), &[]);
            check(path, &format!("```\n```\n{long}\n"), &[3]);
            check(path, &format!("{long} https://a.b\n{}\n", "x".repeat(MAX_PROSE + 1)), &[]);
        }
        for path in ["docs/guide/src/reference/commands.md", "deploy/README.md", "docs/book.toml"] {
            check(path, &long, &[]);
        }
    }

    #[test]
    fn large_files_fail() {
        assert_eq!(size("a.bin", MAX_BYTES), None);
        assert!(size("a.bin", MAX_BYTES + 1).is_some());
    }

    #[test]
    fn half_of_the_files_are_short() {
        let lengths = |all: &[usize]| -> Vec<(String, usize)> {
            all.iter().map(|&lines| (format!("{lines}.rs"), lines)).collect()
        };
        assert_eq!(median(&lengths(&[])), None);
        assert_eq!(median(&lengths(&[199, 200])), None);
        let failure = median(&lengths(&[199, 300, 200])).unwrap();
        assert_eq!((failure.path.as_str(), failure.line), ("300.rs", 300));
    }

    #[test]
    fn failure_reads_like_a_compiler_message() {
        assert_eq!(BrokenRule::new("a.rs", 7, "wrap it").to_string(), "a.rs:7: wrap it");
    }
}
