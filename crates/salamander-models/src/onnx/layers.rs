//! Layers as operations of ONNX, with the weights that they have.

use burn::module::Param;
use burn::nn::PaddingConfig2d;
use burn::tensor::{Tensor, TensorData};
use salamander_kernels::layers::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Embedding, LayerNorm, Linear, MaxPool2d,
};

use super::graph::{Attribute, Axis, Edge, Graph};

/// A layer that ONNX has no operation for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layer}: {reason}, which cannot be exported")]
pub struct Unsupported {
    /// Where it is in the model.
    pub layer: String,
    /// What it asks for.
    pub reason: String,
}

fn pair(values: [usize; 2]) -> Attribute {
    Attribute::Ints(values.map(|value| value as i64).to_vec())
}

fn pads(layer: &str, padding: &PaddingConfig2d) -> Result<Attribute, Unsupported> {
    let sides = match padding {
        PaddingConfig2d::Valid => [0; 4],
        PaddingConfig2d::Explicit(top, left, bottom, right) => [*top, *left, *bottom, *right],
        PaddingConfig2d::Same => {
            let reason = "padding that follows from the size of the input (Same)".to_string();
            return Err(Unsupported { layer: layer.to_string(), reason });
        }
    };
    Ok(Attribute::Ints(sides.map(|side| side as i64).to_vec()))
}

impl Graph {
    /// The values of a parameter.
    fn parameter<const D: usize>(
        &mut self,
        layer: &str,
        name: &str,
        of: &Param<Tensor<D>>,
    ) -> Edge {
        self.weight(&format!("{layer}.{name}"), of.val().into_data())
    }

    /// A constant float.
    pub fn scalar(&mut self, name: &str, value: f32) -> Edge {
        self.weight(name, TensorData::new(vec![value], Vec::<usize>::new()))
    }

    /// A constant list of whole numbers, such as a shape.
    pub fn ints(&mut self, name: &str, values: &[i64]) -> Edge {
        self.weight(name, TensorData::new(values.to_vec(), [values.len()]))
    }

    /// A convolution.
    pub fn conv2d(&mut self, name: &str, layer: &Conv2d, x: &Edge) -> Result<Edge, Unsupported> {
        let pads = pads(name, &layer.padding)?;
        let weight = self.parameter(name, "weight", &layer.weight);
        let bias = layer.bias.as_ref().map(|bias| self.parameter(name, "bias", bias));
        let inputs: Vec<&Edge> = [x, &weight].into_iter().chain(&bias).collect();
        let attributes = [
            ("kernel_shape", pair(layer.kernel_size)),
            ("strides", pair(layer.stride)),
            ("dilations", pair(layer.dilation)),
            ("group", Attribute::Int(layer.groups as i64)),
            ("pads", pads),
        ];
        Ok(self.node(name, "Conv", &inputs, attributes))
    }

    /// A linear layer over the last axis.
    pub fn linear(&mut self, name: &str, layer: &Linear, x: &Edge) -> Edge {
        let weight = self.parameter(name, "weight", &layer.weight);
        let y = self.node(name, "MatMul", &[x, &weight], []);
        match &layer.bias {
            Some(bias) => {
                let bias = self.parameter(name, "bias", bias);
                self.node(name, "Add", &[&y, &bias], [])
            }
            None => y,
        }
    }

    /// A batch normalisation by its running values.
    pub fn batch_norm(&mut self, name: &str, layer: &BatchNorm, x: &Edge) -> Edge {
        let gamma = self.parameter(name, "gamma", &layer.gamma);
        let beta = self.parameter(name, "beta", &layer.beta);
        let mean = layer.running_mean.value_sync().into_data();
        let mean = self.weight(&format!("{name}.running_mean"), mean);
        let variance = layer.running_var.value_sync().into_data();
        let variance = self.weight(&format!("{name}.running_var"), variance);
        let attributes = [("epsilon", Attribute::Float(layer.epsilon as f32))];
        let inputs = [x, &gamma, &beta, &mean, &variance];
        self.node(name, "BatchNormalization", &inputs, attributes)
    }

