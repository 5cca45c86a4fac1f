//! What `config.json` says about a model.

use std::collections::BTreeMap;
use std::path::Path;

use salamander_train::example::Tokenizer;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::encoder::EncoderActivation;
use crate::Error;

/// The file's name.
pub(super) const FILE: &str = "config.json";

/// Sizes and settings, under the names of Hugging Face; what is not known here is kept and written again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BertConfig {
    /// `bert`, `roberta` or `xlm-roberta`.
    #[serde(default = "bert")]
    pub model_type: String,
    /// Rows of the tokens' table.
    pub vocab_size: usize,
    /// Columns of every layer.
    pub hidden_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Heads of a layer.
    pub num_attention_heads: usize,
    /// Columns within a layer.
    pub intermediate_size: usize,
    /// The function within a layer.
    #[serde(default = "gelu")]
    pub hidden_act: String,
    /// The share of values that is dropped in training.
    #[serde(default = "a_tenth")]
    pub hidden_dropout_prob: f64,
    /// The share of attention that is dropped in training.
    #[serde(default = "a_tenth")]
    pub attention_probs_dropout_prob: f64,
    /// Rows of the places' table.
    #[serde(default = "places")]
    pub max_position_embeddings: usize,
    /// Rows of the table of text types.
    #[serde(default = "types")]
    pub type_vocab_size: usize,
    /// Keeps divisors from zero.
    #[serde(default = "epsilon")]
    pub layer_norm_eps: f64,
    /// The token of padding, which RoBERTa counts places from.
    #[serde(default)]
    pub pad_token_id: Option<usize>,
    /// Names of classes by their numbers.
    #[serde(default, deserialize_with = "class_names")]
    pub id2label: BTreeMap<String, String>,
    /// Whatever else is there.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn bert() -> String {
    "bert".to_string()
}

fn gelu() -> String {
    "gelu".to_string()
}

fn a_tenth() -> f64 {
    0.1
}

fn places() -> usize {
    512
}

fn types() -> usize {
    2
}

fn epsilon() -> f64 {
    1e-12
}

/// Some files have numbers there, which are names like others, or nothing.
fn class_names<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let found = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
    let name = |value: Value| match value {
        Value::String(name) => name,
        other => other.to_string(),
    };
    Ok(found.into_iter().map(|(number, value)| (number, name(value))).collect())
}

