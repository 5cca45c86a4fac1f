//! ResNets in ONNX.

use super::{Block, Downsample, IMAGENET_DEVIATION, IMAGENET_MEAN, ResNet};
use crate::onnx::{Edge, Graph, Unsupported};

impl ResNet {
    /// Adds the network to a graph: from pictures, `[batch, 3, height, width]`, which are normalised, to logits.
    pub fn lay_out(&self, graph: &mut Graph, pictures: &Edge) -> Result<Edge, Unsupported> {
        let x = graph.conv2d("conv1", &self.conv1, pictures)?;
        let x = graph.batch_norm("bn1", &self.bn1, &x);
        let x = graph.relu("bn1", &x);
        let mut x = graph.max_pool2d("maxpool", &self.maxpool, &x)?;
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        for (stage, blocks) in stages.into_iter().enumerate() {
            for (at, block) in blocks.iter().enumerate() {
                x = block.lay_out(graph, &format!("layer{}.{at}", stage + 1), &x)?;
            }
        }
        let x = graph.mean_of_channels("avgpool", &self.avgpool, &x)?;
        let x = graph.flatten("avgpool", &x);
        Ok(graph.linear("fc", &self.fc, &x))
    }
}

impl Block {
    fn lay_out(&self, graph: &mut Graph, name: &str, x: &Edge) -> Result<Edge, Unsupported> {
        let part = |part: &str| format!("{name}.{part}");
        let y = graph.conv2d(&part("conv1"), &self.conv1, x)?;
        let y = graph.batch_norm(&part("bn1"), &self.bn1, &y);
        let y = graph.relu(&part("bn1"), &y);
        let y = graph.conv2d(&part("conv2"), &self.conv2, &y)?;
        let mut y = graph.batch_norm(&part("bn2"), &self.bn2, &y);
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            y = graph.relu(&part("bn2"), &y);
            y = graph.conv2d(&part("conv3"), conv3, &y)?;
            y = graph.batch_norm(&part("bn3"), bn3, &y);
        }
        let shortcut = match &self.downsample {
            Some(Downsample { conv, norm }) => {
                let x = graph.conv2d(&part("downsample.conv"), conv, x)?;
                graph.batch_norm(&part("downsample.norm"), norm, &x)
            }
            None => x.clone(),
        };
        let sum = graph.add(name, &y, &shortcut);
        Ok(graph.relu(name, &sum))
    }
}

impl Graph {
    /// What [`imagenet_normalised`](super::imagenet_normalised) does: values between 0 and 1 become those that networks
    /// of ImageNet expect.
    pub fn imagenet_normalised(&mut self, pictures: &Edge) -> Edge {
        let mut channels = |name: &str, values: [f32; 3]| {
            let data = burn::tensor::TensorData::new(values.to_vec(), [1, 3, 1, 1]);
            self.weight(&format!("imagenet.{name}"), data)
        };
        let (mean, deviation) =
            (channels("mean", IMAGENET_MEAN), channels("deviation", IMAGENET_DEVIATION));
        let x = self.node("imagenet", "Sub", &[pictures, &mean], []);
        self.node("imagenet", "Div", &[&x, &deviation], [])
    }
}
