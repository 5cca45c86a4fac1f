//! Weights, tokenizers and texts that are not as they should be, through the command line: named, or treated as the
//! guide says, and never a panic.

use std::fs;
use std::path::{Path, PathBuf};

use salamander::burn::tensor::TensorData;
use salamander::models::foreign::{self, Tensors};
use salamander_data::{Format, Row, Value, sink};

use crate::{program, support};

struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    /// A small BERT, reviews and an experiment.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        support::tiny_bert(&folder.path().join("tiny"));
        let lines = (0..32).map(|at| match at % 2 {
            0 => format!("\"a wonderful film, warm and funny {}\",positive\n", at % 7),
            _ => format!("\"it is dull; the jokes are old {}\",negative\n", at % 5),
        });
        let text = format!("text,label\n{}", lines.collect::<String>());
        fs::write(folder.path().join("train.csv"), text).expect("written");
        let text = "entrypoint: bert_reviews\ndata: {training: train.csv}\n\
                    hyperparameters: {bert_type: tiny, global_batch_size: 8, new_head: true}\n\
                    reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 3}}\n";
        fs::write(folder.path().join("x.yaml"), text).expect("written");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Result<String, String> {
        program::salamander(self.folder.path(), args)
    }

    /// Trains; returns the run.
    fn train(&self, sets: &[&str]) -> Result<String, String> {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["train", "x.yaml", "--json"].into_iter().chain(sets).collect();
        let summary = program::summary(&self.run(&args)?);
        Ok(summary["dir"].as_str().expect("a folder").to_string())
    }

    fn refused(&self, sets: &[&str], expected: &[&str]) {
        let error = self.train(sets).expect_err("a mistake");
        expected.iter().for_each(|part| assert!(error.contains(part), "{part:?} in {error}"));
        assert!(!self.path("runs").exists(), "no run was begun: {error}");
    }

    /// What `predict` writes of a file.
    fn predicted(&self, run: &str, data: &str) -> Result<String, String> {
        let out = ["--out", "p.jsonl", "--checkpoint", "latest"];
        self.run(&[&["predict", run, "--data", data][..], &out].concat())?;
        Ok(fs::read_to_string(self.path("p.jsonl")).expect("written"))
    }
}

/// Changes the weights of a file.
fn change(path: &Path, how: impl FnOnce(&mut Tensors)) {
    let mut tensors = foreign::read(path).expect("read");
    how(&mut tensors);
    foreign::write(path, &tensors).expect("written");
}

#[test]
fn weights_that_do_not_fit_are_named_before_a_run_begins() {
    let place = Workplace::new();
    let file = place.path("tiny/model.safetensors");
    let good = fs::read(&file).expect("weights");
    let query = "bert.encoder.layer.1.attention.self.query.bias";
    change(&file, |tensors| drop(tensors.remove(query)));
    let missing = "encoder.layer.1.attention.self.query.bias is missing";
    place.refused(&[], &["model.safetensors", missing]);

    fs::write(&file, &good).expect("written");
    change(&file, |tensors| {
        tensors.insert("bert.encoder.layer.9.odd".into(), TensorData::zeros::<f32, _>([2]));
        tensors.insert(query.into(), TensorData::zeros::<f32, _>([31]));
    });
    let odd = "bert.encoder.layer.9.odd is not in the model";
    place.refused(&[], &[odd, "query.bias has shape [31], the model's is [32]"]);

    fs::write(&file, &good[..good.len() / 2]).expect("written");
    place.refused(&[], &["model.safetensors"]);
    fs::remove_file(&file).expect("removed");
    place.refused(&[], &["neither model.safetensors nor pytorch_model.bin is there"]);
}

