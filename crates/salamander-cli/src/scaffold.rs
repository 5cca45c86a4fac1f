//! What `salamander new` writes: a crate that trains as it stands.

pub(crate) mod tabular;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use salamander_core::seed::Rng;

use crate::out;

const MAIN: &str = include_str!("scaffold/main.rs");
const MANIFEST: &str = include_str!("scaffold/Cargo.toml.in");
const EXPERIMENT: &str = include_str!("scaffold/experiment.yaml");
/// The library that a new crate uses.
const FACADE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../salamander");
const GITIGNORE: &str = "/.cargo\n/target\n/runs\n";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The crate's name, which is also the folder's; with --tabular the file's name by default
    #[arg(required_unless_present = "tabular")]
    name: Option<String>,
    #[command(flatten)]
    table: tabular::TabularArgs,
}

/// Writes the crate that is asked for.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.table.check()?;
    let of_table = args.table.write(args.name.as_deref());
    let written = of_table.unwrap_or_else(|| write(args.name.as_deref().unwrap_or_default()));
    written.map(|()| ExitCode::SUCCESS)
}

/// Writes the crate into a new folder of its name.
fn write(name: &str) -> Result<()> {
    let folder = free_folder(name)?;
    let files = [
        ("Cargo.toml", manifest(name)),
        ("src/main.rs", program(name)),
        ("experiment.yaml", EXPERIMENT.replace("@NAME@", name)),
        ("data/train.csv", rings(600, 1)),
        ("data/valid.csv", rings(200, 2)),
        (".gitignore", GITIGNORE.to_string()),
    ];
    write_files(&folder, &files)?;
    share_build(&folder)?;
    Ok(ready(name)?)
}

/// The folder of a new crate, which must not be there.
fn free_folder(name: &str) -> Result<PathBuf> {
    check_name(name)?;
    let folder = PathBuf::from(name);
    if folder.exists() {
        bail!("{} exists already", folder.display());
    }
    Ok(folder)
}

/// The program, whose model has the crate's name: `salamander` has one of the name that stands in the text, which it
/// would train in the place of the model that somebody changes.
fn program(name: &str) -> String {
    MAIN.replace("\"rings_mlp\"", &format!("\"{name}\""))
}

fn manifest(name: &str) -> String {
    let library = dependency(Path::new(FACADE));
    // A crate that is called like a library of the profile has no settings of its own: cargo takes one line for a name.
    let is_taken = MANIFEST.contains(&format!("\n{name}.opt-level"));
    let lines = MANIFEST.lines().filter(|line| !is_taken || !line.starts_with("@NAME@ = "));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("@NAME@", name).replace("@SALAMANDER@", &library)
}

/// How the crate names the library: by the clone that this program was built from, while that is there, and else by
/// the version that was published.
fn dependency(facade: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match facade.join("Cargo.toml").is_file() {
        true => format!(
            "{{ path = \"{}\", features = [\"models\"] }} # Elsewhere: its own path, or version = \"{version}\".",
            fs::canonicalize(facade).as_deref().unwrap_or(facade).display()
        ),
        false => format!("{{ version = \"{version}\", features = [\"models\"] }}"),
    }
}

/// The folder that the clone is built in, if it has been: Burn is there. Not where somebody has chosen one folder for
/// all builds, which cargo takes before any other.
fn built_clone(facade: &Path, chosen: Option<OsString>) -> Option<PathBuf> {
    let target = fs::canonicalize(facade.join("../../target")).ok()?;
    let is_built = facade.join("Cargo.toml").is_file() && target.join("release").is_dir();
    (is_built && chosen.is_none()).then_some(target)
}

/// Cargo's settings of a new crate that is built in the clone's folder.
fn cargo_settings(target: &Path) -> String {
    format!(
        "# What the clone of salamander has built is not built again. Without this file the crate has a\n\
         # folder of its own; with it, `cargo clean` empties the one of both.\n\
         [build]\ntarget-dir = \"{}\"\n",
        target.display()
    )
}

fn write_files(folder: &Path, files: &[(&str, String)]) -> Result<()> {
    for (file, text) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The same versions as this program was built with, where its lock file is at hand, and what was built of them.
fn share_build(folder: &Path) -> Result<()> {
    let facade = Path::new(FACADE);
    let lock = facade.join("../../Cargo.lock");
    if lock.is_file() {
        fs::copy(&lock, folder.join("Cargo.lock")).context("Cargo.lock")?;
    }
    let chosen = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];
    match built_clone(facade, chosen.into_iter().find_map(std::env::var_os)) {
        Some(target) => write_files(folder, &[(".cargo/config.toml", cargo_settings(&target))]),
        None => Ok(()),
    }
}

fn ready(name: &str) -> Result<(), out::Error> {
    outln!("{name} is ready: cd {name} && cargo run --release -- train experiment.yaml")
}

/// Words that cargo takes for no package: keywords of Rust, and what it and the compiler use themselves.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "salamander",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Refuses what cargo would refuse, before anything is written.
fn check_name(name: &str) -> Result<()> {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    ensure!(
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(rest),
        "\"{name}\" is no name for a crate: letters, digits, - and _, a letter first"
    );
    ensure!(
        !RESERVED.contains(&name.to_ascii_lowercase().as_str()),
        "\"{name}\" is no name for a crate: Rust or cargo uses this word; try \"{name}_model\""
    );
    Ok(())
}

