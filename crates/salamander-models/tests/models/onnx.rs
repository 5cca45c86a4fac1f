//! Networks in ONNX: onnxruntime gives the logits that Python's torchvision and transformers gave for the same weights.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::tensor::{Device, TensorData};
use salamander_kernels::layers::{Conv2dConfig, MaxPool2dConfig};
use salamander_models::bert::{BertClassifier, BertConfig, Head, Tokenizer, Tokens};
use salamander_models::foreign::{self, Tensors};
use salamander_models::mobilenet::MobileNetV2;
use salamander_models::onnx::{Axis, Edge, Element, Graph, Unsupported};
use salamander_models::resnet::ResNet;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::onnxruntime;
use crate::pictures::waves;

/// What onnxruntime gives for a graph; nothing where there is none, which must not be in CI.
fn run(graph: &Graph, inputs: &Value) -> Option<BTreeMap<String, Vec<f32>>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.onnx");
    graph.write(&file).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/run_onnx.py");
    let mut found = onnxruntime::outputs(&script, &file, inputs)?;
    Some(serde_json::from_value(found["outputs"].take()).expect("outputs"))
}

fn assert_close(found: &[f32], expected: &[Vec<f32>], what: &str) {
    let expected = expected.concat();
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-4 * largest, "{what}: {found} and {expected}");
    }
}

#[derive(Deserialize)]
struct Pictured {
    names: BTreeMap<String, Vec<usize>>,
    logits: Vec<Vec<f32>>,
}

fn picture_net<M: Module>(
    arch: &str,
    model: M,
    load: impl Fn(M, &Path, Head) -> Result<(M, Vec<String>), salamander_models::Error>,
    lay_out: impl Fn(&M, &mut Graph, &Edge) -> Result<Edge, Unsupported>,
) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision");
    let text = std::fs::read(fixtures.join("expected.json")).expect("a fixture");
    let mut all: BTreeMap<String, Pictured> = serde_json::from_slice(&text).expect("JSON");
    let Pictured { names, logits } = all.remove(arch).expect("is there");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("net.safetensors");
    let tensor =
        |shape: &Vec<usize>, name: &str| TensorData::new(waves(name, shape), shape.clone());
    let tensors: Tensors =
        names.iter().map(|(name, shape)| (name.clone(), tensor(shape, name))).collect();
    foreign::write(&path, &tensors).expect("written");
    let (model, _) = load(model, &path, Head::There).expect("loads");
    let mut graph = Graph::new(arch);
    let axes = [Axis::Any("batch"), Axis::Size(3), Axis::Any("height"), Axis::Any("width")];
    let x = graph.input("image", Element::F32, &axes);
    let found = lay_out(&model, &mut graph, &x).expect("is laid out");
    graph.classes(&found, 5, &[]);
    let shape = [4, 3, 64, 64];
    let image = json!({"shape": shape, "type": "float32", "values": waves("images", &shape)});
    let Some(found) = run(&graph, &json!({ "image": image })) else { return };
    assert_close(&found["logits"], &logits, arch);
    let sum: f32 = found["probabilities"].iter().sum();
    assert!((sum - 4.0).abs() < 1e-4, "{sum}");
}

#[test]
fn resnets_give_torchvisions_logits() {
    for arch in ["resnet18", "resnet50"] {
        let model =
            ResNet::new(arch.parse().expect("an architecture"), 5, &Device::flex().autodiff());
        picture_net(arch, model, ResNet::load, ResNet::lay_out);
    }
}

#[test]
fn mobilenet_gives_torchvisions_logits() {
    let model = MobileNetV2::new(5, &Device::flex().autodiff());
    picture_net("mobilenet_v2", model, MobileNetV2::load, MobileNetV2::lay_out);
}