#[test]
fn a_tokenizer_that_does_not_fit_is_refused() {
    let place = Workplace::new();
    let (config, tokenizer) = (place.path("tiny/config.json"), place.path("tiny/tokenizer.json"));
    let text = fs::read_to_string(&config).expect("a configuration");
    let said = text.lines().find(|line| line.contains("vocab_size\"") && !line.contains("type"));
    let smaller = text.replace(said.expect("a size"), "  \"vocab_size\": 20");
    fs::write(&config, smaller).expect("written");
    place
        .refused(&[], &["the tokenizer has ids up to", "only 20 rows (vocab_size in config.json)"]);
    fs::write(&config, &text).expect("written");

    let good = fs::read(&tokenizer).expect("a tokenizer");
    fs::write(&tokenizer, "{}").expect("written");
    place.refused(&[], &["tokenizer.json", "it is no tokenizer"]);
    fs::write(&tokenizer, good).expect("written");

    let pairs = ["entrypoint=bert_pairs", "data.training=pairs.csv"];
    fs::write(place.path("pairs.csv"), "premise,hypothesis,label\na,b,neutral\n").expect("written");
    fs::write(&config, text.replace("\"type_vocab_size\": 2", "\"type_vocab_size\": 1"))
        .expect("written");
    place.refused(&pairs, &["tells 2 types of text, and the model's table has 1 rows"]);
    fs::write(&config, text).expect("written");
    place.refused(&["entrypoint=bert_pairs"], &["column \"premise\""]);
}

#[test]
fn rates_by_layer_need_the_models_layers() {
    let place = Workplace::new();
    let decay = "hyperparameters.layer_decay=0.9";
    let said = "layers is 12, and config.json says num_hidden_layers 2";
    place.refused(&[decay], &["bert_reviews", said]);
    let pairs = ["entrypoint=bert_pairs", "data.training=pairs.csv", decay];
    let lines = "a,b,neutral\n".repeat(16);
    fs::write(place.path("pairs.csv"), format!("premise,hypothesis,label\n{lines}"))
        .expect("written");
    place.refused(&pairs, &["bert_pairs", said]);
    place.train(&[decay, "hyperparameters.layers=2"]).expect("it has two");
    place.train(&["hyperparameters.layers=7"]).expect("nothing counts by layers");
}

#[test]
fn empty_texts_are_special_tokens_and_long_ones_are_cut() {
    let place = Workplace::new();
    let run = place.train(&[]).expect("trains");
    let film = |count: usize| "film ".repeat(count);
    let text = format!("text\n\"\"\n\" \"\n{}\n{}\n{}\nfilm\n", film(126), film(127), film(900));
    fs::write(place.path("new.csv"), text).expect("written");
    let told = place.predicted(&run, "new.csv").expect("predicted");
    let logits = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(["negative", "positive"].map(Some).contains(&line["label"].as_str()), "{line}");
        line["logits"].to_string()
    };
    let found: Vec<String> = told.lines().map(logits).collect();
    assert_eq!(found.len(), 6);
    assert_eq!(found[0], found[1], "nothing but spaces is nothing");
    assert_eq!(found[2], found[3], "a word more than 126 and two special tokens");
    assert_eq!(found[2], found[4]);
    assert!(found[5] != found[0] && found[5] != found[2], "{found:?}");
    // As long as a hyperparameter says, in whatever the run is used for.
    let short = place.train(&["hyperparameters.max_length=12"]).expect("trains");
    let text = format!("text\n{0}\n{0}dull\n{1}\n", film(10), film(3));
    fs::write(place.path("texts.csv"), text).expect("written");
    let told = place.predicted(&short, "texts.csv").expect("predicted");
    let found: Vec<String> = told.lines().map(logits).collect();
    assert!(found[0] == found[1] && found[0] != found[2], "{found:?}");
    let error = place.train(&["hyperparameters.max_length=2"]).expect_err("no room for a text");
    assert!(error.contains("max_length"), "{error}");
    // Where nothing is required, nothing is missing: a column is.
    fs::write(place.path("other.csv"), "words\nfilm\n").expect("written");
    let error = place.predicted(&run, "other.csv").expect_err("no such column");
    assert!(error.contains("other.csv") && error.contains("column \"text\""), "{error}");
}

