//! A small BERT is fine-tuned from a folder of Hugging Face, used, and exported into one again.

use std::fs;
use std::path::{Path, PathBuf};

use salamander::run::{Overrides, Program, Which};

/// A folder with a small random BERT, reviews, and an experiment.
struct Reviews {
    folder: tempfile::TempDir,
}

impl Reviews {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates/salamander-models/tests/fixtures/bert");
        fs::create_dir(folder.path().join("tiny")).expect("made");
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            let text = fs::read(source.join(file)).expect("a fixture");
            // The fixture's texts are shorter than those of the zoo.
            let text = match file {
                "config.json" => {
                    let text = String::from_utf8(text).expect("text");
                    text.replace(
                        "\"max_position_embeddings\": 24",
                        "\"max_position_embeddings\": 128",
                    )
                    .into_bytes()
                }
                _ => text,
            };
            fs::write(folder.path().join("tiny").join(file), text).expect("written");
        }
        let lines = (0..96).map(|at| match at % 2 {
            0 => format!("\"a wonderful film, warm and funny {}\",positive\n", at % 7),
            _ => format!("\"it is dull; the jokes are old {}\",negative\n", at % 5),
        });
        let text = format!("text,label\n{}", lines.collect::<String>());
        fs::write(folder.path().join("train.csv"), &text).expect("written");
        let reviews = Self { folder };
        reviews.write("");
        reviews
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, more: &str) {
        let text = format!(
            "entrypoint: bert_reviews\ndata: {{training: train.csv, validation: train.csv}}\n\
             hyperparameters: {{bert_type: tiny, global_batch_size: 16, learning_rate: 0.003, warmup: 2, \
             new_head: true{more}}}\n\
             reproducibility: {{experiment_seed: 1}}\nsearcher: {{max_length: {{epochs: 4}}}}\n"
        );
        fs::write(self.path("bert.yaml"), text).expect("written");
    }

    /// The position table of the fixture is for 24 tokens: gives it rows up to 128.
    fn lengthen(&self) {
        use salamander::models::foreign;
        let path = self.path("tiny/model.safetensors");
        let mut tensors = foreign::read(&path).expect("read");
        let name = "bert.embeddings.position_embeddings.weight";
        let short: Vec<f32> = tensors[name].iter::<f32>().collect();
        let long: Vec<f32> = (0..128 * 32).map(|at| short[at % short.len()]).collect();
        let data = salamander::burn::tensor::TensorData::new(long, [128, 32]);
        tensors.insert(name.to_string(), data);
        foreign::write(&path, &tensors).expect("written");
    }
}

#[test]
fn a_folder_of_hugging_face_is_fine_tuned_used_and_exported() {
    let reviews = Reviews::new();
    reviews.lengthen();
    let program = Program::enter(model_zoo::models());
    let out = reviews.path("runs");
    let draft = program.experiment(reviews.path("bert.yaml"), &Overrides::default(), &out);
    let finished = draft.expect("a draft").start().expect("starts").wait().expect("trains");
    let found = finished.outcome.progress.validation.expect("validates").values();
    assert!(found["accuracy"] > 0.95, "{found:?}");

    // From here on the run has all that it needs.
    fs::rename(reviews.path("tiny"), reviews.path("away")).expect("renamed");
    let model = program.load(finished.run.folder(), &Which::Latest, "cpu").expect("loads");
    let mut first = Vec::new();
    fs::write(reviews.path("new.csv"), "text\nwarm and funny\ndull and old\n").expect("written");
    let data = [reviews.path("new.csv").display().to_string()];
    let mut take = |batch: salamander::train::Predictions| {
        first.extend(batch.values.chunks(batch.width).map(|row| row[1]));
        Ok(())
    };
    model.predict(&data, &mut take).expect("predicts");
    assert!(first[0] > 0.5 && first[1] < 0.5, "{first:?}");

    let folder = reviews.path("exported");
    model.export_as("huggingface", &folder).expect("exports");
    let config = fs::read_to_string(folder.join("config.json")).expect("written");
    assert!(config.contains("\"1\": \"positive\""), "{config}");
    assert!(
        folder.join("tokenizer.json").is_file() && folder.join("tokenizer_config.json").is_file()
    );
    served_as_it_is(&folder, &first);
    let error = model.export_as("gguf", &folder).expect_err("no such format").to_string();
    assert!(error.contains("bert_reviews can be exported as: huggingface, onnx"), "{error}");

    // And what was exported is a folder to begin with again.
    fs::rename(&folder, reviews.path("tiny")).expect("renamed");
    reviews.write(", frozen_layers: 2");
    let again = program.experiment(reviews.path("bert.yaml"), &Overrides::default(), &out);
    again.expect("a draft").start().expect("starts").wait().expect("trains");
}

