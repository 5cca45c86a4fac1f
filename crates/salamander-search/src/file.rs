//! An experiment file that is a search, and the experiments of its trials.

use salamander_core::experiment::{Experiment, Length, Searcher, SearcherName};
use salamander_core::seed::derive;
use salamander_core::yaml::{self, Error, Key, Node, Value};
use serde_json::Value as Json;

use crate::machine::{Search, TrialId};
use crate::method::{Method, with_units};
use crate::space::Space;

/// An experiment file with all that a search needs to know.
#[derive(Clone, Debug)]
pub struct SearchFile {
    pub(crate) root: Node,
    space: Space,
    pub(crate) experiment: Experiment,
}

impl SearchFile {
    /// Reads a file's text, with `--set a.b=v` arguments laid over it.
    pub fn parse(text: &str, sets: &[String]) -> Result<Self, Error> {
        let mut root = yaml::parse(text)?;
        for set in sets {
            root.set(set)?;
        }
        Self::from_root(root)
    }

    pub(crate) fn from_root(root: Node) -> Result<Self, Error> {
        let hyperparameters = root.get("hyperparameters").cloned();
        let hyperparameters = hyperparameters.unwrap_or_else(Node::empty_map);
        let space = Space::read(&hyperparameters)?;
        // Any point stands for all: the rest of the file is checked with it.
        let experiment = with_values(&root, &space.values(&space.random(0, 1)))?;
        Ok(Self { root, space, experiment })
    }

    /// Whether this is more than one trial with known hyperparameters.
    pub fn is_search(&self) -> bool {
        self.experiment.searcher.name != SearcherName::Single || self.space.has_ranges()
    }

    /// The file's settings, with the hyperparameters of no particular trial.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// What the hyperparameters may become.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The search, from the file's seed, or from this one.
    pub fn search(&self, seed: u32) -> Result<Search, Error> {
        Search::new(self.method(seed)?, self.space.clone())
    }

    /// The method, checked.
    pub fn method(&self, seed: u32) -> Result<Method, Error> {
        let Self { experiment, space, root } = self;
        let seed = experiment.reproducibility.experiment_seed.unwrap_or(seed);
        let place = root.get("searcher").unwrap_or(root);
        let mut method =
            Method::new(&experiment.searcher, experiment.length(), u64::from(seed), space, place)?;
        method.metric = experiment.metric().to_string();
        Ok(method)
    }

    /// The file as it was read, with what was laid over it.
    pub fn to_yaml(&self) -> String {
        yaml::to_yaml(&self.to_json())
    }

    /// The same as a tree.
    pub fn to_json(&self) -> Json {
        self.root.to_json()
    }

    /// The experiment of one trial: an ordinary one, that pauses where the search looks at it. Its own seed is that of
    /// `origin`: the trial itself, or the one whose checkpoint it goes on from.
    pub fn trial(
        &self,
        method: &Method,
        origin: TrialId,
        hparams: &Json,
        until: u64,
    ) -> Result<Experiment, Error> {
        let mut experiment = with_values(&self.root, hparams)?;
        let full = method.length;
        let settings = experiment.settings_mut();
        let Searcher { metric, smaller_is_better, .. } = settings.searcher.clone();
        // In the promotion form a trial goes further than the file's length.
        let longest = match until > method.longest() {
            true => with_units(full, until),
            false => full,
        };
        settings.max_length = None;
        settings.searcher = Searcher {
            metric,
            smaller_is_better,
            max_length: Some(longest),
            pause_at: pause(longest, until),
            ..Searcher::default()
        };
        let seed = (derive(method.seed, &[origin.0, 0x7365_6564]) >> 33) as u32;
        settings.reproducibility.experiment_seed = Some(seed);
        Ok(experiment)
    }
}

/// Where a trial pauses; not at its very end.
fn pause(full: Length, until: u64) -> Option<Length> {
    let pause = with_units(full, until);
    (pause != full).then_some(pause)
}

/// The experiment with these hyperparameters.
fn with_values(root: &Node, values: &Json) -> Result<Experiment, Error> {
    let mut root = root.clone();
    let place = root.get("hyperparameters").map_or(root.place.clone(), |node| node.place.clone());
    // JSON is YAML; its lines mean nothing in the file.
    let node = Node { place: place.clone(), ..yaml::parse(&values.to_string())? };
    root.take("hyperparameters");
    if let Value::Map(entries) = &mut root.value {
        entries.push((Key { name: "hyperparameters".to_string(), place }, node));
    }
    Experiment::from_root(root)
}