#[test]
fn tokens_that_were_made_before_are_those_of_the_text() {
    let place = Workplace::new();
    let convert = |out: &str, more: &[&str]| {
        let args = ["data", "convert", "train.csv", "--out", out];
        place.run(&[&args[..], more].concat())
    };
    let by_file = ["--tokenize", "text=tiny/tokenizer.json"];
    convert("tokens.recordio", &by_file).expect("converted");
    convert("tokens.parquet", &by_file).expect("converted");
    let run = place.train(&[]).expect("trains");
    let text = place.predicted(&run, "train.csv").expect("predicted");
    assert_eq!(place.predicted(&run, "tokens.recordio").expect("predicted"), text);
    assert_eq!(place.predicted(&run, "tokens.parquet").expect("predicted"), text);
    let cached = place.train(&["data.training=tokens.recordio"]).expect("trains on tokens");
    assert_eq!(place.predicted(&cached, "train.csv").expect("predicted"), text);

    let error = convert("tokens.csv", &by_file).expect_err("no lists");
    assert!(error.contains("csv holds text alone"), "{error}");
    let error = convert("x.recordio", &["--tokenize", "words=tiny/tokenizer.json"]);
    assert!(error.expect_err("no such column").contains("there is no column \"words\""));
    let error = convert("x.recordio", &["--tokenize", "text=tiny/config.json"]);
    assert!(error.expect_err("no tokenizer").contains("tiny/config.json: it is no tokenizer"));

    let odd = |name: &str, ids: Vec<i64>| {
        let mut file = sink::create(&place.path(name), Format::RecordIo).expect("a file");
        for ids in [vec![2, 3], ids] {
            let cells = vec![("text".into(), Value::Ints(ids.into()))];
            file.write(&Row::new(cells)).expect("written");
        }
        file.finish().expect("finished");
        place.predicted(&run, name).expect_err("other tokens")
    };
    let error = odd("odd.recordio", vec![2, 99_999, 3]);
    assert!(error.contains("odd.recordio") && error.contains("record 1"), "{error}");
    assert!(error.contains("the token 99999 is none of the tokenizer's"), "{error}");
    let error = odd("long.recordio", vec![2; 129]);
    assert!(error.contains("129 tokens, and at most 128 are asked for"), "{error}");
}

#[test]
fn weights_of_pictures_that_do_not_fit_are_named() {
    let place = Workplace::new();
    let mut photos = sink::create(&place.path("photos"), Format::ImageFolder).expect("a folder");
    for at in 0..2u8 {
        let pixels = vec![at; 3 * 8 * 8];
        let cells = vec![
            ("image".into(), Value::Bytes(&pixels)),
            ("height".into(), Value::Ints(vec![8].into())),
            ("width".into(), Value::Ints(vec![8].into())),
            ("class".into(), Value::Text(["left", "right"][usize::from(at)])),
        ];
        photos.write(&Row::new(cells)).expect("written");
    }
    photos.finish().expect("finished");
    let text = "entrypoint: imagenet\ndata: {training: photos}\n\
                hyperparameters: {arch: resnet18, classes: 2, pretrained: weights.safetensors, global_batch_size: 2}\n\
                searcher: {max_length: {batches: 1}}\n";
    fs::write(place.path("x.yaml"), text).expect("written");
    place.refused(&[], &["weights.safetensors", "there is no such file"]);
    let weights = place.path("weights.safetensors");
    let tensors: Tensors = [
        ("conv1.weight".to_string(), TensorData::zeros::<f32, _>([64, 3, 3, 3])),
        ("odd".to_string(), TensorData::zeros::<f32, _>([1])),
    ]
    .into();
    foreign::write(&weights, &tensors).expect("written");
    let shape = "conv1.weight has shape [64, 3, 3, 3], the model's is [64, 3, 7, 7]";
    place.refused(&[], &["weights.safetensors", shape, "bn1.weight is missing", "and "]);
    fs::write(&weights, "nothing").expect("written");
    place.refused(&[], &["weights.safetensors"]);
}
