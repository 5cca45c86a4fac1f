//! The search space: what the `hyperparameters` of an experiment file may become.
//!
//! A value is a function of (seed, trial, path of the hyperparameter): adding one leaves the others as they were.

mod distribution;
mod kinds;
mod limits;
mod numbers;
mod read;

use salamander_core::seed::{Rng, derive};
use salamander_core::yaml::{Error, Node};
use serde_json::{Map, Value as Json};

pub(crate) use distribution::BELOW_ONE;
pub use distribution::Distribution;
pub use numbers::{Grain, NumberRange, RangeScale};

/// A grid of more points than this is a mistake.
const MOST_POINTS: usize = 100_000;

/// All hyperparameters of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// In the order of the file.
    leaves: Vec<Leaf>,
}

/// One hyperparameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaf {
    pub(crate) path: Vec<String>,
    pub(crate) kind: LeafKind,
    /// It is there only if all of these hold.
    pub(crate) when: Vec<Condition>,
    pub(crate) place: salamander_core::yaml::SourcePosition,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LeafKind {
    Constant(Json),
    Drawn(Distribution),
}

/// Another hyperparameter has one of these values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) leaf: usize,
    pub(crate) values: Vec<Json>,
}

/// A point of the space: a place in `[0, 1)` for each leaf; constants have none.
pub type SpacePoint = Vec<Option<f64>>;

/// Where a point lies along each axis that is drawn from: in the middle of the places that give the same value; `None`
/// where it is not there. Points that differ only in what changes nothing are equal.
pub(crate) type LocatedPoint = Vec<Option<f64>>;

impl Space {
    /// Reads the `hyperparameters` of a file.
    pub fn read(hyperparameters: &Node) -> Result<Self, Error> {
        read::space(hyperparameters).map_err(|error| error.within("hyperparameters"))
    }

    /// Whether there is anything to search for.
    pub fn has_ranges(&self) -> bool {
        self.leaves.iter().any(|leaf| matches!(leaf.kind, LeafKind::Drawn(_)))
    }

    /// The distributions, with the dotted paths of their hyperparameters and their places in a [`SpacePoint`].
    pub fn drawn(&self) -> impl Iterator<Item = (usize, String, &Distribution)> {
        self.leaves.iter().enumerate().filter_map(|(index, leaf)| match &leaf.kind {
            LeafKind::Drawn(distribution) => Some((index, leaf.path.join("."), distribution)),
            LeafKind::Constant(_) => None,
        })
    }

    /// The random point of a trial.
    pub fn random(&self, seed: u64, trial: u64) -> SpacePoint {
        let draw = |leaf: &Leaf| match leaf.kind {
            LeafKind::Drawn(_) => Some(Rng::new(stream(seed, trial, &leaf.path)).uniform()),
            LeafKind::Constant(_) => None,
        };
        self.leaves.iter().map(draw).collect()
    }

    /// The hyperparameters at a point, nested as in the file.
    pub fn values(&self, point: &SpacePoint) -> Json {
        let values = self.leaf_values(point);
        let mut root = Map::new();
        for (index, leaf) in self.leaves.iter().enumerate() {
            if self.is_active(index, &values) {
                insert(&mut root, &leaf.path, values[index].clone());
            }
        }
        Json::Object(root)
    }

    /// Which leaves are there at a point.
    pub(crate) fn active(&self, point: &SpacePoint) -> Vec<bool> {
        let values = self.leaf_values(point);
        (0..self.leaves.len()).map(|index| self.is_active(index, &values)).collect()
    }

    /// Where a point lies.
    pub(crate) fn locate(&self, point: &SpacePoint) -> LocatedPoint {
        let conditional = self.leaves.iter().any(|leaf| !leaf.when.is_empty());
        let active = conditional.then(|| self.active(point));
        let place = |index: usize, distribution: &Distribution| {
            let is_there = active.as_ref().is_none_or(|active| active[index]);
            let place = point[index].filter(|_| is_there)?;
            Some(distribution.cell(place).map_or(place, |(low, high)| (low + high) / 2.0))
        };
        let leaves = self.leaves.iter().enumerate();
        leaves
            .filter_map(|(index, leaf)| match &leaf.kind {
                LeafKind::Drawn(distribution) => Some(place(index, distribution)),
                LeafKind::Constant(_) => None,
            })
            .collect()
    }

