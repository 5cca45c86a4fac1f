//! Handwritten digits (LeCun, Cortes and Burges): the example that all networks of this folder read.

pub mod conv16;
pub mod conv32;
pub mod filters;
pub mod mlp;

use std::path::Path;

use salamander::models::onnx::{self, Axis, Edge, Element, Graph};
use salamander::prelude::*;

/// A digit of 28 x 28 pixels, its values between 0 and 1.
#[derive(Example)]
pub struct Digit {
    #[input(shape = [1, 28, 28], scale = 1.0 / 255.0)]
    image: Vec<u8>,
    #[label]
    label: u8,
}

/// Writes a network of digits as ONNX; `lay_out` adds it to the graph and gives its logits.
fn export_onnx(
    name: &str,
    folder: &Path,
    lay_out: impl FnOnce(&mut Graph, &Edge) -> Result<Edge, onnx::Unsupported>,
) -> Result<(), BuildError> {
    let mut graph = Graph::new(name);
    let axes = [Axis::Any("batch"), Axis::Size(1), Axis::Size(28), Axis::Size(28)];
    let image = graph.input("image", Element::F32, &axes);
    let logits = lay_out(&mut graph, &image)?;
    graph.classes(&logits, 10, &[]);
    graph.say("preprocessing", "image: bytes divided by 255, light on dark");
    Ok(graph.write(&folder.join(onnx::FILE))?)
}
