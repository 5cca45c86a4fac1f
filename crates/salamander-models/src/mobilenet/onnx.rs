//! MobileNetV2 in ONNX.

use super::{ConvNorm, InvertedResidual, MobileNetV2};
use crate::onnx::{Edge, Graph, Unsupported};

impl MobileNetV2 {
    /// Adds the network to a graph: from pictures, `[batch, 3, height, width]`, which are normalised, to logits.
    pub fn lay_out(&self, graph: &mut Graph, pictures: &Edge) -> Result<Edge, Unsupported> {
        let mut x = self.first.lay_out_relu6(graph, "first", pictures)?;
        for (at, block) in self.blocks.iter().enumerate() {
            x = block.lay_out(graph, &format!("blocks.{at}"), &x)?;
        }
        let x = self.last.lay_out_relu6(graph, "last", &x)?;
        let x = graph.mean_of_channels("pool", &self.pool, &x)?;
        let x = graph.flatten("pool", &x);
        Ok(graph.linear("classifier", &self.classifier, &x))
    }
}

impl ConvNorm {
    fn lay_out(&self, graph: &mut Graph, name: &str, x: &Edge) -> Result<Edge, Unsupported> {
        let x = graph.conv2d(&format!("{name}.conv"), &self.conv, x)?;
        Ok(graph.batch_norm(&format!("{name}.norm"), &self.norm, &x))
    }

    fn lay_out_relu6(&self, graph: &mut Graph, name: &str, x: &Edge) -> Result<Edge, Unsupported> {
        let x = self.lay_out(graph, name, x)?;
        Ok(graph.relu6(name, &x))
    }
}

impl InvertedResidual {
    fn lay_out(&self, graph: &mut Graph, name: &str, x: &Edge) -> Result<Edge, Unsupported> {
        let wide = match &self.expand {
            Some(expand) => expand.lay_out_relu6(graph, &format!("{name}.expand"), x)?,
            None => x.clone(),
        };
        let y = self.depthwise.lay_out_relu6(graph, &format!("{name}.depthwise"), &wide)?;
        let y = self.project.lay_out(graph, &format!("{name}.project"), &y)?;
        Ok(if self.shortcut { graph.add(name, x, &y) } else { y })
    }
}