    /// All points of a grid, in the order in which they are handed out: Determined's, from the end of the product,
    /// whose first axis by name changes slowest.
    pub fn grid(&self) -> Result<Vec<Json>, Error> {
        let mut order: Vec<usize> = (0..self.leaves.len()).collect();
        order.sort_by(|a, b| self.leaves[*a].path.cmp(&self.leaves[*b].path));
        let mut points: Vec<Vec<Json>> = vec![vec![Json::Null; self.leaves.len()]];
        for leaf in order {
            let axis = self.axis(leaf)?;
            if points.len().saturating_mul(axis.len()) > MOST_POINTS {
                let message = format!("the grid has more than {MOST_POINTS} points here");
                return Err(self.wrong(leaf, message));
            }
            let with = |point: &Vec<Json>, value: &Json| {
                let mut point = point.clone();
                point[leaf] = value.clone();
                point
            };
            points = points
                .iter()
                .flat_map(|point| axis.iter().map(|value| with(point, value)))
                .collect();
        }
        let mut grid: Vec<Json> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for values in points.iter().rev() {
            let mut root = Map::new();
            for (index, leaf) in self.leaves.iter().enumerate() {
                if self.is_active(index, values) {
                    insert(&mut root, &leaf.path, values[index].clone());
                }
            }
            let point = Json::Object(root);
            // Points that differ only in what is not there are one.
            if seen.insert(point.to_string()) {
                grid.push(point);
            }
        }
        Ok(grid)
    }

    /// An error at one leaf.
    pub(crate) fn wrong(&self, leaf: usize, message: impl Into<String>) -> Error {
        let leaf = &self.leaves[leaf];
        let path = format!("hyperparameters.{}", leaf.path.join("."));
        Error::at(&leaf.place, message).within(&path)
    }

    fn axis(&self, leaf: usize) -> Result<Vec<Json>, Error> {
        match &self.leaves[leaf].kind {
            LeafKind::Constant(value) => Ok(vec![value.clone()]),
            LeafKind::Drawn(distribution) => {
                distribution.grid().map_err(|message| self.wrong(leaf, message))
            }
        }
    }

    fn leaf_values(&self, point: &SpacePoint) -> Vec<Json> {
        let value = |(leaf, place): (&Leaf, &Option<f64>)| match &leaf.kind {
            LeafKind::Constant(value) => value.clone(),
            LeafKind::Drawn(distribution) => distribution.at(place.unwrap_or(0.5)),
        };
        self.leaves.iter().zip(point).map(value).collect()
    }

    /// Whether a hyperparameter is there; one that depends on an absent one is absent.
    fn is_active(&self, leaf: usize, values: &[Json]) -> bool {
        self.leaves[leaf].when.iter().all(|Condition { leaf, values: wanted }| {
            let value = &values[*leaf];
            self.is_active(*leaf, values) && wanted.iter().any(|wanted| is_same(wanted, value))
        })
    }
}

/// Whether two values are the same; 1 and 1.0 are.
pub(crate) fn is_same(a: &Json, b: &Json) -> bool {
    a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a))
}

/// The stream of a trial's hyperparameter.
fn stream(seed: u64, trial: u64, path: &[String]) -> u64 {
    let path = path.join(".");
    let mut names = vec![trial, path.len() as u64];
    names.extend(path.bytes().map(u64::from));
    derive(seed, &names)
}

fn insert(map: &mut Map<String, Json>, path: &[String], value: Json) {
    match path {
        [name] => drop(map.insert(name.clone(), value)),
        [name, rest @ ..] => {
            let below = map.entry(name.clone()).or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(below) = below {
                insert(below, rest, value);
            }
        }
        [] => {}
    }
}

#[cfg(test)]
mod tests;
