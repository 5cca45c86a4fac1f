//! What networks that tell ten classes of small pictures apart share: how they are written as ONNX.

use std::path::Path;

use salamander::models::onnx::{self, Axis, Edge, Element, Graph};
use salamander::prelude::*;

/// The input of such a network.
pub(crate) struct SmallImage {
    /// Planes, height and width.
    pub(crate) shape: [usize; 3],
    /// What has to be done with pixels before, in the file's metadata.
    pub(crate) preprocessing: &'static str,
}

impl SmallImage {
    /// Writes a network as ONNX; `lay_out` adds it to the graph and gives its logits.
    pub(crate) fn export_onnx(
        &self,
        name: &str,
        folder: &Path,
        lay_out: impl FnOnce(&mut Graph, &Edge) -> Result<Edge, onnx::Unsupported>,
    ) -> Result<(), BuildError> {
        let mut graph = Graph::new(name);
        let [planes, height, width] = self.shape.map(Axis::Size);
        let image =
            graph.input("image", Element::F32, &[Axis::Any("batch"), planes, height, width]);
        let logits = lay_out(&mut graph, &image)?;
        graph.classes(&logits, 10, &[]);
        graph.say("preprocessing", self.preprocessing);
        Ok(graph.write(&folder.join(onnx::FILE))?)
    }
}
