//! Hyperparameters: read from the experiment into the model's own typed struct, by derive.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::yaml::{Error, Node, Value, from_node};

/// Names in `hyperparameters` that belong to the framework, whatever the model declares.
const RESERVED: [&str; 1] = ["global_batch_size"];

/// A struct of hyperparameters; made by `#[derive(Hparams)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not hold hyperparameters",
    label = "put `#[derive(Hparams)]` on this struct, or use `()` for none"
)]
pub trait Hparams: Sized + Send + Sync + 'static {
    /// Name, type, default and range of each, for `salamander models` and for error messages.
    fn describe() -> Vec<HparamInfo>;
    /// Reads all of them.
    fn read(fields: &Fields<'_>) -> Result<Self, Error>;
    /// The values in force.
    fn to_json(&self) -> Json;
}

/// A model without hyperparameters.
impl Hparams for () {
    fn describe() -> Vec<HparamInfo> {
        Vec::new()
    }

    fn read(_fields: &Fields<'_>) -> Result<Self, Error> {
        Ok(())
    }

    fn to_json(&self) -> Json {
        Json::Object(serde_json::Map::new())
    }
}

/// What is known about one hyperparameter.
#[derive(Clone, Debug, PartialEq)]
pub struct HparamInfo {
    /// Its name in the experiment file.
    pub name: &'static str,
    /// Its Rust type.
    pub kind: &'static str,
    /// Its default, if it has one.
    pub default: Option<String>,
    /// The values that are allowed.
    pub range: AllowedRange,
    /// What a search draws it from where the experiment file does not say.
    pub search: Option<SearchRange>,
}

impl HparamInfo {
    /// Whether its values are whole numbers.
    pub fn is_integer(&self) -> bool {
        let kind = self.kind.strip_prefix("Option<").unwrap_or(self.kind);
        let kind = kind.strip_suffix('>').unwrap_or(kind);
        let size = kind.strip_prefix(['u', 'i']).unwrap_or_default();
        size == "size" || size.parse::<u8>().is_ok()
    }
}

/// The least and the greatest value that a hyperparameter may have, if there are such.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AllowedRange {
    /// The least.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
}

/// What a model says that a search may try.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchRange {
    /// Numbers between two, which belong to them.
    Between {
        /// The least.
        low: f64,
        /// The greatest.
        high: f64,
        /// Whether their logarithms are drawn evenly, for what spans powers of ten.
        log: bool,
    },
    /// Any of these.
    Choices(Vec<Json>),
}

/// A model's word that its hyperparameters do not fit together; the error of `Trial::build`. In a search another trial
/// takes the place of the one that is refused, which does not count.
///
/// ```
/// use salamander_core::hparams::InvalidHparams;
///
/// let error = InvalidHparams::new("heads must divide width");
/// assert_eq!(error.to_string(), "invalid hyperparameters: heads must divide width");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid hyperparameters: {reason}")]
pub struct InvalidHparams {
    /// What does not fit.
    pub reason: String,
}

impl InvalidHparams {
    /// With what does not fit.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Reads a model's hyperparameters; unknown names are refused with the nearest known one.
pub fn read<H: Hparams>(node: &Node) -> Result<H, Error> {
    let known = H::describe();
    let wrap = |error: Error| error.within("hyperparameters");
    for (key, _) in node.entries() {
        let name = key.name.as_str();
        if !RESERVED.contains(&name) && !known.iter().any(|info| info.name == name) {
            let names = known.iter().map(|info| info.name).chain(RESERVED);
            return Err(wrap(Error::unknown_field(name, names).or_at(&key.place)));
        }
    }
    H::read(&Fields { node }).map_err(|error| wrap(error.or_at(&node.place)))
}

/// The mapping that a derived `read` takes its fields from.
pub struct Fields<'a> {
    node: &'a Node,
}

impl Fields<'_> {
    /// One field: from the file, else its default, checked against its range.
    pub fn take<T: HparamValue>(
        &self,
        name: &str,
        default: Option<T>,
        range: AllowedRange,
    ) -> Result<T, Error> {
        let Some(node) = self.node.get(name) else {
            return default.ok_or_else(|| {
                Error::anywhere(format!("the hyperparameter \"{name}\" is missing"))
            });
        };
        let node = constant(node).map_err(|error| error.within(name))?;
        let at = |error: Error| error.or_at(&node.place).within(name);
        let value = T::from_node(node).map_err(at)?;
        if let Some(number) = number(node) {
            let AllowedRange { min, max } = range;
            if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                let bound = |b: Option<f64>| b.map_or("any".to_string(), |b| b.to_string());
                let range = format!("{} to {}", bound(min), bound(max));
                return Err(at(Error::anywhere(format!("{number} is outside of {range}"))));
            }
        }
        Ok(value)
    }
}

