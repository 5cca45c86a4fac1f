//! BERT and RoBERTa in ONNX, with the inputs that exports of Hugging Face have: texts padded to the longest of them,
//! and a mask of what is no padding.

use super::classifier::BertClassifier;
use super::encoder::{Bert, Embeddings, EncoderActivation, Layer};
use crate::onnx::{Attribute, Axis, Edge, Element, Graph};

/// Weighs padding down to nothing in a softmax, and is finite in f16 too.
const NOTHING: f32 = -60_000.0;

/// What the layers share.
struct Texts {
    ids: Edge,
    /// Nothing where there is only one.
    kinds: Option<Edge>,
    places: Edge,
    /// Zero for tokens and very little for padding, `[batch, 1, 1, tokens]`.
    bias: Edge,
}

impl Graph {
    /// The inputs `input_ids` and `attention_mask`, `[batch, tokens]` each, and `token_type_ids` for a model that tells
    /// texts apart: Python's tokenizers make none for RoBERTa.
    fn texts(&mut self, embeddings: &Embeddings) -> Texts {
        let axes = [Axis::Any("batch"), Axis::Any("tokens")];
        let mut input = |name: &str| self.input(name, Element::I64, &axes);
        let (ids, mask) = (input("input_ids"), input("attention_mask"));
        let several = embeddings.token_type.weight.dims()[0] > 1;
        let kinds = several.then(|| input("token_type_ids"));
        // Tokens are counted, as RoBERTa does; padding gets any row, which nobody looks at.
        let axis = self.ints("places.axis", &[1]);
        let counted = self.node("places", "CumSum", &[&mask, &axis], []);
        let counted = self.mul("places", &counted, &mask);
        let first = self.ints("places.first", &[embeddings.first_place as i64 - 1]);
        let places = self.add("places", &counted, &first);
        let zero = self.ints("places.zero", &[0]);
        let places = self.node("places", "Max", &[&places, &zero], []);
        let floats = self.node("mask", "Cast", &[&mask], [("to", Attribute::Int(1))]);
        let one = self.scalar("mask.one", 1.0);
        let padding = self.node("mask", "Sub", &[&one, &floats], []);
        let nothing = self.scalar("mask.nothing", NOTHING);
        let bias = self.mul("mask", &padding, &nothing);
        let between = self.ints("mask.axes", &[1, 2]);
        let bias = self.node("mask", "Unsqueeze", &[&bias, &between], []);
        Texts { ids, kinds, places, bias }
    }
}

impl BertClassifier {
    /// Adds the inputs `input_ids`, `attention_mask` and, if the model has more than one type of text, `token_type_ids`
    /// and the network to a graph, and gives its logits.
    pub fn lay_out(&self, graph: &mut Graph) -> Edge {
        let rows = self.encoder.lay_out(graph, "encoder");
        let zero = graph.weight("first.at", burn::tensor::TensorData::new(vec![0i64], [1]));
        let first = graph.node("first", "Gather", &[&rows, &zero], [("axis", Attribute::Int(1))]);
        let first = graph.flatten("first", &first);
        let pooled = match (&self.dense, &self.encoder.pooler) {
            (Some(dense), _) => Some(graph.linear("dense", dense, &first)),
            (None, Some(pooler)) => Some(graph.linear("encoder.pooler", pooler, &first)),
            (None, None) => None,
        };
        let pooled = match pooled {
            Some(pooled) => graph.node("pooled", "Tanh", &[&pooled], []),
            None => first,
        };
        graph.linear("classifier", &self.classifier, &pooled)
    }
}

impl Bert {
    /// A row for each token, `[batch, tokens, columns]`.
    fn lay_out(&self, graph: &mut Graph, name: &str) -> Edge {
        let texts = graph.texts(&self.embeddings);
        let part = |part: &str| format!("{name}.embeddings.{part}");
        let words = graph.embedding(&part("word"), &self.embeddings.word, &texts.ids);
        let places = graph.embedding(&part("position"), &self.embeddings.position, &texts.places);
        let table = &self.embeddings.token_type;
        let kinds = match &texts.kinds {
            Some(kinds) => graph.embedding(&part("token_type"), table, kinds),
            None => graph.weight(&part("token_type.weight"), table.weight.val().into_data()),
        };
        let x = graph.add(&part("sum"), &words, &places);
        let x = graph.add(&part("sum"), &x, &kinds);
        let mut x = graph.layer_norm(&part("norm"), &self.embeddings.norm, &x);
        for (at, layer) in self.layers.iter().enumerate() {
            x = layer.lay_out(graph, &format!("{name}.layers.{at}"), &x, &texts.bias);
        }
        x
    }
}

impl Layer {
    fn lay_out(&self, graph: &mut Graph, name: &str, x: &Edge, bias: &Edge) -> Edge {
        let part = |part: &str| format!("{name}.{part}");
        let seen = self.lay_out_attention(graph, name, x, bias);
        let sum = graph.add(&part("attention"), &seen, x);
        let x = graph.layer_norm(&part("attention_norm"), &self.attention_norm, &sum);
        let inner = graph.linear(&part("intermediate"), &self.intermediate, &x);
        let inner = match self.activation {
            EncoderActivation::Gelu => graph.gelu(&part("gelu"), &inner),
            EncoderActivation::GeluTanh => graph.gelu_by_tanh(&part("gelu"), &inner),
            EncoderActivation::Relu => graph.relu(&part("relu"), &inner),
        };
        let output = graph.linear(&part("output"), &self.output, &inner);
        let sum = graph.add(&part("output"), &output, &x);
        graph.layer_norm(&part("output_norm"), &self.output_norm, &sum)
    }

    fn lay_out_attention(&self, graph: &mut Graph, name: &str, x: &Edge, bias: &Edge) -> Edge {
        let part = |part: &str| format!("{name}.{part}");
        let columns = self.query.weight.dims()[1] / self.heads;
        // Zero keeps the length of an axis.
        let split = graph.ints(&part("split"), &[0, 0, self.heads as i64, columns as i64]);
        let [query, key, value] = [
            ("query", &self.query, [0, 2, 1, 3]),
            ("key", &self.key, [0, 2, 3, 1]),
            ("value", &self.value, [0, 2, 1, 3]),
        ]
        .map(|(name, linear, order)| {
            let y = graph.linear(&part(name), linear, x);
            let y = graph.node(&part(name), "Reshape", &[&y, &split], []);
            let order = Attribute::Ints(order.to_vec());
            graph.node(&part(name), "Transpose", &[&y], [("perm", order)])
        });
        let scores = graph.node(&part("scores"), "MatMul", &[&query, &key], []);
        let scale = graph.scalar(&part("scale"), 1.0 / (columns as f32).sqrt());
        let scores = graph.mul(&part("scores"), &scores, &scale);
        let scores = graph.add(&part("scores"), &scores, bias);
        let shares =
            graph.node(&part("shares"), "Softmax", &[&scores], [("axis", Attribute::Int(-1))]);
        let seen = graph.node(&part("seen"), "MatMul", &[&shares, &value], []);
        let order = Attribute::Ints(vec![0, 2, 1, 3]);
        let seen = graph.node(&part("seen"), "Transpose", &[&seen], [("perm", order)]);
        let join = graph.ints(&part("join"), &[0, 0, (columns * self.heads) as i64]);
        let seen = graph.node(&part("seen"), "Reshape", &[&seen, &join], []);
        graph.linear(&part("attention_output"), &self.attention_output, &seen)
    }
}
