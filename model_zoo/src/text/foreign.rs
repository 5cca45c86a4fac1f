//! A classifier of texts in the layout of Hugging Face, used as it is: BERT or RoBERTa with as many classes as its
//! `config.json` names. `salamander serve FOLDER` serves it; to train one, see `bert.rs`.

use std::path::{Path, PathBuf};

use salamander::models::bert::{BertClassifier, BertConfig, Head};
use salamander::prelude::*;
use salamander::train::example::LENGTH_OF_MODEL;
use serde_json::{Value, json};

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    /// The folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    folder: PathBuf,
    #[hparam(default = 2e-5, min = 0.0)]
    learning_rate: f64,
}

/// A text and the number of its class, beside the files of a model of Hugging Face.
#[derive(Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"
    ]
)]
pub struct ClassifiedText {
    #[input(tokenize = "tokenizer.json", max_length = LENGTH_OF_MODEL)]
    text: Vec<i64>,
    #[label]
    label: u16,
}

/// A classifier of texts.
#[derive(Module, Debug)]
pub struct TextClassifier {
    bert: BertClassifier,
}

fn config(cx: &Context<Hp>) -> Result<BertConfig, BuildError> {
    let file = cx.assets.file("config.json").ok_or("config.json is missing")?;
    Ok(BertConfig::parse(file)?)
}

/// How many scores a text has: two where the configuration does not say, as Hugging Face has it. What is no choice of
/// one class is refused, rather than made one.
fn classes(config: &BertConfig) -> Result<usize, String> {
    let kind = config.other.get("problem_type").and_then(Value::as_str);
    if let Some(kind @ ("multi_label_classification" | "regression")) = kind {
        return Err(format!(
            "config.json: problem_type {kind:?}: only classifiers that choose one class are known"
        ));
    }
    let said = config.other.get("num_labels").and_then(Value::as_u64).unwrap_or(2);
    match config.id2label.len() {
        0 => Ok(said as usize),
        named => Ok(named),
    }
}

impl Trial for TextClassifier {
    const NAME: &str = "text_classifier";
    type Hparams = Hp;
    type Example = ClassifiedText;
    type Output = Tensor<2>;

    fn folder(hp: &Hp) -> Option<PathBuf> {
        Some(hp.folder.clone())
    }

    fn adopts(folder: &Path) -> Option<Value> {
        let config = BertConfig::parse(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
        let kinds = config.other.get("architectures")?.as_array()?;
        let classifies = |kind: &Value| {
            kind.as_str().is_some_and(|kind| kind.ends_with("ForSequenceClassification"))
        };
        let has = |name: &str| folder.join(name).is_file();
        // Old folders have what their tokenizer is made of.
        let tokenizer = has("tokenizer.json") || has("vocab.txt") || has("merges.txt");
        (kinds.iter().any(classifies) && tokenizer).then(|| json!({"folder": folder}))
    }

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = config(cx)?;
        if let Some(tokenizer) = cx.assets.tokenizer("tokenizer.json") {
            config.check_tokenizer(tokenizer)?;
        }
        Ok(Self { bert: BertClassifier::new(&config, classes(&config)?, &cx.device) })
    }

    fn pretrained(self, cx: &Context<Hp>) -> Result<Self, BuildError> {
        let (bert, _) = self.bert.load(&cx.hp.folder, Head::There)?;
        Ok(Self { bert })
    }

    fn forward(&self, batch: &ClassifiedTextBatch) -> Tensor<2> {
        self.bert.forward(&batch.text)
    }

    fn loss(&self, output: &Tensor<2>, batch: &ClassifiedTextBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adamw(hp.learning_rate).weight_decay(0.01)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &ClassifiedTextBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    /// A single score, as models that compare two texts have it, is how likely it is.
    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        if output.dims()[1] == 1 { sigmoid(output) } else { softmax(output, 1) }
    }
}

#[cfg(test)]
mod tests {
    use salamander::train::example::{AssetFiles, Assets, Example as _};

    use super::*;

    #[test]
    fn texts_are_as_long_as_the_model_takes_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\n");
        let check = |expected: usize| {
            let files = AssetFiles::find(ClassifiedText::ASSETS, &[folder.path()]).expect("found");
            let assets = Assets::load(ClassifiedText::ASSETS, files).expect("loaded");
            let tokenizer = assets.tokenizer("tokenizer.json").expect("a tokenizer");
            let ids = tokenizer.encode(&"good ".repeat(9000)).expect("encodes");
            assert_eq!((ids.len(), tokenizer.max_length()), (expected, expected));
        };
        write("config.json", r#"{"max_position_embeddings": 512}"#);
        check(512);
        write("tokenizer_config.json", r#"{"model_max_length": 300}"#);
        check(300);
        write("config.json", r#"{"max_position_embeddings": 40}"#);
        check(40);
    }

    #[test]
    fn scores_are_counted_and_what_is_no_choice_is_refused() {
        let check = |more: &str, expected: Result<usize, &str>| {
            let text = format!(
                "{{\"vocab_size\": 30, \"hidden_size\": 8, \"num_hidden_layers\": 1, \
                 \"num_attention_heads\": 2, \"intermediate_size\": 16{more}}}"
            );
            let config = BertConfig::parse(text.as_bytes()).expect("a configuration");
            assert_eq!(classes(&config), expected.map_err(str::to_string), "{more}");
        };
        check("", Ok(2));
        check(", \"num_labels\": 5", Ok(5));
        check(", \"id2label\": {\"0\": \"LABEL_0\"}, \"problem_type\": null", Ok(1));
        let refused = "config.json: problem_type \"regression\": only classifiers that choose one \
                       class are known";
        check(", \"problem_type\": \"regression\"", Err(refused));
    }
}
