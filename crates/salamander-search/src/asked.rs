//! `--search N`: a search of a file that has no searcher, over the ranges that the model's hyperparameters carry.

use salamander_core::experiment::SearcherName;
use salamander_core::hparams::{HparamInfo, SearchRange};
use salamander_core::yaml::{self, Error, Node, SourcePosition, Value};
use serde_json::{Value as Json, json};

use crate::SearchFile;

/// A search that was asked for besides the file.
#[derive(Clone, Copy, Debug)]
pub struct AskedSearch<'a> {
    /// Trials in all.
    pub trials: u64,
    /// Trials at a time, where the file does not say: what learns from results should have some.
    pub concurrent: u64,
    /// What the model says of its hyperparameters.
    pub model: &'a [HparamInfo],
    /// The `--set` arguments: a hyperparameter that is set by hand stays as it is.
    pub sets: &'a [String],
}

/// A range as it is written in a file.
pub fn written(range: &SearchRange, integer: bool) -> Json {
    match range {
        SearchRange::Between { low, high, log } if integer => {
            json!({"suggest_int": {"low": *low as i64, "high": *high as i64, "log": log}})
        }
        SearchRange::Between { low, high, log } => {
            json!({"suggest_float": {"low": low, "high": high, "log": log}})
        }
        SearchRange::Choices(values) => json!({"suggest_categorical": {"choices": values}}),
    }
}

impl SearchFile {
    /// This file as a search of so many trials. Every hyperparameter of which the model knows a range is searched for,
    /// also one that the file has a plain value for; what the file writes as a range, as a `const` or as a mapping
    /// stays, and so does what was set by hand. A file without a searcher gets TPE with asynchronous halving.
    pub fn asked(self, asked: &AskedSearch<'_>) -> Result<Self, Error> {
        let place = SourcePosition::Argument(format!("--search {}", asked.trials));
        let is_set = |name: &str| {
            let field = format!("hyperparameters.{name}");
            let names = asked.sets.iter().filter_map(|set| set.split_once('='));
            names.into_iter().any(|(path, _)| {
                path == field || path.strip_prefix(&field).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let (mut root, searcher) = (self.root, &self.experiment.searcher);
        let mut lay = |path: &str, value: &Json| put(&mut root, path, value, &place);
        lay("searcher.max_trials", &json!(asked.trials))?;
        if searcher.name == SearcherName::Single {
            lay("searcher.name", &json!(SearcherName::Tpe))?;
            if searcher.scheduler.is_none() {
                lay("searcher.scheduler", &json!("async_halving"))?;
            }
        }
        let learns = matches!(searcher.name, SearcherName::Single | SearcherName::Tpe);
        if learns && searcher.max_concurrent_trials.is_none() {
            lay("searcher.max_concurrent_trials", &json!(asked.concurrent))?;
        }
        for info in asked.model {
            let Some(range) = &info.search else { continue };
            let node = root.get("hyperparameters").and_then(|all| all.get(info.name));
            let is_plain = node.is_none_or(|node| !matches!(node.value, Value::Map(_)));
            if is_plain && !is_set(info.name) {
                let path = format!("hyperparameters.{}", info.name);
                put(&mut root, &path, &written(range, info.is_integer()), &place)?;
            }
        }
        let file = Self::from_root(root)?;
        match file.space().has_ranges() {
            true => Ok(file),
            false => Err(Error::at(
                &place,
                "there is nothing to search for: write a range into hyperparameters, such as \
                 learning_rate: {loguniform: [0.001, 0.1]}, or give a field of the model one: \
                 #[hparam(range = 1e-3..=0.1, log)]",
            )),
        }
    }
}

fn put(root: &mut Node, path: &str, value: &Json, place: &SourcePosition) -> Result<(), Error> {
    // JSON is YAML; its lines mean nothing in the file.
    let mut node = yaml::parse(&value.to_string())?;
    node.set_place(place);
    root.put(path, node, place)
}

#[cfg(test)]
mod tests {
    use salamander_core::hparams::AllowedRange;

    use super::*;

    fn model() -> Vec<HparamInfo> {
        let info = |name, kind, search| {
            let range = AllowedRange { min: Some(0.0), max: Some(100.0) };
            HparamInfo { name, kind, default: Some("1".to_string()), range, search }
        };
        let log = SearchRange::Between { low: 0.001, high: 0.1, log: true };
        let units = SearchRange::Between { low: 2.0, high: 64.0, log: false };
        let choices = SearchRange::Choices(vec![json!("relu"), json!("tanh")]);
        vec![
            info("rate", "f64", Some(log)),
            info("units", "usize", Some(units)),
            info("activation", "String", Some(choices)),
            info("layers", "usize", None),
        ]
    }

    fn asked(text: &str, sets: &[&str]) -> Result<SearchFile, String> {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let model = model();
        let asked = AskedSearch { trials: 20, concurrent: 2, model: &model, sets: &sets };
        let file = SearchFile::parse(text, &sets).and_then(|file| file.asked(&asked));
        let file = file.and_then(|file| file.space().check(&model).map(|()| file));
        file.map_err(|error| error.to_string())
    }

    fn drawn(file: &SearchFile) -> Vec<String> {
        file.space().drawn().map(|(_, path, _)| path).collect()
    }

    #[test]
    fn a_file_without_a_searcher_searches_the_ranges_of_the_model() {
        let file = asked("hyperparameters: {rate: 0.5}", &[]).expect("valid");
        assert_eq!(drawn(&file), ["rate", "units", "activation"]);
        let method = file.method(1).expect("a method");
        assert_eq!((method.max_trials, method.concurrent), (20, 2));
        assert_eq!(method.proposals, crate::Proposals::Tpe { startup: 10 });
        let values = file.space().values(&file.space().random(1, 1));
        assert!(values["units"].is_u64(), "{values}");
        // It is kept as a file that says the same without the question.
        let again = SearchFile::parse(&file.to_yaml(), &[]).expect("valid");
        assert_eq!(again.method(1).expect("a method"), method);
        assert_eq!(again.space().values(&again.space().random(1, 1)), values);
    }

    #[test]
    fn what_somebody_has_said_stays() {
        let text = "hyperparameters:\n  rate: {type: const, val: 0.5}\n  units: {randint: [1, 3]}\n\
                    searcher: {name: random, max_trials: 3, max_concurrent_trials: 5}";
        let file = asked(text, &["hyperparameters.activation=relu"]).expect("valid");
        assert_eq!(drawn(&file), ["units"]);
        let method = file.method(1).expect("a method");
        assert_eq!((method.max_trials, method.concurrent), (20, 5));
        assert_eq!(method.proposals, crate::Proposals::Random);
    }

    #[test]
    fn nothing_to_search_for_is_an_error() {
        let sets = ["rate", "units", "activation"].map(|name| format!("hyperparameters.{name}=1"));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let error = asked("{}", &sets).expect_err("nothing is left");
        assert!(error.starts_with("--search 20: there is nothing to search for"), "{error}");
    }
}
