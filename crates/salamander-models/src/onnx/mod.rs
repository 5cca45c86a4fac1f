//! Networks as files of ONNX, which onnxruntime, OpenVINO and others run: a model lays itself out in a [`Graph`].
//!
//! What the graph holds is what the model's `forward` computes outside of training. What a record goes through before
//! it, such as scaling, is not in it: say it with [`Graph::say`].
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::Device;
//! use salamander_kernels::layers::{Linear, LinearConfig};
//! use salamander_models::onnx::{Axis, Element, Graph};
//!
//! #[derive(Module, Debug)]
//! struct Net {
//!     fc1: Linear,
//!     fc2: Linear,
//! }
//!
//! let device = Device::flex();
//! let (fc1, fc2) = (LinearConfig::new(4, 8).init(&device), LinearConfig::new(8, 3).init(&device));
//! let net = Net { fc1, fc2 };
//! let mut graph = Graph::new("net");
//! let x = graph.input("petals", Element::F32, &[Axis::Any("batch"), Axis::Size(4)]);
//! let x = graph.linear("fc1", &net.fc1, &x);
//! let x = graph.relu("fc1", &x);
//! let logits = graph.linear("fc2", &net.fc2, &x);
//! graph.classes(&logits, 3, &[]);
//! graph.say("preprocessing", "centimetres");
//! # let folder = tempfile::tempdir()?;
//! graph.write(&folder.path().join("net.onnx"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - `graph`: inputs, operations, outputs; `layers`: layers of ours as operations
//! - `wire`: the file's format

mod graph;
mod layers;
mod wire;

pub use graph::{Attribute, Axis, Edge, Element, Graph};
pub use layers::Unsupported;

/// The file that an export writes into its folder.
pub const FILE: &str = "model.onnx";