impl BertConfig {
    /// From the bytes of a `config.json`. What is not known here is refused, rather than computed in another way.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |reason: String| Error::new(Path::new(FILE), reason);
        let config: Self =
            serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        config.check().map_err(wrong)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if !matches!(self.model_type.as_str(), "bert" | "roberta" | "xlm-roberta") {
            let kind = &self.model_type;
            return Err(format!(
                "model_type {kind:?}: only bert, roberta and xlm-roberta are known"
            ));
        }
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        let sizes = [self.vocab_size, width, heads, self.intermediate_size, self.type_vocab_size];
        if sizes.contains(&0) || self.max_position_embeddings <= self.first_place() {
            return Err("a size is zero".to_string());
        }
        if !width.is_multiple_of(heads) {
            return Err(format!("{heads} heads do not divide a hidden_size of {width}"));
        }
        if EncoderActivation::named(&self.hidden_act).is_none() {
            return Err(format!("hidden_act {:?} is not known", self.hidden_act));
        }
        let is = |key: &str, value: Value| self.other.get(key).is_none_or(|found| *found == value);
        if !is("position_embedding_type", "absolute".into()) {
            return Err("position_embedding_type: only \"absolute\" is known".to_string());
        }
        match is("is_decoder", false.into()) && is("add_cross_attention", false.into()) {
            true => Ok(()),
            false => Err("is_decoder: only encoders are known".to_string()),
        }
    }

    /// Whether it is one of RoBERTa's kind: other places, another head.
    pub fn is_roberta(&self) -> bool {
        self.model_type != "bert"
    }

    /// The row of a text's first place.
    pub(super) fn first_place(&self) -> usize {
        match self.is_roberta() {
            true => self.pad_token_id.unwrap_or(1) + 1,
            false => 0,
        }
    }

    /// The most tokens of a text.
    pub fn longest(&self) -> usize {
        self.max_position_embeddings - self.first_place()
    }

    /// Refuses a tokenizer that does not fit the tables.
    pub fn check_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), String> {
        let (ids, length) = (tokenizer.ids(), tokenizer.max_length());
        if ids > self.vocab_size {
            return Err(format!(
                "the tokenizer has ids up to {}, and the model's table only {} rows (vocab_size in config.json)",
                ids - 1,
                self.vocab_size
            ));
        }
        match length > self.longest() {
            true => Err(format!(
                "texts of {length} tokens (max_length) are longer than the model's {0}: cut them at {0}",
                self.longest()
            )),
            false => Ok(()),
        }
    }

    /// Refuses a tokenizer that tells two texts by more types than the model has rows for.
    pub fn check_pairs(&self, tokenizer: &Tokenizer) -> Result<(), String> {
        self.check_tokenizer(tokenizer)?;
        let pair = tokenizer.encode_pair("a", "b")?;
        let types = pair.types.iter().max().map_or(0, |most| *most as usize + 1);
        match types > self.type_vocab_size {
            true => Err(format!(
                "the tokenizer tells {types} types of text, and the model's table has {} rows (type_vocab_size in \
                 config.json)",
                self.type_vocab_size
            )),
            false => Ok(()),
        }
    }

    /// Refuses classes that are not those of a head which is named: their numbers would mean something else.
    pub fn check_classes(&self, names: &[String]) -> Result<(), String> {
        let mut known: Vec<(usize, &str)> = self
            .id2label
            .iter()
            .map(|(number, name)| (number.parse().unwrap_or(usize::MAX), name.as_str()))
            .collect();
        known.sort_unstable();
        let is_placeholder = |(number, name): &(usize, &str)| *name == format!("LABEL_{number}");
        if known.iter().all(is_placeholder) {
            return Ok(());
        }
        let known: Vec<String> = known.iter().map(|(_, name)| name.to_lowercase()).collect();
        let own: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        if known == own {
            return Ok(());
        }
        let said = self.id2label.values().cloned().collect::<Vec<_>>().join(", ");
        let reason =
            format!("config.json names the classes {said} and the data {}", names.join(", "));
        let (mut sorted, mut known) = (own, known);
        sorted.sort_unstable();
        known.sort_unstable();
        Err(match sorted == known {
            true => format!("{reason}: put them into its order, one per line, in a classes.txt"),
            false => reason,
        })
    }

    /// The same for classes of these names, as the configuration of a classifier is written.
    #[must_use]
    pub fn for_classes(&self, names: &[String]) -> Self {
        let mut config = self.clone();
        let class = match self.model_type.as_str() {
            "bert" => "BertForSequenceClassification",
            "roberta" => "RobertaForSequenceClassification",
            _ => "XLMRobertaForSequenceClassification",
        };
        config.id2label =
            names.iter().enumerate().map(|(at, name)| (at.to_string(), name.clone())).collect();
        let numbers = names.iter().enumerate().map(|(at, name)| (name.clone(), at.into()));
        config.other.insert("label2id".to_string(), Value::Object(numbers.collect()));
        config.other.insert("architectures".to_string(), vec![class].into());
        config.other.insert("problem_type".to_string(), "single_label_classification".into());
        // Follows from the names.
        config.other.remove("num_labels");
        // Python would round what is written to the type that the original had.
        for key in ["dtype", "torch_dtype"] {
            if let Some(said) = config.other.get_mut(key) {
                *said = "float32".into();
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: &str, expected: &str) {
        let text = format!(
            "{{\"vocab_size\": 30, \"hidden_size\": 8, \"num_hidden_layers\": 1, \"intermediate_size\": 16, \
             \"num_attention_heads\": 2{change}}}"
        );
        match BertConfig::parse(text.as_bytes()) {
            Ok(config) => {
                assert_eq!(format!("{} {}", config.model_type, config.longest()), expected)
            }
            Err(error) => assert_eq!(error.to_string(), expected),
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        check("", "bert 512");
        check(", \"model_type\": \"roberta\", \"max_position_embeddings\": 514", "roberta 512");
        check(", \"position_embedding_type\": \"absolute\", \"is_decoder\": false", "bert 512");
        check(
            ", \"model_type\": \"gpt2\"",
            "config.json: model_type \"gpt2\": only bert, roberta and xlm-roberta are known",
        );
        check(
            ", \"position_embedding_type\": \"relative_key\"",
            "config.json: position_embedding_type: only \"absolute\" is known",
        );
        check(", \"is_decoder\": true", "config.json: is_decoder: only encoders are known");
        check(", \"hidden_act\": \"gelu_fast\", \"id2label\": null", "bert 512");
        check(", \"hidden_act\": \"silu\"", "config.json: hidden_act \"silu\" is not known");
        let error = BertConfig::parse(b"{}").expect_err("empty").to_string();
        assert!(error.starts_with("config.json: missing field `vocab_size`"), "{error}");
    }

    #[test]
    fn classes_in_another_order_are_not_those_of_the_head() {
        let check = |labels: &str, expected: &str| {
            let text = format!(
                "{{\"vocab_size\": 30, \"hidden_size\": 8, \"num_hidden_layers\": 1, \
                 \"intermediate_size\": 16, \"num_attention_heads\": 2, \"id2label\": {labels}}}"
            );
            let config = BertConfig::parse(text.as_bytes()).expect("a configuration");
            let names = ["negative", "positive"].map(String::from);
            assert_eq!(
                config.check_classes(&names).err().unwrap_or_default(),
                expected,
                "{labels}"
            );
        };
        check("{}", "");
        check(r#"{"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}"#, "");
        check(r#"{"0": "NEGATIVE", "1": "POSITIVE"}"#, "");
        let other = "config.json names the classes yes, no and the data negative, positive";
        check(r#"{"0": "yes", "1": "no"}"#, other);
        let turned = "config.json names the classes positive, negative and the data negative, positive: put \
                      them into its order, one per line, in a classes.txt";
        check(r#"{"0": "positive", "1": "negative"}"#, turned);
    }

    #[test]
    fn a_classifier_says_its_classes_and_keeps_the_rest() {
        let text = br#"{"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16,
            "num_attention_heads": 2, "classifier_dropout": null, "num_labels": 5, "dtype": "float16",
            "id2label": {"0": 0, "1": "b"}}"#;
        let config = BertConfig::parse(text).expect("a configuration");
        assert_eq!((config.id2label["0"].as_str(), config.id2label["1"].as_str()), ("0", "b"));
        let config = config.for_classes(&["no".to_string(), "yes".to_string()]);
        let json = serde_json::to_value(&config).expect("JSON");
        assert_eq!(json["architectures"][0], "BertForSequenceClassification");
        assert_eq!((&json["id2label"]["1"], &json["label2id"]["yes"]), (&"yes".into(), &1.into()));
        assert!(json.get("classifier_dropout").is_some() && json.get("num_labels").is_none());
        assert_eq!((&json["dtype"], json.get("torch_dtype")), (&"float32".into(), None));
    }
}
