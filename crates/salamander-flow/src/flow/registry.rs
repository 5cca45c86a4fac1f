//! The flows of a program, by name: whoever runs a task finds the same functions there.

use super::Error;
use super::context::FlowContext;
use super::tset::TSet;

/// Builds a flow: what becomes of the input.
pub type BuildFlow = fn(&FlowContext) -> Result<TSet, Error>;

/// The flows of a program; [`flows!`](crate::flows) makes them.
#[derive(Clone, Debug, Default)]
pub struct Flows(Vec<(&'static str, BuildFlow)>);

impl Flows {
    /// Flows by the paths of their functions, of which the last word is the name.
    pub fn new(flows: Vec<(&'static str, BuildFlow)>) -> Self {
        let name = |path: &'static str| path.rsplit("::").next().unwrap_or(path).trim();
        Self(flows.into_iter().map(|(path, build)| (name(path), build)).collect())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// A flow by its name.
    pub fn find(&self, name: &str) -> Result<BuildFlow, Error> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.map(|(_, build)| *build).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let there = match names.as_slice() {
                [] => "this program has none: give it some with flows![..]".to_string(),
                names => format!("there are: {}", names.join(", ")),
            };
            Error::Invalid(format!("no flow \"{name}\" ({there})"))
        })
    }
}

/// The flows of a program: `flows![normalise, text::tokenise]`, functions from a
/// [`FlowContext`](crate::flow::FlowContext) to a [`TSet`](crate::flow::TSet).
#[macro_export]
macro_rules! flows {
    ($($flow:path),* $(,)?) => {
        $crate::flow::Flows::new(::std::vec![$((::core::stringify!($flow), $flow as $crate::flow::BuildFlow)),*])
    };
}
