//! BERT or RoBERTa, fine-tuned on pairs of texts, as for natural language inference
//! (<https://arxiv.org/abs/1508.05326>): the same pieces as [`bert`](super::bert), on two columns.

use std::path::{Path, PathBuf};

use salamander::models::bert::BertClassifier;
use salamander::prelude::*;
use salamander::train::example::Example as _;

use super::bert::{ExportedClassifier, Hp, classifier, config, pretrained};
use super::{TextPair, TextPairBatch};

/// A classifier of pairs.
#[derive(Module, Debug)]
pub struct BertPairs {
    bert: BertClassifier,
}

impl Trial for BertPairs {
    const NAME: &str = "bert_pairs";
    type Hparams = Hp;
    type Example = TextPair;
    type Output = Tensor<2>;

    fn folder(hp: &Hp) -> Option<PathBuf> {
        Some(hp.bert_type.clone())
    }

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = config(cx)?;
        if let Some(tokenizer) = cx.assets.tokenizer("tokenizer.json") {
            config.check_pairs(tokenizer)?;
        }
        let classes = TextPair::class_names(&cx.assets).len();
        Ok(Self { bert: classifier(cx, &config, classes) })
    }

    fn pretrained(self, cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self { bert: pretrained(cx, self.bert)? })
    }

    fn forward(&self, batch: &TextPairBatch) -> Tensor<2> {
        self.bert.forward(&batch.texts)
    }

    fn loss(&self, output: &Tensor<2>, batch: &TextPairBatch) -> Tensor<1> {
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

    fn metrics(&self, output: &Tensor<2>, batch: &TextPairBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["huggingface", "onnx"];

    fn export(&self, format: &str, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        let classes = TextPair::class_names(&cx.assets);
        ExportedClassifier { name: Self::NAME, model: &self.bert, classes: &classes }
            .write(format, cx, folder)
    }
}
