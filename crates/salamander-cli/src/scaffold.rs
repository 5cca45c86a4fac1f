//! What `salamander new` writes: a crate that trains as it stands.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use salamander_core::seed::Rng;

const MAIN: &str = include_str!("scaffold/main.rs");
const MANIFEST: &str = include_str!("scaffold/Cargo.toml.in");
const EXPERIMENT: &str = include_str!("scaffold/experiment.yaml");
const GITIGNORE: &str = "/target\n/runs\n";

/// Writes the crate into a new folder of its name.
pub(crate) fn write(name: &str) -> Result<()> {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    ensure!(
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(rest),
        "\"{name}\" is no name for a crate: letters, digits, - and _, a letter first"
    );
    let folder = Path::new(name);
    if folder.exists() {
        bail!("{} exists already", folder.display());
    }
    let facade = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../salamander"));
    let manifest =
        MANIFEST.replace("@NAME@", name).replace("@SALAMANDER@", &facade.display().to_string());
    let files = [
        ("Cargo.toml", manifest),
        ("src/main.rs", MAIN.to_string()),
        ("experiment.yaml", EXPERIMENT.replace("@NAME@", name)),
        ("data/train.csv", rings(600, 1)),
        ("data/valid.csv", rings(200, 2)),
        (".gitignore", GITIGNORE.to_string()),
    ];
    for (file, text) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    // The same versions as this program was built with, where its lock file is at hand.
    let lock = facade.join("../../Cargo.lock");
    if lock.is_file() {
        fs::copy(&lock, folder.join("Cargo.lock")).context("Cargo.lock")?;
    }
    outln!("{name} is ready: cd {name} && cargo run --release -- train experiment.yaml")?;
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