/// Determined's `{type: const, val: v}` is `v`; ranges belong to a search.
fn constant(node: &Node) -> Result<&Node, Error> {
    let Some(Value::Text(kind)) = node.get("type").map(|node| &node.value) else {
        return Ok(node);
    };
    match (kind.as_str(), node.get("val")) {
        ("const", Some(value)) => Ok(value),
        ("const", None) => Err(Error::at(&node.place, "a const needs a \"val\"")),
        ("int" | "double" | "log" | "categorical", _) => Err(Error::at(
            &node.place,
            format!(
                "a range ({kind}) needs a search, and one value is needed here \
                 (`salamander train` and `preview-search` take searches)"
            ),
        )),
        _ => Ok(node),
    }
}

/// The value for the range check, when it is a number.
fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}

/// A type that a hyperparameter can have.
#[diagnostic::on_unimplemented(
    message = "a hyperparameter cannot be a `{Self}`",
    label = "use a number, bool, String, PathBuf, or a Vec or Option of those"
)]
pub trait HparamValue: Sized {
    /// Reads it.
    fn from_node(node: &Node) -> Result<Self, Error>;
    /// The value in force.
    fn to_json(&self) -> Json;
}

// No implementation is recommended: the compiler would list a choice of them that changes with the crate.
macro_rules! scalars {
    ($($type:ty),*) => {
        $(#[diagnostic::do_not_recommend]
        impl HparamValue for $type {
            fn from_node(node: &Node) -> Result<Self, Error> {
                from_node(node)
            }
            fn to_json(&self) -> Json {
                json!(self)
            }
        })*
    };
}

scalars!(f32, f64, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, bool, String, PathBuf);

#[diagnostic::do_not_recommend]
impl<T: HparamValue> HparamValue for Vec<T> {
    fn from_node(node: &Node) -> Result<Self, Error> {
        match &node.value {
            Value::List(items) => items.iter().map(T::from_node).collect(),
            _ => Err(Error::at(&node.place, "a list is needed here")),
        }
    }

    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }
}

#[diagnostic::do_not_recommend]
impl<T: HparamValue> HparamValue for Option<T> {
    fn from_node(node: &Node) -> Result<Self, Error> {
        match node.value {
            Value::Null => Ok(None),
            _ => T::from_node(node).map(Some),
        }
    }

    fn to_json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::to_json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    struct Hp(f64, Vec<u32>);

    impl Hparams for Hp {
        fn describe() -> Vec<HparamInfo> {
            let range = AllowedRange { min: Some(0.0), max: Some(1.0) };
            let (name, search) = ("learning_rate", None);
            let rate = HparamInfo { name, kind: "f64", default: None, range, search };
            vec![rate.clone(), HparamInfo { name: "layers", kind: "Vec<u32>", ..rate }]
        }
        fn read(fields: &Fields<'_>) -> Result<Self, Error> {
            let range = AllowedRange { min: Some(0.0), max: Some(1.0) };
            let rate = fields.take("learning_rate", None, range)?;
            Ok(Self(rate, fields.take("layers", Some(vec![8]), AllowedRange::default())?))
        }
        fn to_json(&self) -> Json {
            Json::Null
        }
    }

    fn check(text: &str, expected: &str) {
        let got = match parse(text).and_then(|node| read::<Hp>(&node)) {
            Ok(hp) => format!("{} {:?}", hp.0, hp.1),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected, "for {text}");
    }

    #[test]
    fn whole_numbers_are_known_by_their_type() {
        let info = |kind| HparamInfo { kind, ..Hp::describe().swap_remove(0) };
        let integers = ["usize", "u8", "i64", "Option<u32>"];
        assert!(integers.iter().all(|kind| info(kind).is_integer()));
        let others = ["f64", "bool", "String", "Vec<u32>", "Option<f32>", "image"];
        assert!(!others.iter().any(|kind| info(kind).is_integer()));
    }

    #[test]
    fn values_defaults_and_mistakes() {
        check("learning_rate: 0.5\nglobal_batch_size: 64", "0.5 [8]");
        check("learning_rate: {type: const, val: 1}\nlayers: [1, 2]", "1 [1, 2]");
        check(
            "layers: []",
            "line 1: hyperparameters: the hyperparameter \"learning_rate\" is missing",
        );
        check(
            "learning_rate: 1\nlerning_rate: 1",
            "line 2: unknown field \"lerning_rate\" in hyperparameters \
             (did you mean \"learning_rate\"?)",
        );
        check("learning_rate: 2", "line 1: hyperparameters.learning_rate: 2 is outside of 0 to 1");
        check(
            "learning_rate: {type: double, minval: 0, maxval: 1}",
            "line 1: hyperparameters.learning_rate: a range (double) needs a search, \
             and one value is needed here (`salamander train` and `preview-search` take searches)",
        );
    }
}
