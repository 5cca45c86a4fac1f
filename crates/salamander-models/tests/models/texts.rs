//! BERT and RoBERTa beside Python's `transformers`: `tests/fixtures/make.py` wrote what is compared with.

use std::path::{Path, PathBuf};
use std::process::Command;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use salamander_core::optimizer::Optimizer;
use salamander_models::bert::{self, Bert, BertClassifier, BertConfig, Head, Tokenizer, Tokens};
use salamander_models::foreign;
use salamander_train::Pass;
use salamander_train::example::{AssetFiles, AssetKind, AssetSpec, Assets};
use salamander_train::gradients::GradientSum;
use salamander_train::optimize::OptimizerState;
use salamander_train::params;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    labels: Vec<i64>,
    ids: Vec<Vec<i64>>,
    logits: Vec<Vec<f32>>,
    embeddings: Vec<Vec<f32>>,
    losses: Vec<f32>,
}

struct Fixture {
    folder: PathBuf,
    config: BertConfig,
    expected: Expected,
}

impl Fixture {
    fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let read = |file: &str| std::fs::read(folder.join(file)).expect("a fixture");
        let config = BertConfig::parse(&read("config.json")).expect("a configuration");
        let expected = serde_json::from_slice(&read("expected.json")).expect("JSON");
        Self { folder, config, expected }
    }

    fn classifier(&self, device: &Device) -> BertClassifier {
        let fresh = BertClassifier::new(&self.config, 3, device);
        let (model, kept) = fresh.load(&self.folder, Head::There).expect("loads");
        assert!(kept.is_empty());
        model
    }

    fn tokens(&self, device: &Device) -> Tokens {
        Tokens::new("text", &self.expected.ids, device).expect("tokens")
    }
}

fn both() -> [Fixture; 2] {
    ["bert", "roberta"].map(Fixture::of)
}

fn close(found: Tensor<2>, expected: &[Vec<f32>], within: f32) {
    let found: Vec<f32> = found.into_data().iter().collect();
    let expected: Vec<f32> = expected.concat();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < within, "{found} and {expected}");
    }
}

#[test]
fn tokens_are_those_of_python() {
    for Fixture { folder, config, expected } in both() {
        let file = std::fs::read(folder.join("tokenizer.json")).expect("a fixture");
        let tokenizer = Tokenizer::parse(&file, 24).expect("a tokenizer");
        for (text, ids) in expected.texts.iter().zip(&expected.ids) {
            assert_eq!(&tokenizer.encode(text).expect("encodes"), ids, "{text}");
        }
        config.check_tokenizer(&tokenizer).expect("fits");
        let error = config.check_tokenizer(&Tokenizer::parse(&file, 25).expect("a tokenizer"));
        assert!(error.expect_err("too long").contains("longer than the model's 24"));
        let small = BertConfig { vocab_size: 20, ..config };
        let error = small.check_tokenizer(&tokenizer).expect_err("too small");
        assert!(error.contains("only 20 rows"), "{error}");
    }
}

/// Folders that were written before there was a `tokenizer.json`.
#[test]
fn files_of_old_tokenizers_give_the_same_tokens() {
    let spec = AssetSpec {
        file: "tokenizer.json",
        field: "text",
        columns: &["text"],
        kind: AssetKind::Tokenizer { max_length: 24 },
    };
    for Fixture { folder, config, expected } in both() {
        let file = std::fs::read(folder.join("tokenizer.json")).expect("a fixture");
        let model =
            serde_json::from_slice::<serde_json::Value>(&file).expect("JSON")["model"].take();
        let old = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: String| {
            std::fs::write(old.path().join(name), text).expect("written");
        };
        if config.is_roberta() {
            let line = |pair: &serde_json::Value| match pair.as_array() {
                Some(parts) => {
                    parts.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join(" ")
                }
                None => pair.as_str().expect("a pair").to_string(),
            };
            let merges = model["merges"].as_array().expect("pairs").iter().map(line);
            let merges = merges.collect::<Vec<_>>().join("\n");
            write("vocab.json", model["vocab"].to_string());
            write("merges.txt", format!("#version: 0.2\n{merges}\n"));
        } else {
            let ids = model["vocab"].as_object().expect("words");
            let mut words: Vec<&String> = ids.keys().collect();
            words.sort_by_key(|word| ids[*word].as_u64());
            write("vocab.txt", words.iter().map(|word| format!("{word}\n")).collect());
        }
        let made = AssetFiles::find(&[spec], &[old.path()]).expect("made");
        let made = made.get("tokenizer.json").expect("made");
        let tokenizer = Tokenizer::parse(made, 24).expect("a tokenizer");
        for (text, ids) in expected.texts.iter().zip(&expected.ids) {
            assert_eq!(&tokenizer.encode(text).expect("encodes"), ids, "{text}");
        }
    }
}

