//! Enforces the house rules that rustfmt and clippy do not know, because asking does not scale.
//!
//! The rules are pure functions in [`rules`], [`names`], [`examples`], [`links`], [`features`], [`proofs`] and
//! [`layers`]; only this file reads files and starts programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

mod examples;
mod features;
mod layers;
mod links;
mod names;
mod proofs;
mod rules;

/// A broken rule: where it is broken, and what to do about it.
#[derive(Debug, PartialEq)]
struct BrokenRule {
    path: String,
    line: usize,
    advice: String,
}

impl BrokenRule {
    fn new(path: &str, line: usize, advice: impl Into<String>) -> BrokenRule {
        BrokenRule { path: path.to_owned(), line, advice: advice.into() }
    }
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

/// Checks all files that git tracks and the dependencies of the crates; prints every failure.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    let mut lengths = Vec::new();
    let mut pages = BTreeMap::new();
    let mut functions = BTreeSet::new();
    let mut types = names::TypeNames::default();
    for path in tracked_files(root)? {
        let Some(bytes) = read(&root.join(&path))? else {
            continue;
        };
        failures.extend(rules::size(&path, bytes.len()));
        // What is not UTF-8 is data, which the rules about text do not concern.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        failures.extend(rules::machine_paths(&path, &text));
        if path.ends_with(".rs") {
            failures.extend(rules::rust(&path, &text));
            // A link is no second type of the name.
            if !root.join(&path).is_symlink() {
                types.add(&path, &text);
            }
            functions.extend(proofs::functions(&text).map(str::to_string));
            lengths.push((path, rules::code_lines(&text)));
        } else if path.ends_with(".md") {
            failures.extend(rules::prose(&path, &text));
            pages.insert(path, text);
        }
    }
    failures.extend(links::links(&pages, |path| root.join(path).exists()));
    for path in proofs::PAGES {
        let page = pages.get(path).map(String::as_str).unwrap_or_default();
        failures.extend(proofs::proofs(path, page, &functions));
    }
    failures.extend(types.repeated());
    failures.extend(rules::median(&lengths));
    let library = text_of(root, &format!("{}/lib.rs", examples::LIBRARY))?;
    failures.extend(examples::missing(&library, |path| fs::read_to_string(root.join(path)).ok()));
    let manifest = text_of(root, features::MANIFEST)?;
    for path in features::PAGES {
        failures.extend(features::unlisted(&manifest, path, &text_of(root, path)?));
    }
    for (package, forbidden) in layers::MUST_NOT_SEE {
        failures.extend(layers::forbidden(package, forbidden, &dependency_tree(root, package)?));
    }
    for failure in &failures {
        eprintln!("{failure}");
    }
    ensure!(failures.is_empty(), "tidy: {} failures, listed above", failures.len());
    Ok(())
}

fn tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let list = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root))?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

fn dependency_tree(root: &Path, package: &str) -> anyhow::Result<String> {
    // Features are additive: what a crate hides it hides without them.
    let bare = ["--no-default-features"].iter().filter(|_| layers::IS_BARE.contains(&package));
    let args = ["tree", "-p", package, "-e", "normal", "--prefix", "none"];
    output(Command::new(crate::cargo_program()).args(args).args(bare).current_dir(root))
}

fn text_of(root: &Path, path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| path.to_string())
}

/// The content of a file, unless it is gone: git lists it until its deletion is committed.
fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} wrote no UTF-8"))
}
