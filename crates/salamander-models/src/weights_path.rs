//! The hyperparameter `pretrained`: true, false or a file, whose weights a network begins with.

use std::path::PathBuf;

use salamander_core::hparams::HparamValue;
use salamander_core::yaml::{Error, Node, Value};

use crate::torchvision;

/// Whose weights a network begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsPath {
    /// None: fresh ones.
    No,
    /// torchvision's, as it has fetched them for Python on this machine, or as they are fetched now.
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

impl WeightsPath {
    /// The file; nothing for fresh weights. Those of torchvision are fetched where they are not there yet, as in
    /// Python. An error says how to get them.
    pub fn find(&self, arch: &str) -> Result<Option<PathBuf>, String> {
        match self {
            Self::No => Ok(None),
            Self::File(path) => Ok(Some(path.clone())),
            Self::Torchvision => torchvision::weights(arch).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::hparams::HparamValue as _;
    use salamander_core::yaml;

    use super::*;

    #[test]
    fn it_is_a_choice_or_a_path() {
        let check = |text: &str, expected: Option<WeightsPath>| {
            let node = yaml::parse(text).expect("YAML");
            let found = WeightsPath::from_node(&node);
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{text}: {found:?}");
        };
        check("True", Some(WeightsPath::Torchvision));
        check("false", Some(WeightsPath::No));
        check("weights/net.pth", Some(WeightsPath::File("weights/net.pth".into())));
        check("3", None);
        assert_eq!(WeightsPath::No.find("resnet18"), Ok(None));
    }
}