/// What a folder of Hugging Face, served without anything of ours, says of two texts.
fn asked_as_it_is(folder: &Path) -> serde_json::Value {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_salamander"));
    serve.arg("serve").arg(format!("reviews={}", folder.display()));
    serve.args(["--http", "127.0.0.1:0"]).stdout(std::process::Stdio::piped());
    let mut child = serve.spawn().expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening on http://").map(str::to_string));
    let body = r#"[{"text": "warm and funny"}, {"text": "dull and old"}]"#;
    let mut stream = std::net::TcpStream::connect(address.expect("it listens")).expect("connects");
    write!(
        stream,
        "POST /v2/models/reviews/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

fn output(answer: &serde_json::Value, name: &str) -> serde_json::Value {
    let outputs = answer["outputs"].as_array().expect("outputs");
    outputs.iter().find(|output| output["name"] == name).expect(name)["data"].clone()
}

/// It says what the run says.
fn served_as_it_is(folder: &Path, expected: &[f32]) {
    let answer = asked_as_it_is(folder);
    let label = output(&answer, "label");
    assert_eq!(label, serde_json::json!(["positive", "negative"]), "{answer}");
    let scores = output(&answer, "scores");
    for (at, expected) in expected.iter().enumerate() {
        let found = scores[2 * at + 1].as_f64().expect("a score");
        assert!((found - f64::from(*expected)).abs() < 1e-6, "{found} instead of {expected}");
    }
}

#[test]
fn a_single_score_is_served_as_how_likely_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let tiny = folder.path().join("tiny");
    crate::support::tiny_bert(&tiny);
    let file = tiny.join("model.safetensors");
    let mut tensors = salamander::models::foreign::read(&file).expect("read");
    for (name, shape) in [("classifier.weight", vec![1_usize, 32]), ("classifier.bias", vec![1])] {
        let count: usize = shape.iter().product();
        let first: Vec<f32> = tensors[name].iter::<f32>().take(count).collect();
        let data = salamander::burn::tensor::TensorData::new(first, shape);
        tensors.insert(name.to_string(), data);
    }
    salamander::models::foreign::write(&file, &tensors).expect("written");
    let config = fs::read(tiny.join("config.json")).expect("read");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    config["id2label"] = serde_json::json!({"0": "LABEL_0"});
    config["label2id"] = serde_json::json!({"LABEL_0": 0});
    fs::write(tiny.join("config.json"), config.to_string()).expect("written");
    let answer = asked_as_it_is(&tiny);
    let [scores, logits] = ["scores", "logits"].map(|name| output(&answer, name));
    for at in 0..2 {
        let [score, logit] = [&scores, &logits].map(|of| of[at].as_f64().expect("a number"));
        assert!((score - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{answer}");
    }
}

#[test]
fn mistakes_are_told_before_a_run_begins() {
    let reviews = Reviews::new();
    let program = Program::enter(model_zoo::models());
    let start = || {
        let draft = program.experiment(
            reviews.path("bert.yaml"),
            &Overrides::default(),
            reviews.path("runs"),
        );
        let started = draft.and_then(|draft| draft.start()?.wait());
        started.expect_err("a mistake").to_string()
    };
    // The table of places was not lengthened with the configuration.
    let error = start();
    let expected = "position_embeddings.weight has shape [24, 32], the model's is [128, 32]";
    assert!(error.contains(expected), "{error}");

    let config = fs::read_to_string(reviews.path("tiny/config.json")).expect("read");
    fs::write(reviews.path("tiny/config.json"), config.replace("128", "24")).expect("written");
    let error = start();
    assert!(
        error.contains("texts of 128 tokens (max_length) are longer than the model's 24"),
        "{error}"
    );
    reviews.write(", max_length: 24");
    let draft =
        program.experiment(reviews.path("bert.yaml"), &Overrides::default(), reviews.path("short"));
    draft.expect("a draft").start().expect("fits").wait().expect("trains");
    reviews.write("");

    fs::remove_file(reviews.path("tiny/tokenizer.json")).expect("removed");
    let error = start();
    assert!(error.contains("tokenizer.json, which `text` is read with, is neither in"), "{error}");
    assert!(!error.contains("data fit"), "{error}");
}
