//! Classes of texts: a head on the first token of each.

use burn::module::Module;
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Tensor};
use salamander_kernels::layers::{Dropout, DropoutConfig, Linear};
use salamander_train::example::Tokens;

use super::encoder::linear;
use super::{Bert, BertConfig};

/// The encoder with the head that Hugging Face's `...ForSequenceClassification` has: one linear layer for BERT, whose
/// pooler is part of the encoder, and two for RoBERTa.
#[derive(Module, Debug)]
pub struct BertClassifier {
    /// The encoder.
    pub encoder: Bert,
    dropout: Dropout,
    pub(super) dense: Option<Linear>,
    pub(super) classifier: Linear,
    roberta: bool,
}

impl BertClassifier {
    /// With fresh parameters.
    pub fn new(config: &BertConfig, classes: usize, device: &Device) -> Self {
        let said = config.other.get("classifier_dropout").and_then(serde_json::Value::as_f64);
        let width = config.hidden_size;
        let roberta = config.is_roberta();
        Self {
            encoder: Bert::new(config, device),
            dropout: DropoutConfig::new(said.unwrap_or(config.hidden_dropout_prob)).init(),
            dense: roberta.then(|| linear(width, width, device)),
            classifier: linear(width, classes, device),
            roberta,
        }
    }

    /// Keeps the embeddings and so many layers as they are.
    #[must_use]
    pub fn freeze(mut self, layers: usize) -> Self {
        self.encoder = self.encoder.freeze(layers);
        self
    }

    /// The logits of each text: `softmax` makes probabilities of them.
    pub fn forward(&self, texts: &Tokens) -> Tensor<2> {
        let first = self.encoder.first_rows(texts);
        let pooled = match (&self.dense, &self.encoder.pooler) {
            (Some(dense), _) => tanh(dense.forward(self.dropout.forward(first))),
            (None, Some(pooler)) => tanh(pooler.forward(first)),
            (None, None) => first,
        };
        self.classifier.forward(self.dropout.forward(pooled))
    }

    pub(super) fn is_roberta(&self) -> bool {
        self.roberta
    }
}
