//! BERT or RoBERTa, fine-tuned to tell classes of texts, as pytorch-quik does it: `bert_type` is a folder of Hugging
//! Face.

use std::path::{Path, PathBuf};

use salamander::models::bert::{self, BertClassifier, BertConfig, Head};
use salamander::models::onnx::{self, Graph};
use salamander::prelude::*;
use salamander::train::example::Example as _;

use super::{Review, ReviewBatch};

/// Hyperparameters, with the values that people fine-tune by.
#[derive(Hparams)]
pub struct Hp {
    /// The folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    pub(super) bert_type: PathBuf,
    #[hparam(default = 2e-5, min = 0.0)]
    learning_rate: f64,
    /// Of weights; biases and norms have none.
    #[hparam(default = 0.01, min = 0.0)]
    weight_decay: f64,
    /// Steps in which the rate rises; then it falls to zero.
    #[hparam(default = 0)]
    warmup: u64,
    /// The rate of a layer by that of the one above it.
    #[hparam(default = 1.0, min = 0.0, max = 1.0)]
    layer_decay: f64,
    /// Layers of the model, which `layer_decay` counts by.
    #[hparam(default = 12)]
    layers: usize,
    /// Layers that stay as they are, with the embeddings before them.
    #[hparam(default = None)]
    frozen_layers: Option<usize>,
    /// In the place of what `config.json` says.
    #[hparam(default = None, min = 0.0, max = 1.0)]
    dropout: Option<f64>,
    /// Begins with a fresh head, whatever the file has.
    #[hparam(default = false)]
    new_head: bool,
}

/// A classifier of reviews.
#[derive(Module, Debug)]
pub struct BertReviews {
    bert: BertClassifier,
}

impl Trial for BertReviews {
    const NAME: &str = "bert_reviews";
    type Hparams = Hp;
    type Example = Review;
    type Output = Tensor<2>;

    fn folder(hp: &Hp) -> Option<PathBuf> {
        Some(hp.bert_type.clone())
    }

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = config(cx)?;
        if let Some(tokenizer) = cx.assets.tokenizer("tokenizer.json") {
            config.check_tokenizer(tokenizer)?;
        }
        let classes = Review::class_names(&cx.assets).len();
        Ok(Self { bert: classifier(cx, &config, classes) })
    }

    fn pretrained(self, cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self { bert: pretrained(cx, self.bert)? })
    }

    fn forward(&self, batch: &ReviewBatch) -> Tensor<2> {
        self.bert.forward(&batch.text)
    }

    fn loss(&self, output: &Tensor<2>, batch: &ReviewBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        hp.optimizer()
    }

    fn groups(hp: &Hp) -> Vec<ParamGroup> {
        hp.groups()
    }

    fn schedule(hp: &Hp) -> Schedule {
        hp.schedule()
    }

    fn metrics(&self, output: &Tensor<2>, batch: &ReviewBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["huggingface", "onnx"];

    fn export(&self, format: &str, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        let classes = Review::class_names(&cx.assets);
        ExportedClassifier { name: Self::NAME, model: &self.bert, classes: &classes }
            .write(format, cx, folder)
    }
}

/// What `config.json` says, with the hyperparameters in force.
pub(super) fn config(cx: &Context<Hp>) -> Result<BertConfig, BuildError> {
    let file = cx.assets.file("config.json").ok_or("config.json is missing")?;
    let mut config = BertConfig::parse(file)?;
    if let Some(dropout) = cx.hp.dropout {
        set_dropout(&mut config, dropout);
    }
    Ok(config)
}

fn set_dropout(config: &mut BertConfig, dropout: f64) {
    (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (dropout, dropout);
    // Without one of its own the head has that of the others.
    config.other.remove("classifier_dropout");
}

/// A classifier with fresh parameters, of which some may stay as they are.
pub(super) fn classifier(cx: &Context<Hp>, config: &BertConfig, classes: usize) -> BertClassifier {
    let bert = BertClassifier::new(config, classes, &cx.device);
    match cx.hp.frozen_layers {
        Some(layers) => bert.freeze(layers),
        None => bert,
    }
}

/// A classifier with the weights of the folder, which a run begins with.
pub(super) fn pretrained(
    cx: &Context<Hp>,
    bert: BertClassifier,
) -> Result<BertClassifier, BuildError> {
    cx.hp.check_layers(config(cx)?.num_hidden_layers)?;
    let head = if cx.hp.new_head { Head::Fresh } else { Head::IfThere };
    Ok(bert.load(&cx.hp.bert_type, head)?.0)
}

/// How a classifier in the field `bert` of a trial is fine-tuned.
impl Hp {
    /// With too many layers every rate would be lower than it says, and nobody would be told. Runs are checked where
    /// they begin: those that were trained so before can still be used.
    fn check_layers(&self, there: usize) -> Result<(), BuildError> {
        if self.layer_decay == 1.0 || self.layers == there {
            return Ok(());
        }
        let said = self.layers;
        let reason = format!(
            "layer_decay counts by layers: layers is {said}, and config.json says num_hidden_layers {there}"
        );
        Err(reason.into())
    }

    pub(super) fn optimizer(&self) -> impl Into<Optimizer> + use<> {
        Optimizer::adamw(self.learning_rate).weight_decay(self.weight_decay)
    }

    pub(super) fn groups(&self) -> Vec<ParamGroup> {
        bert::groups("bert.encoder", self.layers, self.layer_decay)
    }

    pub(super) fn schedule(&self) -> Schedule {
        let curve = Curve::Linear { over: None, floor: 0.0 };
        Schedule { warmup: self.warmup, curve, ..Schedule::default() }
    }
}

/// What a classifier is exported with.
pub(super) struct ExportedClassifier<'a> {
    pub(super) name: &'a str,
    pub(super) model: &'a BertClassifier,
    pub(super) classes: &'a [String],
}

impl ExportedClassifier<'_> {
    /// Writes it with its tokenizer in the layout of Hugging Face or as ONNX.
    pub(super) fn write(
        &self,
        format: &str,
        cx: &Context<Hp>,
        folder: &Path,
    ) -> Result<(), BuildError> {
        let Self { name, model, classes } = *self;
        let config = config(cx)?;
        if format != "onnx" {
            return Ok(bert::export(model, &config, classes, &cx.assets, folder)?);
        }
        let mut graph = Graph::new(name);
        let logits = model.lay_out(&mut graph);
        graph.classes(&logits, classes.len(), classes);
        graph.say("preprocessing", "tokenizer.json beside this file, at most 128 tokens");
        graph.write(&folder.join(onnx::FILE))?;
        Ok(bert::export_tokenizer(&config, &cx.assets, folder)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_is_that_of_the_head_too() {
        let text = br#"{"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16,
            "num_attention_heads": 2, "classifier_dropout": 0.5}"#;
        let mut config = BertConfig::parse(text).expect("a configuration");
        set_dropout(&mut config, 0.0);
        let head = BertClassifier::new(&config, 2, &Device::flex());
        assert_eq!((config.hidden_dropout_prob, config.attention_probs_dropout_prob), (0.0, 0.0));
        assert!(!config.other.contains_key("classifier_dropout"), "{head:?}");
    }
}
