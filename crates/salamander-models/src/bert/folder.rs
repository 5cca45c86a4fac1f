//! Weights from a folder of Hugging Face and back into one.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use salamander_files::{Durability, replace};
use salamander_train::example::Assets;
use serde_json::{Value, json};

use super::{Bert, BertClassifier, BertConfig, config, names};
use crate::foreign::{self, Naming, Tensors};
use crate::{Error, Head};

/// Files of a tokenizer besides `tokenizer.json`, which a folder may have.
pub const TOKENIZER_FILES: [&str; 5] =
    ["tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"];

impl Bert {
    /// The weights of a folder, or of a file.
    pub fn load(self, path: &Path) -> Result<Self, Error> {
        let (file, tensors) = read(path)?;
        let pooler = self.pooler.is_some();
        let known =
            |name: &str| known(name, pooler).filter(|name| !name.starts_with("classifier."));
        let naming =
            Naming { name: &names::of_encoder, known: &known, optional: &|path| is_pooler(path) };
        Ok(foreign::load(self, &file, tensors, &naming)?.0)
    }
}

impl BertClassifier {
    /// The weights of a folder, or of a file. Returns the paths of the parameters that stayed as they were.
    pub fn load(self, path: &Path, head: Head) -> Result<(Self, Vec<String>), Error> {
        let (file, tensors) = read(path)?;
        let (roberta, pooler) = (self.is_roberta(), self.encoder.pooler.is_some());
        let fresh = |name: &str| head == Head::Fresh && name.starts_with("classifier.");
        let naming = Naming {
            name: &|path| names::of_classifier(path, roberta),
            known: &|name| known(name, pooler).filter(|name| !fresh(name)),
            optional: &|path| {
                let is_head = !path.starts_with("encoder.") || path.starts_with("encoder.pooler.");
                is_head && head != Head::There
            },
        };
        foreign::load(self, &file, tensors, &naming).map_err(|error| {
            let hint = match error.reason.contains("classifier.") && head == Head::IfThere {
                true => ": leave it out for other classes (new_head)",
                false => "",
            };
            Error { reason: format!("{}{hint}", error.reason), ..error }
        })
    }
}

fn known(name: &str, pooler: bool) -> Option<String> {
    names::known(name).filter(|name| pooler || !name.starts_with("pooler."))
}

fn is_pooler(path: &str) -> bool {
    path.starts_with("pooler.")
}

/// The tensors of a file, or of a folder's file or files.
fn read(path: &Path) -> Result<(PathBuf, Tensors), Error> {
    if !path.is_dir() {
        return Ok((path.to_path_buf(), foreign::read(path)?));
    }
    // In this order, as Python looks for them: an index may be left over from another export.
    let names = ["model.safetensors", "model.safetensors.index.json"];
    let old = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    let mut files = names.iter().chain(&old).map(|name| path.join(name));
    match files.find(|file| file.is_file()) {
        Some(index) if index.extension().is_some_and(|kind| kind == "json") => {
            read_shards(path, &index)
        }
        Some(file) => foreign::read(&file).map(|tensors| (file, tensors)),
        None => Err(Error::new(path, "neither model.safetensors nor pytorch_model.bin is there")),
    }
}

/// Large models are in several files, which an index names.
fn read_shards(folder: &Path, index: &Path) -> Result<(PathBuf, Tensors), Error> {
    let text = fs::read(index).map_err(|error| Error::new(index, error))?;
    let json: Value = serde_json::from_slice(&text).map_err(|error| Error::new(index, error))?;
    let map = json["weight_map"].as_object().ok_or_else(|| Error::new(index, "no weight_map"))?;
    let mut files: Vec<&str> = map.values().filter_map(Value::as_str).collect();
    files.sort_unstable();
    files.dedup();
    let mut all = Tensors::new();
    for file in files {
        // A name, not a way out of the folder.
        let name = Path::new(file).file_name().unwrap_or_default();
        all.extend(foreign::read(&folder.join(name))?);
    }
    Ok((index.to_path_buf(), all))
}

/// Writes a folder that Python's `transformers` loads: weights, configuration and tokenizer.
pub fn export(
    model: &BertClassifier,
    config: &BertConfig,
    classes: &[String],
    assets: &Assets,
    folder: &Path,
) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::new(folder, error))?;
    let prefix = if model.is_roberta() { "roberta" } else { "bert" };
    let name = |path: &str| {
        let name = names::of_classifier(path, model.is_roberta());
        if path.starts_with("encoder.") { format!("{prefix}.{name}") } else { name }
    };
    foreign::save(&model.valid(), &folder.join("model.safetensors"), &name)?;
    put_json(&folder.join(config::FILE), &json!(config.for_classes(classes)))?;
    export_tokenizer(config, assets, folder)
}

/// Writes the files of the tokenizer, as far as there are any.
pub fn export_tokenizer(config: &BertConfig, assets: &Assets, folder: &Path) -> Result<(), Error> {
    for name in ["tokenizer.json"].iter().chain(&TOKENIZER_FILES) {
        if let Some(bytes) = assets.file(name) {
            put(&folder.join(name), bytes)?;
        }
    }
    if assets.file("tokenizer.json").is_some() && assets.file("tokenizer_config.json").is_none() {
        put_json(&folder.join("tokenizer_config.json"), &tokenizer_config(config))?;
    }
    Ok(())
}

/// What a tokenizer needs to be told beside its file.
fn tokenizer_config(config: &BertConfig) -> Value {
    let longest = config.longest();
    match config.is_roberta() {
        true => json!({
            "model_max_length": longest, "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>",
            "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>",
        }),
        false => json!({
            "model_max_length": longest, "cls_token": "[CLS]", "sep_token": "[SEP]",
            "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]",
        }),
    }
}

fn put_json(path: &Path, value: &Value) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| Error::new(path, error))?;
    put(path, &text)
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(path, bytes, Durability::Synced).map_err(|error| Error::new(path, error))
}