    /// A layer normalisation over the last axis.
    pub fn layer_norm(&mut self, name: &str, layer: &LayerNorm, x: &Edge) -> Edge {
        let gamma = self.parameter(name, "gamma", &layer.gamma);
        let beta = layer.beta.as_ref().map(|beta| self.parameter(name, "beta", beta));
        let inputs: Vec<&Edge> = [x, &gamma].into_iter().chain(&beta).collect();
        let attributes =
            [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(layer.epsilon as f32))];
        self.node(name, "LayerNormalization", &inputs, attributes)
    }

    /// Max-pooling.
    pub fn max_pool2d(
        &mut self,
        name: &str,
        layer: &MaxPool2d,
        x: &Edge,
    ) -> Result<Edge, Unsupported> {
        if layer.ceil_mode {
            let reason = "windows that are partly outside (ceil_mode)".to_string();
            return Err(Unsupported { layer: name.to_string(), reason });
        }
        let attributes = [
            ("kernel_shape", pair(layer.kernel_size)),
            ("strides", pair(layer.stride)),
            ("dilations", pair(layer.dilation)),
            ("pads", pads(name, &layer.padding)?),
        ];
        Ok(self.node(name, "MaxPool", &[x], attributes))
    }

    /// The mean of each channel.
    pub fn mean_of_channels(
        &mut self,
        name: &str,
        layer: &AdaptiveAvgPool2d,
        x: &Edge,
    ) -> Result<Edge, Unsupported> {
        match layer.output_size {
            [1, 1] => Ok(self.node(name, "GlobalAveragePool", &[x], [])),
            [height, width] => {
                let reason = format!("means of {height} x {width} parts of unknown size");
                Err(Unsupported { layer: name.to_string(), reason })
            }
        }
    }

    /// Rows of a table.
    pub fn embedding(&mut self, name: &str, layer: &Embedding, at: &Edge) -> Edge {
        let table = self.parameter(name, "weight", &layer.weight);
        self.node(name, "Gather", &[&table, at], [("axis", Attribute::Int(0))])
    }

    /// ReLU.
    pub fn relu(&mut self, name: &str, x: &Edge) -> Edge {
        self.node(name, "Relu", &[x], [])
    }

    /// ReLU that ends at six.
    pub fn relu6(&mut self, name: &str, x: &Edge) -> Edge {
        let (low, high) = (self.scalar("zero", 0.0), self.scalar("six", 6.0));
        self.node(name, "Clip", &[x, &low, &high], [])
    }

    /// The sum of two tensors.
    pub fn add(&mut self, name: &str, a: &Edge, b: &Edge) -> Edge {
        self.node(name, "Add", &[a, b], [])
    }

    /// The product of two tensors, element by element.
    pub fn mul(&mut self, name: &str, a: &Edge, b: &Edge) -> Edge {
        self.node(name, "Mul", &[a, b], [])
    }

    /// Values less their mean, by their deviation. For one mean, all have it; else there is one for each place of the
    /// last axis.
    pub fn normalised(&mut self, name: &str, x: &Edge, means: &[f32], deviations: &[f32]) -> Edge {
        let mut row = |of: &str, values: &[f32]| {
            self.weight(&format!("{name}.{of}"), TensorData::new(values.to_vec(), [values.len()]))
        };
        let (mean, deviation) = (row("mean", means), row("deviation", deviations));
        let x = self.node(name, "Sub", &[x, &mean], []);
        self.node(name, "Div", &[&x, &deviation], [])
    }

    /// All axes but the first as one.
    pub fn flatten(&mut self, name: &str, x: &Edge) -> Edge {
        self.node(name, "Flatten", &[x], [("axis", Attribute::Int(1))])
    }

    /// What a classifier gives: `logits`, and `probabilities` that are made of them, `[batch, classes]` both. Names of
    /// classes, where there are any, are said under `classes`.
    pub fn classes(&mut self, logits: &Edge, count: usize, names: &[String]) {
        let axes = [Axis::Any("batch"), Axis::Size(count)];
        self.output("logits", logits, &axes);
        let attributes = [("axis", Attribute::Int(-1))];
        let probabilities = self.node("classes", "Softmax", &[logits], attributes);
        self.output("probabilities", &probabilities, &axes);
        if !names.is_empty() {
            self.say("classes", serde_json::json!(names));
        }
    }
}

/// Functions that ONNX has only in parts in the version of operators that files here are written in.
impl Graph {
    /// GELU by the error function.
    pub fn gelu(&mut self, name: &str, x: &Edge) -> Edge {
        let root = self.scalar(&format!("{name}.root"), std::f32::consts::SQRT_2);
        let y = self.node(name, "Div", &[x, &root], []);
        let y = self.node(name, "Erf", &[&y], []);
        self.half_of_one_more(name, x, &y)
    }

    /// GELU by the hyperbolic tangent.
    pub fn gelu_by_tanh(&mut self, name: &str, x: &Edge) -> Edge {
        let cubic = self.scalar(&format!("{name}.cubic"), 0.044_715);
        let root = self.scalar(&format!("{name}.root"), (2.0 / std::f32::consts::PI).sqrt());
        let square = self.mul(name, x, x);
        let cube = self.mul(name, &square, x);
        let y = self.mul(name, &cube, &cubic);
        let y = self.add(name, x, &y);
        let y = self.mul(name, &y, &root);
        let y = self.node(name, "Tanh", &[&y], []);
        self.half_of_one_more(name, x, &y)
    }

    /// `x (1 + y) / 2`.
    fn half_of_one_more(&mut self, name: &str, x: &Edge, y: &Edge) -> Edge {
        let (one, half) =
            (self.scalar(&format!("{name}.one"), 1.0), self.scalar(&format!("{name}.half"), 0.5));
        let y = self.add(name, y, &one);
        let y = self.mul(name, x, &y);
        self.mul(name, &y, &half)
    }
}
