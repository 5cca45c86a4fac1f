//! Names of types: `grep` is how people read, so a name stands alone in a search, or nearly.

use std::collections::BTreeMap;

use super::{BrokenRule, rules};

/// So many types of one name are too many.
const TOO_MANY: usize = 3;
/// Where types are counted.
const FOLDERS: [&str; 4] = ["crates/", "kernels/", "model_zoo/", "proto/"];
/// Names that are read with their module's, as `task_queue::Error`; in the zoo `Hp`, the hyperparameters of a model.
const OF_THEIR_MODULE: [&str; 4] = ["Error", "Args", "Command", "Hp"];
const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// All types of the workspace's programs, by their names.
#[derive(Default)]
pub(super) struct TypeNames {
    types: BTreeMap<String, Vec<TypePlace>>,
}

struct TypePlace {
    path: String,
    line: usize,
}

impl TypeNames {
    /// Takes the types of a file, those of its tests left out.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        let counts = FOLDERS.iter().any(|folder| path.starts_with(folder));
        if !counts || !path.contains("/src/") || path.ends_with("tests.rs") {
            return;
        }
        for (index, line) in text.lines().take(rules::code_lines(text)).enumerate() {
            let name = declared(line).filter(|name| !OF_THEIR_MODULE.contains(name));
            if let Some(name) = name {
                let place = TypePlace { path: path.to_owned(), line: index + 1 };
                self.types.entry(name.to_owned()).or_default().push(place);
            }
        }
    }

    /// What is wrong: each name that too many have.
    pub(super) fn repeated(&self) -> Vec<BrokenRule> {
        let too_many = self.types.iter().filter(|(_, places)| places.len() >= TOO_MANY);
        too_many.filter_map(|(name, places)| broken(name, places)).collect()
    }
}

fn broken(name: &str, places: &[TypePlace]) -> Option<BrokenRule> {
    let (last, others) = places.split_last()?;
    let others: Vec<String> =
        others.iter().map(|place| format!("{}:{}", place.path, place.line)).collect();
    let advice = format!(
        "`{name}` is the name of {} types (also {}): give it one that stands alone in a search",
        places.len(),
        others.join(", ")
    );
    Some(BrokenRule::new(&last.path, last.line, advice))
}

/// The type that a line declares; types within functions and traits are indented.
fn declared(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) => match rest.strip_prefix('(') {
            Some(limited) => limited.split_once(')')?.1,
            None => rest,
        },
        None => line,
    };
    // A line that is indented begins with two spaces at least, and so with no keyword here.
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let name = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    (KEYWORDS.contains(&keyword) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of repeated names among these files.
    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let mut names = TypeNames::default();
        files.iter().for_each(|(path, text)| names.add(path, text));
        let failures = names.repeated();
        failures.into_iter().map(|failure| (failure.path, failure.line)).collect()
    }

    #[test]
    fn a_third_type_of_one_name_is_found() {
        let (first, second) = ("crates/a/src/lib.rs", "kernels/src/cpu.rs");
        let two = [(first, "pub struct Cache {\n"), (second, "pub(in crate::a) enum Cache {\n")];
        assert!(found(&two).is_empty());
        let third = ("proto/src/client.rs", "//! Why.\ntype Cache = u32;\n");
        let with_third = [two[0], two[1], third];
        assert_eq!(found(&with_third), [("proto/src/client.rs".to_string(), 2)]);
    }

    #[test]
    fn types_of_traits_tests_and_modules_are_not_counted() {
        let text = "pub enum Error {\nstruct Cache;\n    type Cache = u32;\n#[cfg(test)]\nmod tests {\n\
                    struct Cache;\n}\n";
        let files = [("crates/a/src/a.rs", text), ("crates/a/src/b.rs", text)];
        assert!(found(&files).is_empty());
        let more = [("crates/a/src/c_tests.rs", text), ("tests/src/chaos.rs", text)];
        assert!(found(&[files[0], files[1], more[0], more[1]]).is_empty());
        let errors = [("crates/a/src/c.rs", "pub enum Error {\n")];
        assert!(found(&[files[0], files[1], errors[0]]).is_empty());
        let models = ["a", "b", "c"].map(|name| format!("model_zoo/src/{name}.rs"));
        let models = [0, 1, 2].map(|at| (models[at].as_str(), "pub struct Hp {\n"));
        assert!(found(&models).is_empty());
        assert_eq!(found(&models.map(|(path, _)| (path, "pub struct Mlp {\n"))).len(), 1);
    }

    #[test]
    fn a_type_is_known_by_its_declaration() {
        assert_eq!(declared("pub unsafe trait Shared {"), Some("Shared"));
        assert_eq!(declared("struct Ids<'a>(&'a [u64]);"), Some("Ids"));
        assert_eq!(declared("    type Item = u32;"), None);
        assert_eq!(declared("// struct Ids"), None);
        assert_eq!(declared("}"), None);
    }
}