/// Points inside and outside of a ring: no straight line tells them apart.
pub(crate) fn rings(records: usize, seed: u64) -> String {
    let mut rng = Rng::new(salamander_core::seed::mix(seed));
    let mut text = String::from("x,y,outside\n");
    for _ in 0..records {
        let outside = rng.below(2);
        let radius = 0.4 + 0.8 * outside as f64 + 0.12 * rng.normal();
        let angle = std::f64::consts::TAU * rng.uniform();
        let (x, y) = (radius * angle.cos(), radius * angle.sin());
        text.push_str(&format!("{x:.4},{y:.4},{outside}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_crate_depends_on_the_clone_or_on_the_package() {
        let clone = Path::new(FACADE);
        assert!(dependency(clone).starts_with("{ path = \""), "{}", dependency(clone));
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!("{{ version = \"{version}\", features = [\"models\"] }}");
        assert_eq!(dependency(Path::new("nowhere")), expected);
    }

    #[test]
    fn a_crate_is_built_beside_a_clone_that_was_built() {
        let place = tempfile::tempdir().expect("a folder");
        let facade = place.path().join("crates/salamander");
        fs::create_dir_all(&facade).expect("made");
        fs::write(facade.join("Cargo.toml"), "").expect("written");
        assert_eq!(built_clone(&facade, None), None);
        let target = place.path().join("target");
        fs::create_dir_all(target.join("release")).expect("made");
        let target = fs::canonicalize(target).expect("there");
        assert_eq!(built_clone(&facade, None).as_ref(), Some(&target));
        assert_eq!(built_clone(&facade, Some("elsewhere".into())), None);
        let line = format!("target-dir = \"{}\"", target.display());
        assert!(cargo_settings(&target).lines().any(|written| written == line));
        fs::remove_file(facade.join("Cargo.toml")).expect("removed");
        assert_eq!(built_clone(&facade, None), None);
    }

    #[test]
    fn names_that_cargo_refuses_are_refused_here() {
        for name in ["my_model", "m2", "click-through"] {
            check_name(name).expect(name);
        }
        for name in ["", "1st", "a b", "../a", "fn", "Self", "test", "salamander", "d\u{e9}j\u{e0}"]
        {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains("is no name for a crate"), "{error}");
        }
    }

    /// The page is a copy, without the line that says why the file is there. Read and not included: a package has no
    /// guide.
    #[test]
    fn the_guide_shows_the_program_that_new_writes() {
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/first_model.md");
        let page = fs::read_to_string(page).expect("the guide").replace("\r\n", "\n");
        let block = |language: &str| {
            let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
            rest.split_once("```").expect("its end").0
        };
        let written = program("my_model");
        let (opening, rest) = written.split_once("\n\n").expect("a line and a program");
        assert!(opening.starts_with("//!") && !opening.contains('\n'), "{opening}");
        assert_eq!(block("rust,no_run"), rest);
        assert!(rest.contains("const NAME: &str = \"my_model\";\n"));
        assert_eq!(block("yaml"), EXPERIMENT.replace("@NAME@", "my_model"));
    }

    /// The settings of a manifest's profiles: what of which package or profile, and the value.
    fn profiles(manifest: &str) -> BTreeMap<String, String> {
        let mut section = "";
        let mut settings = BTreeMap::new();
        for line in manifest.lines() {
            match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(name) => section = name,
                None if section.starts_with("profile.") && !line.starts_with('#') => {
                    let Some((key, value)) = line.split_once(" = ") else { continue };
                    let before = settings.insert(format!("{section}.{key}"), value.to_string());
                    assert_eq!(before, None, "cargo takes one line for a name: {line}");
                }
                None => {}
            }
        }
        settings
    }

    /// Cargo shares what it has built only between equal profiles. What the workspace says of its own program, and a
    /// new crate of itself, is no matter of the other; a pattern such as `"*"` is: cargo takes it for build scripts and
    /// macros too.
    #[test]
    fn a_new_crate_has_the_profiles_of_the_workspace() {
        let mut workspace = profiles(include_str!("../../../Cargo.toml"));
        workspace.retain(|key, _| !key.starts_with("profile.release.package.salamander-zoo."));
        let mut own = profiles(&manifest("my_model"));
        let of_itself = own.remove("profile.release.package.my_model").expect("settings");
        assert_eq!(of_itself, "{ incremental = true, codegen-units = 256, strip = \"symbols\" }");
        assert_eq!(own, workspace);
        assert!(own.len() > 90, "{}", own.len());
    }

    /// `salamander new --tabular time.csv` makes a crate that is called like a library.
    #[test]
    fn a_crate_that_is_called_like_a_library_has_one_line_of_its_name() {
        let own = profiles(&manifest("time"));
        assert_eq!(own["profile.release.package.time.opt-level"], "1");
        assert!(!own.contains_key("profile.release.package.time"));
    }

    /// `--features kube` and the others are those of the library. Read and not included, as the guide is.
    #[test]
    fn a_new_crate_has_the_features_of_the_program() {
        let features = |manifest: &str| -> Vec<String> {
            let (_, section) = manifest.split_once("[features]\n").expect("features");
            let lines = section.lines().take_while(|line| !line.starts_with('['));
            let passed = lines.filter_map(|line| line.split_once(" = [\"salamander/"));
            let mut names: Vec<String> = passed
                .map(|(name, rest)| {
                    assert!(rest.starts_with(&format!("{name}\"")), "{name} = {rest}");
                    name.to_string()
                })
                .collect();
            names.sort();
            names
        };
        let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../model_zoo/Cargo.toml");
        let zoo = fs::read_to_string(zoo).expect("the zoo").replace("\r\n", "\n");
        assert_eq!(features(&manifest("my_model")), features(&zoo));
        assert!(features(&zoo).iter().any(|feature| feature == "flow"));
    }
}
