//! Small colour pictures of ten classes (Krizhevsky's CIFAR-10), and three networks on them.

pub mod cnn;
pub mod mobilenet;
pub mod resnet20;

use std::path::Path;

use salamander::models::onnx::{self, Axis, Edge, Element, Graph};
use salamander::prelude::*;

/// A picture of 32 x 32 pixels in three planes, its values between 0 and 1.
///
/// In training it is moved by up to four pixels, as He et al. do (section 4.2). They flip every second one too: add
/// `flip` for CIFAR-10 itself, but not for generated pictures, whose classes are directions.
#[derive(Example)]
pub struct Picture {
    #[input(shape = [3, 32, 32], scale = 1.0 / 255.0, augment = [crop(4)])]
    image: Vec<u8>,
    #[label]
    label: u8,
}

/// Writes a network of pictures as ONNX; `lay_out` adds it to the graph and gives its logits.
fn export_onnx(
    name: &str,
    folder: &Path,
    lay_out: impl FnOnce(&mut Graph, &Edge) -> Result<Edge, onnx::Unsupported>,
) -> Result<(), BuildError> {
    let mut graph = Graph::new(name);
    let axes = [Axis::Any("batch"), Axis::Size(3), Axis::Size(32), Axis::Size(32)];
    let image = graph.input("image", Element::F32, &axes);
    let logits = lay_out(&mut graph, &image)?;
    graph.classes(&logits, 10, &[]);
    graph.say("preprocessing", "image: planes of red, green and blue, bytes divided by 255");
    Ok(graph.write(&folder.join(onnx::FILE))?)
}