/// What Python's `tokenizers` makes of pairs of texts; nothing where it is not there, which must not be in CI.
fn pythons_pairs(file: &Path, pairs: &[[&str; 2]]) -> Option<Vec<[Vec<i64>; 2]>> {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has = Command::new(&python).args(["-c", "import tokenizers"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        let reason = format!("{python} has no tokenizers (SALAMANDER_PYTHON names another one)");
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        println!("SKIPPED: {reason}");
        return None;
    }
    let script = "\
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_padding()
tokenizer.enable_truncation(24)
found = [tokenizer.encode(*pair) for pair in json.loads(sys.argv[2])]
print(json.dumps([[each.ids, each.type_ids] for each in found]))
";
    let texts = serde_json::to_string(pairs).expect("JSON");
    let ended = Command::new(&python).args(["-c", script]).arg(file).arg(texts).output();
    let ended = ended.expect("Python starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(serde_json::from_slice(&ended.stdout).expect("JSON"))
}

#[test]
fn pairs_of_texts_are_those_of_python() {
    let long = "the film is old ".repeat(9);
    let long = long.as_str();
    let pairs = [
        ["A warm film.", "It is dull!"],
        ["这部电影很好看", "我喜欢。"],
        ["", "good"],
        ["good", ""],
        [long, "the jokes are old"],
        ["funny", long],
        [long, long],
    ];
    for Fixture { folder, .. } in both() {
        let file = folder.join("tokenizer.json");
        let bytes = std::fs::read(&file).expect("a fixture");
        let tokenizer = Tokenizer::parse(&bytes, 24).expect("a tokenizer");
        let Some(expected) = pythons_pairs(&file, &pairs) else { return };
        for ([first, second], [ids, types]) in pairs.iter().zip(expected) {
            let found = tokenizer.encode_pair(first, second).expect("encodes");
            assert_eq!((found.ids, found.types), (ids, types), "{first:?} and {second:?}");
        }
    }
}

#[test]
fn logits_are_those_of_transformers() {
    let device = Device::flex();
    for fixture in both() {
        let logits = fixture
            .classifier(&device.clone().autodiff())
            .valid()
            .forward(&fixture.tokens(&device));
        close(logits, &fixture.expected.logits, 1e-4);
    }
}

#[test]
fn embeddings_are_those_of_sentence_transformers() {
    let device = Device::flex();
    for fixture in both() {
        let encoder = Bert::new(&fixture.config, &device.clone().autodiff());
        let encoder = encoder.load(&fixture.folder).expect("the head is left out").valid();
        close(encoder.embed(&fixture.tokens(&device)), &fixture.expected.embeddings, 1e-4);
    }
}

/// Ten steps of SGD; returns the losses.
fn fine_tune(fixture: &Fixture, mut model: BertClassifier) -> (Vec<f32>, BertClassifier) {
    let device = Device::flex().autodiff();
    let pass = Pass::new("train", Optimizer::sgd(0.1));
    let mut optimizer = OptimizerState::new(&pass);
    let labels = TensorData::new(fixture.expected.labels.clone(), [fixture.expected.labels.len()]);
    let labels = Tensor::<1, Int>::from_data(labels, &device);
    let tokens = fixture.tokens(&device);
    let mut losses = Vec::new();
    for _ in 0..10 {
        let scores = log_softmax(model.forward(&tokens), 1);
        let loss = scores.gather(1, labels.clone().unsqueeze_dim(1)).mean().neg();
        losses.push(loss.clone().inner().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let sum = GradientSum::of(&model, gradients, &pass);
        model = optimizer.step(model, sum, 0.1).expect("a step");
    }
    (losses, model)
}

#[test]
fn ten_steps_of_fine_tuning_follow_pytorch() {
    for fixture in both() {
        let model = fixture.classifier(&Device::flex().autodiff());
        let (losses, _) = fine_tune(&fixture, model);
        for (found, expected) in losses.iter().zip(&fixture.expected.losses) {
            assert!((found - expected).abs() <= 1e-3 * expected.abs() + 1e-6, "{found} {expected}");
        }
    }
}

#[test]
fn frozen_layers_stay_and_the_others_move() {
    let fixture = Fixture::of("bert");
    let model = fixture.classifier(&Device::flex().autodiff()).freeze(1);
    let before: std::collections::HashMap<_, _> = params::read(&model).into_iter().collect();
    let (losses, model) = fine_tune(&fixture, model);
    assert!((losses[0] - fixture.expected.losses[0]).abs() < 1e-4, "{losses:?}");
    assert!(losses[9] < losses[0]);
    for (path, data) in params::read(&model) {
        let frozen =
            path.starts_with("encoder.embeddings.") || path.starts_with("encoder.layers.0.");
        // The gradient of a key's bias is zero: it moves all scores of a query alike.
        if !path.ends_with("key.bias") {
            assert_eq!(data == before[&path], frozen, "{path}");
        }
    }
}

#[test]
fn an_export_is_what_was_imported() {
    for fixture in both() {
        let device = Device::flex().autodiff();
        let out = tempfile::tempdir().expect("a folder");
        let classes = ["a", "b", "c"].map(String::from);
        let model = fixture.classifier(&device);
        bert::export(&model, &fixture.config, &classes, &Assets::default(), out.path())
            .expect("written");
        let original = foreign::read(&fixture.folder.join("model.safetensors")).expect("read");
        let written = foreign::read(&out.path().join("model.safetensors")).expect("read");
        assert_eq!(original.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>());
        assert_eq!(original, written);
        let config = std::fs::read(out.path().join("config.json")).expect("written");
        let config = BertConfig::parse(&config).expect("a configuration");
        assert_eq!(config.id2label["2"], "c");
    }
}

#[test]
fn a_bare_or_old_file_starts_a_classifier_and_mistakes_are_named() {
    let fixture = Fixture::of("bert");
    let device = Device::flex().autodiff();
    let tensors = foreign::read(&fixture.folder.join("model.safetensors")).expect("read");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, change: &dyn Fn(&str) -> Option<String>| {
        let path = folder.path().join(name);
        let changed: Vec<_> =
            tensors.iter().filter_map(|(name, data)| Some((change(name)?, data))).collect();
        let view = |data: &'_ TensorData| {
            let shape = data.shape().to_vec();
            let bytes = data.as_bytes().to_vec();
            (shape, bytes)
        };
        let owned: Vec<_> = changed.iter().map(|(name, data)| (name.clone(), view(data))).collect();
        let views = owned.iter().map(|(name, (shape, bytes))| {
            let dtype = safetensors::Dtype::F32;
            let view = safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes);
            (name.clone(), view.expect("a tensor"))
        });
        let bytes = safetensors::serialize(views, None).expect("serialized");
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let load =
        |path: &Path, head: Head| BertClassifier::new(&fixture.config, 3, &device).load(path, head);
    // Without prefix and head, with the old names of norms.
    let old = write("old.safetensors", &|name| {
        let name = name.strip_prefix("bert.")?;
        Some(match name.contains("LayerNorm") {
            true => name.replace(".weight", ".gamma").replace(".bias", ".beta"),
            false => name.to_string(),
        })
    });
    let (model, kept) = load(&old, Head::IfThere).expect("the head may be absent");
    assert_eq!(kept, ["classifier.weight", "classifier.bias"]);
    let own = fixture.classifier(&device);
    let encoder = |model: &BertClassifier| params::read(&model.encoder);
    assert_eq!(encoder(&model), encoder(&own));
    let error = load(&old, Head::There).expect_err("no head").to_string();
    assert!(error.contains("old.safetensors: classifier.weight is missing"), "{error}");

    let extra = write("extra.safetensors", &|name| {
        Some(name.replace("encoder.layer.1.attention.self.query.bias", "encoder.layer.7.odd"))
    });
    let error = load(&extra, Head::There).expect_err("unfit").to_string();
    assert!(error.contains("encoder.layer.1.attention.self.query.bias is missing"), "{error}");
    assert!(error.contains("bert.encoder.layer.7.odd is not in the model"), "{error}");

    let two = BertClassifier::new(&fixture.config, 2, &device);
    let error = two.clone().load(&fixture.folder, Head::IfThere).expect_err("three").to_string();
    assert!(
        error.contains("classifier.weight has shape [3, 32], the model's is [2, 32]"),
        "{error}"
    );
    assert!(error.contains("new_head"), "{error}");
    assert!(two.load(&fixture.folder, Head::Fresh).is_ok());
}

#[test]
fn several_files_are_read_by_their_index_and_a_single_one_goes_before_it() {
    let fixture = Fixture::of("bert");
    let device = Device::flex().autodiff();
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fixture.folder.join("model.safetensors");
    let file = |at: usize| format!("model-0000{}-of-00002.safetensors", at % 2 + 1);
    let mut map = serde_json::Map::new();
    let mut shards = [foreign::Tensors::new(), foreign::Tensors::new()];
    for (at, (name, data)) in foreign::read(&whole).expect("read").into_iter().enumerate() {
        map.insert(name.clone(), file(at).into());
        shards[at % 2].insert(name, data);
    }
    for (at, shard) in shards.iter().enumerate() {
        foreign::write(&folder.path().join(file(at)), shard).expect("written");
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).expect("written");
    let load = || BertClassifier::new(&fixture.config, 3, &device).load(folder.path(), Head::There);
    let (model, _) = load().expect("loads");
    assert_eq!(params::read(&model), params::read(&fixture.classifier(&device)));
    std::fs::remove_file(folder.path().join(file(1))).expect("removed");
    let error = load().expect_err("a part is missing").to_string();
    assert!(error.contains("model-00002-of-00002.safetensors: there is no such file"), "{error}");
    std::fs::copy(&whole, folder.path().join("model.safetensors")).expect("copied");
    load().expect("Python looks for the single file first");
}
