//! Wrong uses of the API must not compile, and must say what to write.
//!
//! Each `wrong_*.rs` is given to rustc with the library that this very test was linked with, so that nothing is
//! built a second time. What it must answer is beside it; `SALAMANDER_BLESS=1` records the answers anew.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The compiler whose wording `tests/traits` records; the wording of `tests/derive` is our own.
const RECORDED_WITH: &str = "rustc 1.95.";

/// What rustc says about an error beyond the error.
const CLOSING: [&str; 4] = [
    "error: aborting due to ",
    "For more information about ",
    "Some errors have detailed explanations",
    "note: the full name for the type has been written to",
];

#[test]
fn wrong_derives_say_what_to_write() {
    check("tests/derive");
}

#[test]
fn wrong_types_say_what_to_write() {
    let version = Command::new(rustc()).arg("--version").output().expect("rustc starts").stdout;
    if String::from_utf8_lossy(&version).starts_with(RECORDED_WITH) {
        return check("tests/traits");
    }
    assert!(env::var_os("SALAMANDER_NO_SKIPS").is_none(), "recorded with {RECORDED_WITH}");
    let _ = writeln!(std::io::stderr(), "SKIPPED tests/traits: recorded with {RECORDED_WITH}");
}

/// Compiles all cases of a folder, and compares each answer with the recorded one.
#[track_caller]
fn check(folder: &str) {
    let (library, out) = (library(), tempfile::tempdir().expect("a folder"));
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(home.join(folder)).expect("a folder of cases");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with("wrong_") && name.ends_with(".rs"));
    names.sort_unstable();
    assert!(!names.is_empty(), "{folder} has no cases");
    let mut failures = String::new();
    for name in names {
        let case = format!("{folder}/{name}");
        let Some(said) = compile(&case, &library, out.path()) else {
            let _ = writeln!(failures, "== {case} compiles, and must not");
            continue;
        };
        let recorded = home.join(&case).with_extension("stderr");
        if env::var_os("SALAMANDER_BLESS").is_some() {
            fs::write(&recorded, normal(&said)).expect("written");
            continue;
        }
        let expected = fs::read_to_string(&recorded).unwrap_or_default();
        if bare(&said) != bare(&expected) {
            let _ = writeln!(failures, "== {case} says\n{}\n-- not\n{expected}", normal(&said));
        }
    }
    let advice = "SALAMANDER_BLESS=1 records the new answers";
    assert!(failures.is_empty(), "{failures}\n{advice}");
}

/// What the compiler says about a file, or nothing if it likes it.
fn compile(case: &str, library: &Path, out: &Path) -> Option<String> {
    let deps = library.parent().expect("the folder of libraries");
    let output = Command::new(rustc())
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--cap-lints=allow"])
        .args(["--diagnostic-width=140", case, "--out-dir"])
        .arg(out)
        .arg(format!("-Ldependency={}", deps.display()))
        .arg(format!("--extern=salamander={}", library.display()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("rustc starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    (!output.status.success()).then_some(said)
}

/// The library beside this test. There may be several, of other choices of features: what was just built is the newest.
/// One that a crate outside of this workspace was built with names its files in another way, in answers too.
fn library() -> PathBuf {
    let test = env::current_exe().expect("this program");
    let deps = test.parent().expect("the folder of libraries");
    let mut found = Vec::new();
    for entry in fs::read_dir(deps).expect("the folder of libraries") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_prefix("lib").and_then(|name| name.strip_suffix(".rlib"));
        let Some(stem) = stem.filter(|stem| stem.starts_with("salamander-")) else { continue };
        let sources = fs::read_to_string(deps.join(format!("{stem}.d"))).unwrap_or_default();
        if sources.contains(": crates/salamander/src/lib.rs") {
            let built = path.metadata().and_then(|file| file.modified()).expect("a time");
            found.push((built, path));
        }
    }
    found.sort_unstable();
    let missing = || panic!("{} has no libsalamander-*.rlib", deps.display());
    found.pop().unwrap_or_else(missing).1
}

fn rustc() -> String {
    env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}

/// The answer without what differs from machine to machine and with every edit of the library: where files are, and
/// the source and counts of what is not in the case itself.
fn normal(said: &str) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two up");
    let said = said.replace(&workspace.display().to_string(), "$WORKSPACE");
    let mut text = String::new();
    let mut foreign = false;
    // A type of a feature that only some builds of the library have: `help: the trait `X` is implemented for `Y``.
    let mut other_type = false;
    for line in said.lines() {
        if line.contains("models/src/weights_path.rs") && other_type {
            continue;
        }
        other_type = line.starts_with("help: the trait")
            && line.contains("is implemented for `WeightsPath`");
        if other_type {
            continue;
        }
        if CLOSING.iter().any(|closing| line.trim_start().starts_with(closing)) {
            continue;
        }
        let mut line = line.trim_end().to_owned();
        if let Some((arrow, place)) = line.split_once("--> ") {
            foreign = !place.starts_with("tests/");
            if foreign {
                let path = place.split(".rs:").next().unwrap_or(place);
                let path = path.strip_suffix(".rs").unwrap_or(path);
                let path = path.rsplit_once("/registry/src/").map_or(path, |(_, path)| path);
                line = format!("{arrow}--> {path}.rs");
            }
        } else if foreign && is_quoted(&line) {
            // Shown only where the compiler finds the library's source.
            continue;
        }
        if let Some(counted) = line.trim_start().strip_prefix("and ")
            && counted.ends_with(" others")
        {
            let indent = line.len() - line.trim_start().len();
            line = format!("{}and $N others", " ".repeat(indent));
        }
        text.push_str(&line);
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}

/// Whether it is a line of source, or what is drawn below one: `12 | fn f()`.
fn is_quoted(line: &str) -> bool {
    let number = line.split_once('|').map(|(number, _)| number.trim());
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The normal answer without the width of its left margin, which is that of the longest number in it.
fn bare(said: &str) -> Vec<String> {
    normal(said).lines().map(|line| line.trim_start().to_owned()).collect()
}