#[test]
fn bert_and_roberta_give_the_logits_of_transformers_whatever_they_are_padded_with() {
    #[derive(Deserialize)]
    struct Expected {
        ids: Vec<Vec<i64>>,
        logits: Vec<Vec<f32>>,
    }
    for name in ["bert", "roberta"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let read = |file: &str| std::fs::read(folder.join(file)).expect("a fixture");
        let config = BertConfig::parse(&read("config.json")).expect("a configuration");
        let expected: Expected = serde_json::from_slice(&read("expected.json")).expect("JSON");
        let model = BertClassifier::new(&config, 3, &Device::flex().autodiff());
        let (model, _) = model.load(&folder, Head::There).expect("loads");
        let mut graph = Graph::new(name);
        let logits = model.lay_out(&mut graph);
        graph.classes(&logits, 3, &["a", "b", "c"].map(String::from));
        let longest = expected.ids.iter().map(Vec::len).max().expect("texts");
        let padded = |fill: &dyn Fn(i64) -> i64, pad: i64| {
            let row = |ids: &Vec<i64>| {
                let padding = std::iter::repeat_n(pad, longest + 1 - ids.len());
                ids.iter().map(|id| fill(*id)).chain(padding).collect::<Vec<i64>>()
            };
            let values: Vec<i64> = expected.ids.iter().flat_map(row).collect();
            json!({"shape": [expected.ids.len(), longest + 1], "type": "int64", "values": values})
        };
        // Whatever stands where the mask is zero.
        for pad in [0, 7] {
            let mut inputs = json!({
                "input_ids": padded(&|id| id, pad),
                "attention_mask": padded(&|_| 1, 0),
            });
            // RoBERTa's tokenizers make none.
            if config.type_vocab_size > 1 {
                inputs["token_type_ids"] = padded(&|_| 0, 0);
            }
            let Some(found) = run(&graph, &inputs) else { return };
            assert_close(&found["logits"], &expected.logits, name);
        }
    }
}

#[test]
fn the_second_text_of_a_pair_has_a_type_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bert");
    let read = |file: &str| std::fs::read(folder.join(file)).expect("a fixture");
    let config = BertConfig::parse(&read("config.json")).expect("a configuration");
    let tokenizer = Tokenizer::parse(&read("tokenizer.json"), 24).expect("a tokenizer");
    config.check_pairs(&tokenizer).expect("fits");
    let narrow = BertConfig { type_vocab_size: 1, ..config.clone() };
    assert!(narrow.check_pairs(&tokenizer).expect_err("one row").contains("tells 2 types"));
    let pair = tokenizer.encode_pair("a warm film", "the jokes are old").expect("encodes");
    assert!(pair.types.contains(&1) && pair.types[0] == 0, "{pair:?}");

    let device = Device::flex();
    let model = BertClassifier::new(&config, 3, &device.clone().autodiff());
    let (model, _) = model.load(&folder, Head::There).expect("loads");
    let pairs = Tokens::of_pairs("texts", std::slice::from_ref(&pair), &device).expect("tokens");
    let ours: Vec<f32> = model.valid().forward(&pairs).into_data().iter::<f32>().collect();
    let alone = Tokens::new("text", std::slice::from_ref(&pair.ids), &device).expect("tokens");
    let alone: Vec<f32> = model.valid().forward(&alone).into_data().iter::<f32>().collect();
    assert_ne!(ours, alone, "types count");
    let mut graph = Graph::new("pairs");
    let logits = model.lay_out(&mut graph);
    graph.classes(&logits, 3, &[]);
    for (types, expected) in [(pair.types.clone(), ours), (vec![0; pair.ids.len()], alone)] {
        let row =
            |values: &[i64]| json!({"shape": [1, values.len()], "type": "int64", "values": values});
        let inputs = json!({
            "input_ids": row(&pair.ids),
            "attention_mask": row(&vec![1; pair.ids.len()]),
            "token_type_ids": row(&types),
        });
        let Some(found) = run(&graph, &inputs) else { return };
        assert_close(&found["logits"], &[expected], "pairs");
    }
}

#[test]
fn layers_without_an_operation_are_refused_by_name() {
    let device = Device::flex();
    let mut graph = Graph::new("net");
    let x = graph.input("image", Element::F32, &[Axis::Any("batch")]);
    let same = Conv2dConfig::new([1, 1], [3, 3]).with_padding(PaddingConfig2d::Same).init(&device);
    let error = graph.conv2d("stem.conv", &same, &x).expect_err("unsupported").to_string();
    let expected = "stem.conv: padding that follows from the size of the input (Same), which cannot be exported";
    assert_eq!(error, expected);
    let pool = MaxPool2dConfig::new([2, 2]).with_ceil_mode(true).init();
    let error = graph.max_pool2d("stem.pool", &pool, &x).expect_err("unsupported").to_string();
    assert!(error.starts_with("stem.pool: windows that are partly outside"), "{error}");
}
