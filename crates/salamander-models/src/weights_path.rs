//! The hyperparameter `pretrained`: true, false or a file, whose weights a network begins with.

use std::path::{Path, PathBuf};

use salamander_core::hparams::HparamValue;
use salamander_core::yaml::{Error, Node, Value};

/// Whose weights a network begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsPath {
    /// None: fresh ones.
    No,
    /// Those that torchvision has fetched for Python on this machine.
    Torchvision,
    /// Those of this file.
    File(PathBuf),
}

impl HparamValue for WeightsPath {
    fn from_node(node: &Node) -> Result<Self, Error> {
        match &node.value {
            Value::Bool(true) => Ok(Self::Torchvision),
            Value::Bool(false) | Value::Null => Ok(Self::No),
            Value::Text(path) => Ok(Self::File(path.into())),
            _ => Err(Error::at(&node.place, "write true, false or the path of a file")),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::No => false.into(),
            Self::Torchvision => true.into(),
            Self::File(path) => path.to_string_lossy().into(),
        }
    }
}

/// The ends of the names of torchvision's `IMAGENET1K_V1`, which `pretrained=True` has always meant: of ResNet-18, 34
/// and 50 and of MobileNetV2. Of the last two there is a second version.
const FIRST_WEIGHTS: [&str; 4] = ["-f37072fd", "-b627a593", "-0676ba61", "-b0353104"];

impl WeightsPath {
    /// The file; nothing for fresh weights. An error says how to get one.
    pub fn find(&self, arch: &str) -> Result<Option<PathBuf>, String> {
        self.file(arch, &torch_home())
    }

    /// The file; nothing for fresh weights. Python keeps those of torchvision in a folder of `home`, under the
    /// architecture's name and a part of their hash. Of several the one is taken that `pretrained=True` means in
    /// Python, else the last one.
    fn file(&self, arch: &str, home: &Path) -> Result<Option<PathBuf>, String> {
        match self {
            Self::No => Ok(None),
            Self::File(path) => Ok(Some(path.clone())),
            Self::Torchvision => {
                let folder = home.join("hub/checkpoints");
                let is_own = |path: &PathBuf| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let known = [".pth", ".safetensors"].iter().any(|end| name.ends_with(end));
                    name.starts_with(&format!("{arch}-")) && known
                };
                let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
                let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_own).collect();
                found.sort();
                let first = |file: &&PathBuf| {
                    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                    FIRST_WEIGHTS.iter().any(|hash| stem.ends_with(*hash))
                };
                match found.iter().find(first).or(found.last()) {
                    Some(file) => Ok(Some(file.clone())),
                    None => Err(format!(
                        "pretrained: {} has no {arch}-*.pth: fetch it with Python (torchvision.models.{arch}(\
                         weights=\"IMAGENET1K_V1\")), or write `pretrained: FILE`, or `pretrained: false`",
                        folder.display()
                    )),
                }
            }
        }
    }
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
    fn torchvisions_files_are_found_where_python_keeps_them() {
        let home = tempfile::tempdir().expect("a folder");
        let check = |arch: &str, expected: Result<Option<&str>, &str>| {
            let found = WeightsPath::Torchvision.file(arch, home.path());
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let found = found.expect("a file");
                    assert_eq!(found.file_name().and_then(|name| name.to_str()), expected);
                }
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, _) => panic!("{found:?}"),
            }
        };
        check("resnet18", Err("has no resnet18-*.pth: fetch it with Python"));
        let folder = home.path().join("hub/checkpoints");
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("resnet18-f37072fd.pth"), "").expect("written");
        std::fs::write(folder.join("resnet18x-0.pth"), "").expect("written");
        check("resnet18", Ok(Some("resnet18-f37072fd.pth")));
        std::fs::write(folder.join("resnet50-11ad3fa6.pth"), "").expect("written");
        check("resnet50", Ok(Some("resnet50-11ad3fa6.pth")));
        std::fs::write(folder.join("resnet50-0676ba61.pth"), "").expect("written");
        check("resnet50", Ok(Some("resnet50-0676ba61.pth")));
        let converted = "mobilenet_v2-b0353104.safetensors";
        std::fs::write(folder.join(converted), "").expect("written");
        check("mobilenet_v2", Ok(Some(converted)));
        assert_eq!(WeightsPath::No.file("resnet18", home.path()), Ok(None));
    }
}
