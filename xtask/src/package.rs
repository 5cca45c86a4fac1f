//! Packs what is published as crates.io would get it, and builds a crate that knows nothing but the packages.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

/// Where the packages are unpacked, within the target folder.
const UNPACKED: &str = "packages";

/// Packs every crate that is published; with `check` unpacks them and checks a crate that uses them.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let metadata = metadata(root)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target folder")?;
    let (published, kept): (Vec<&Value>, Vec<&Value>) = packages(&metadata)?
        .iter()
        // `publish = false` is an empty list of registries.
        .partition(|package| package["publish"].is_null());
    let mut args = vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"];
    for package in &kept {
        args.extend(["--exclude", name(package)]);
    }
    crate::cargo(root, &args, &[])?;
    let files: Vec<String> = published
        .iter()
        .map(|package| format!("{}-{}", name(package), package["version"].as_str().unwrap_or("")))
        .collect();
    if check { build_user(root, Path::new(target), &files) } else { Ok(()) }
}

/// Checks a crate outside of the workspace whose only dependency is the packed facade, without its default features.
/// With the workspace's profile and lock file, so that it shares Burn with `cargo check -p salamander
/// --no-default-features` in the target folder.
fn build_user(root: &Path, target: &Path, files: &[String]) -> anyhow::Result<()> {
    let folder = target.join(UNPACKED);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder.join("user/src")).with_context(|| folder.display().to_string())?;
    let mut patches = String::new();
    for file in files {
        let archive = target.join("package").join(format!("{file}.crate"));
        // `m`: with the times of now. Packages carry one fixed time, by which cargo would take an older package's build
        // in a kept target folder for this one's.
        let status = Command::new("tar").arg("xzmf").arg(&archive).arg("-C").arg(&folder).status();
        ensure!(
            status.context("cannot start tar")?.success(),
            "cannot unpack {}",
            archive.display()
        );
        let name = file.rsplit_once('-').map_or(file.as_str(), |(name, _)| name);
        patches.push_str(&format!("{name} = {{ path = \"../{file}\" }}\n"));
    }
    let user = folder.join("user");
    let workspace = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    fs::write(user.join("Cargo.toml"), manifest(&patches, dev_profile(&workspace)))?;
    fs::write(user.join("src/lib.rs"), USER)?;
    fs::copy(root.join("Cargo.lock"), user.join("Cargo.lock")).context("Cargo.lock")?;
    let target = target.display().to_string();
    crate::cargo(&user, &["check", "--offline"], &[("CARGO_TARGET_DIR", &target)])
}

/// Versions as a stranger writes them; the packages stand in for crates.io.
fn manifest(patches: &str, profile: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nsalamander = {{ version = \"{version}\", default-features = false }}\n\n\
         [patch.crates-io]\n{patches}\n[workspace]\n\n{profile}"
    )
}

/// The part of a manifest that says how development builds are made.
fn dev_profile(manifest: &str) -> &str {
    let begin = manifest.find("[profile.dev]").unwrap_or(manifest.len());
    let profile = &manifest[begin..];
    &profile[..profile.find("\n[profile.release").unwrap_or(profile.len())]
}

const USER: &str = "//! A crate that uses the packages.\n\n\
                    pub use salamander::prelude::*;\n\n\
                    #[derive(Hparams)]\n\
                    pub struct Hp {\n    #[hparam(default = 0.1)]\n    pub rate: f64,\n}\n";

fn packages(metadata: &Value) -> anyhow::Result<&Vec<Value>> {
    metadata["packages"].as_array().context("cargo lists no packages")
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

/// What cargo knows of the workspace.
fn metadata(root: &Path) -> anyhow::Result<Value> {
    let mut command = Command::new(crate::cargo_program());
    command.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root);
    let output = command.output().context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("cargo metadata wrote no JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_names_versions_and_finds_the_packages() {
        let text = manifest("salamander = { path = \"../salamander-0.1.0\" }\n", "[profile.dev]\n");
        assert!(text.contains("salamander = { version = \"0."), "{text}");
        assert!(text.contains("[patch.crates-io]\nsalamander = { path ="), "{text}");
    }

    #[test]
    fn the_profile_of_development_is_all_of_it() {
        let dev = "[profile.dev]\ndebug = 1\n\n[profile.dev.package]\na.opt-level = 3\n";
        assert_eq!(dev_profile(&format!("[workspace]\n{dev}\n[profile.release]\n")), dev);
        assert_eq!(dev_profile("[workspace]\n"), "");
    }
}
