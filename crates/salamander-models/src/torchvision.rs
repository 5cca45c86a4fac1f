//! torchvision's weights, kept where Python keeps them and fetched from where Python fetches them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use salamander_core::environment::TORCHVISION;
use salamander_data::Blob;

use crate::foreign;

/// The files of `IMAGENET1K_V1`, which `pretrained=True` has always meant in Python. Of the last two networks there is
/// a second version.
const FIRST_WEIGHTS: [(&str, &str); 4] = [
    ("resnet18", "resnet18-f37072fd"),
    ("resnet34", "resnet34-b627a593"),
    ("resnet50", "resnet50-0676ba61"),
    ("mobilenet_v2", "mobilenet_v2-b0353104"),
];

/// The file of a network's weights: the one that is there, or the one that is fetched now.
pub(crate) fn weights(arch: &str) -> Result<PathBuf, String> {
    let folder = torch_home().join("hub/checkpoints");
    let said = std::env::var(TORCHVISION.name);
    let source = said.as_deref().unwrap_or(TORCHVISION.default);
    match kept(arch, &folder) {
        Some(file) => Ok(file),
        None => fetched(arch, source, &folder),
    }
}

/// What Python has fetched of a network: of several versions the first one, else the last of them.
fn kept(arch: &str, folder: &Path) -> Option<PathBuf> {
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let known = [".pth", ".safetensors"].iter().any(|end| name.ends_with(end));
        name.starts_with(&format!("{arch}-")) && known
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_own).collect();
    found.sort();
    let is_first = |file: &&PathBuf| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        FIRST_WEIGHTS.iter().any(|(_, name)| *name == stem)
    };
    found.iter().find(is_first).or(found.last()).cloned()
}

/// Fetches the file of a network into the folder, where it appears once it is whole.
fn fetched(arch: &str, source: &str, folder: &Path) -> Result<PathBuf, String> {
    let wrong = |reason: String| {
        format!(
            "pretrained: {} has no {arch}-*.pth, and {reason}: write `pretrained: FILE`, or `pretrained: false`",
            folder.display()
        )
    };
    let Some((_, name)) = FIRST_WEIGHTS.iter().find(|(known, _)| *known == arch) else {
        return Err(wrong("torchvision's name of it is not known".to_string()));
    };
    let address = format!("{}/{name}.pth", source.trim_end_matches('/'));
    let failed = |error: &dyn std::fmt::Display| wrong(format!("it cannot be fetched ({error})"));
    let mut bytes = Vec::new();
    let blob = Blob::open(Path::new(&address)).and_then(|blob| blob.handle());
    let mut reader = blob.map_err(|error| failed(&error))?.reader(0);
    reader.read_to_end(&mut bytes).map_err(|error| failed(&format!("{address}: {error}")))?;
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    // Several processes may fetch it at once; each has a file of its own until it is whole.
    let unfinished = folder.join(format!(".{name}-{}.pth", std::process::id()));
    let file = folder.join(format!("{name}.pth"));
    let put = fs::write(&unfinished, &bytes).map_err(|error| error.to_string());
    let read = put.and_then(|()| foreign::read(&unfinished).map_err(|error| error.reason));
    let placed = read.and_then(|weights| match weights.is_empty() {
        true => Err(format!("{address} has no weights")),
        false => fs::rename(&unfinished, &file).map_err(|error| error.to_string()),
    });
    placed.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        failed(&error)
    })?;
    Ok(file)
}

/// Where Python keeps what torch has fetched.
fn torch_home() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = || of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let home = of("TORCH_HOME").or_else(|| Some(cache()?.join("torch")));
    home.unwrap_or_else(|| PathBuf::from(".cache/torch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_python_would_take_is_found() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("hub/checkpoints");
        let check = |arch: &str, expected: Option<&str>| {
            let found = kept(arch, &folder);
            let name = found.as_ref().and_then(|file| file.file_name()?.to_str());
            assert_eq!(name, expected);
        };
        check("resnet18", None);
        fs::create_dir_all(&folder).expect("made");
        let put = |name: &str| fs::write(folder.join(name), "").expect("written");
        put("resnet18-f37072fd.pth");
        put("resnet18x-0.pth");
        check("resnet18", Some("resnet18-f37072fd.pth"));
        put("resnet50-11ad3fa6.pth");
        check("resnet50", Some("resnet50-11ad3fa6.pth"));
        put("resnet50-0676ba61.pth");
        check("resnet50", Some("resnet50-0676ba61.pth"));
        put("mobilenet_v2-b0353104.safetensors");
        check("mobilenet_v2", Some("mobilenet_v2-b0353104.safetensors"));
    }

    #[test]
    fn what_is_not_there_is_fetched_once_and_only_whole() {
        let home = tempfile::tempdir().expect("a folder");
        let (mirror, folder) = (home.path().join("mirror"), home.path().join("checkpoints"));
        fs::create_dir(&mirror).expect("made");
        let fetch = |arch: &str| fetched(arch, &mirror.display().to_string(), &folder);
        let error = fetch("resnet18").expect_err("not there");
        assert!(error.contains("has no resnet18-*.pth") && error.contains("cannot be fetched"));
        assert!(error.contains("pretrained: FILE"), "{error}");
        let error = fetch("vgg16").expect_err("not known");
        assert!(error.contains("name of it is not known"), "{error}");

        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/script");
        let weights = fs::read(fixture.join("model_best.pth.tar")).expect("a fixture");
        let there = mirror.join("resnet18-f37072fd.pth");
        fs::write(&there, &weights[..weights.len() / 2]).expect("written");
        fetch("resnet18").expect_err("half of it");
        assert_eq!(fs::read_dir(&folder).expect("made").count(), 0, "nothing is left of it");
        fs::write(&there, &weights).expect("written");
        let file = fetch("resnet18").expect("fetched");
        assert_eq!(fs::read(&file).expect("there"), weights);
        assert_eq!(kept("resnet18", &folder), Some(file));
    }
}
