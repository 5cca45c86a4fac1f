//! The graph that a model is laid out in: inputs, operations with their weights, outputs.

use std::path::Path;

use burn::tensor::{DType, TensorData};
use salamander_files::{Durability, replace};

use super::wire::{self, ModelParts};
use crate::Error;

/// Protobuf, and so ONNX without files beside it, ends there.
const LARGEST: usize = i32::MAX as usize;

/// A network in ONNX, in the making. See the [module](super) for an example.
#[derive(Debug)]
pub struct Graph {
    name: String,
    nodes: Vec<GraphNode>,
    weights: Vec<(String, TensorData)>,
    inputs: Vec<GraphPort>,
    outputs: Vec<GraphPort>,
    metadata: Vec<(String, String)>,
}

/// A tensor between operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge(pub(super) String);

/// The type of a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Floats.
    F32,
    /// Whole numbers.
    I64,
}

impl Element {
    /// That of weights.
    pub(super) fn of(data: &TensorData) -> Self {
        if data.dtype() == DType::I64 { Self::I64 } else { Self::F32 }
    }
}

/// The length of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Always the same.
    Size(usize),
    /// Any; axes of the same name are equally long.
    Any(&'static str),
}

/// A constant of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A float.
    Float(f32),
    /// A whole number.
    Int(i64),
    /// Several of them.
    Ints(Vec<i64>),
}

/// An operation.
#[derive(Debug)]
pub(super) struct GraphNode {
    pub(super) operator: &'static str,
    pub(super) inputs: Vec<String>,
    pub(super) output: String,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
}

/// What goes in or comes out.
#[derive(Debug)]
pub(super) struct GraphPort {
    pub(super) name: String,
    pub(super) element: Element,
    pub(super) axes: Vec<Axis>,
}

impl Graph {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            nodes: Vec::new(),
            weights: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            metadata: Vec::new(),
        }
    }

    /// What the network is given.
    pub fn input(&mut self, name: &str, element: Element, axes: &[Axis]) -> Edge {
        self.inputs.push(GraphPort { name: name.to_string(), element, axes: axes.to_vec() });
        Edge(name.to_string())
    }

    /// What the network gives: a tensor of floats under a name of its own.
    pub fn output(&mut self, name: &str, edge: &Edge, axes: &[Axis]) {
        let node = GraphNode {
            operator: "Identity",
            inputs: vec![edge.0.clone()],
            output: name.to_string(),
            attributes: Vec::new(),
        };
        self.nodes.push(node);
        let element = Element::F32;
        self.outputs.push(GraphPort { name: name.to_string(), element, axes: axes.to_vec() });
    }

    /// A weight or another constant; floats of fewer or more bits become f32.
    pub fn weight(&mut self, name: &str, data: TensorData) -> Edge {
        let data = if data.dtype() == DType::I64 { data } else { data.convert::<f32>() };
        let name = self.unused(name);
        self.weights.push((name.clone(), data));
        Edge(name)
    }

    /// The result of one of ONNX's operators of version 17. `name` says where in the model it is.
    pub fn node<const N: usize>(
        &mut self,
        name: &str,
        operator: &'static str,
        inputs: &[&Edge],
        attributes: [(&'static str, Attribute); N],
    ) -> Edge {
        let output = self.unused(&format!("{name}/{operator}"));
        let inputs = inputs.iter().map(|edge| edge.0.clone()).collect();
        self.nodes.push(GraphNode {
            operator,
            inputs,
            output: output.clone(),
            attributes: attributes.into(),
        });
        Edge(output)
    }

    /// Says something about the model, which programs that load it can ask for.
    pub fn say(&mut self, key: &str, value: impl ToString) {
        self.metadata.push((key.to_string(), value.to_string()));
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::model(&ModelParts {
            name: &self.name,
            nodes: &self.nodes,
            weights: &self.weights,
            inputs: &self.inputs,
            outputs: &self.outputs,
            metadata: &self.metadata,
        })
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let bytes = self.to_bytes();
        if bytes.len() > LARGEST {
            let reason = format!("{} bytes, and one file of ONNX holds 2 GiB", bytes.len());
            return Err(Error::new(path, reason));
        }
        replace(path, &bytes, Durability::Synced).map_err(|error| Error::new(path, error))
    }

    /// The name, or with a number where it is taken.
    fn unused(&self, name: &str) -> String {
        let taken = |name: &str| {
            self.weights.iter().any(|(other, _)| other == name)
                || self.nodes.iter().any(|node| node.output == name)
                || self.inputs.iter().any(|port| port.name == name)
        };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_string()).chain(numbered);
        names.find(|name| !taken(name)).unwrap_or_default()
    }
}
