//! BERT or RoBERTa, fine-tuned to tell classes of texts, as pytorch-quik does it: `bert_type` is a folder of Hugging
//! Face. The same trial is for texts alone and for pairs of them, which differ in their examples only.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use salamander::models::bert::{self, BertClassifier, BertConfig, Head};
use salamander::models::onnx::{self, Graph};
use salamander::prelude::*;
use salamander::train::example::Example;

use super::{Review, TextPair};

/// A classifier of reviews.
pub type BertReviews = FineTuned<Review>;

/// A classifier of pairs of texts, as for natural language inference (<https://arxiv.org/abs/1508.05326>).
pub type BertPairs = FineTuned<TextPair>;

/// Hyperparameters, with the values that people fine-tune by.
#[derive(Hparams)]
pub struct Hp {
    /// The folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    bert_type: PathBuf,
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
    /// The most tokens of a text; 128 by default. What is longer is cut.
    #[hparam(default = None, min = 3)]
    max_length: Option<usize>,
    /// Begins with a fresh head, whatever the file has.
    #[hparam(default = false)]
    new_head: bool,
}

/// Examples that have tokens and a class.
pub trait LabelledTexts: Example + Clone + Debug {
    /// The name of the trial.
    const TRIAL: &'static str;

    /// What the encoder reads.
    fn texts(batch: &Self::Batch) -> &Tokens;

    /// The numbers of the classes.
    fn labels(batch: &Self::Batch) -> &Tensor<1, Int>;

    /// Refuses a tokenizer that does not fit the model.
    fn check_tokenizer(config: &BertConfig, tokenizer: &Tokenizer) -> Result<(), String>;
}

/// A classifier of such examples.
#[derive(Module, Debug)]
pub struct FineTuned<E: LabelledTexts> {
    bert: BertClassifier,
    #[module(skip)]
    examples: PhantomData<E>,
}

impl<E: LabelledTexts> Trial for FineTuned<E> {
    const NAME: &str = E::TRIAL;
    type Hparams = Hp;
    type Example = E;
    type Output = Tensor<2>;

    fn folder(hp: &Hp) -> Option<PathBuf> {
        Some(hp.bert_type.clone())
    }

    fn max_tokens(hp: &Hp) -> Option<usize> {
        hp.max_length
    }

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = config(cx)?;
        if let Some(tokenizer) = cx.assets.tokenizer("tokenizer.json") {
            E::check_tokenizer(&config, tokenizer)?;
        }
        let classes = E::class_names(&cx.assets).len();
        let bert = BertClassifier::new(&config, classes, &cx.device);
        let bert = match cx.hp.frozen_layers {
            Some(layers) => bert.freeze(layers),
            None => bert,
        };
        Ok(Self { bert, examples: PhantomData })
    }

    fn pretrained(self, cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = config(cx)?;
        cx.hp.check_layers(config.num_hidden_layers)?;
        let head = if cx.hp.new_head { Head::Fresh } else { Head::IfThere };
        if head == Head::IfThere {
            config.check_classes(&E::class_names(&cx.assets)).map_err(|reason| {
                format!("{reason}; or begin with a fresh last layer: new_head: true")
            })?;
        }
        let (bert, _) = self.bert.load(&cx.hp.bert_type, head)?;
        Ok(Self { bert, ..self })
    }

    fn forward(&self, batch: &BatchOf<Self>) -> Tensor<2> {
        self.bert.forward(E::texts(batch))
    }

    fn loss(&self, output: &Tensor<2>, batch: &BatchOf<Self>) -> Tensor<1> {
        cross_entropy(output, E::labels(batch))
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adamw(hp.learning_rate).weight_decay(hp.weight_decay)
    }

    fn groups(hp: &Hp) -> Vec<ParamGroup> {
        bert::groups("bert.encoder", hp.layers, hp.layer_decay)
    }

    fn schedule(hp: &Hp) -> Schedule {
        let curve = Curve::Linear { over: None, floor: 0.0 };
        Schedule { warmup: hp.warmup, curve, ..Schedule::default() }
    }

    fn metrics(&self, output: &Tensor<2>, batch: &BatchOf<Self>) -> Metrics {
        accuracy(output, E::labels(batch))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["huggingface", "onnx"];

    /// With its tokenizer, in the layout of Hugging Face or as ONNX.
    fn export(&self, format: &str, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        let (config, classes) = (config(cx)?, E::class_names(&cx.assets));
        if format != "onnx" {
            return Ok(bert::export(&self.bert, &config, &classes, &cx.assets, folder)?);
        }
        let mut graph = Graph::new(Self::NAME);
        let logits = self.bert.lay_out(&mut graph);
        graph.classes(&logits, classes.len(), &classes);
        let most = cx.assets.tokenizer("tokenizer.json").map_or(0, Tokenizer::max_length);
        graph.say(
            "preprocessing",
            format!("tokenizer.json beside this file, at most {most} tokens"),
        );
        graph.write(&folder.join(onnx::FILE))?;
        Ok(bert::export_tokenizer(&config, &cx.assets, folder)?)
    }
}

/// What `config.json` says, with the hyperparameters in force.
fn config(cx: &Context<Hp>) -> Result<BertConfig, BuildError> {
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
