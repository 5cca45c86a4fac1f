//! A BERT is fine-tuned on anybody's table of texts and classes, as it comes: its format, the names of its columns, the
//! words for its classes.

use std::fs;
use std::path::{Path, PathBuf};

use salamander_data::{Format, Row, Value, sink};

use crate::{program, support};

const TEXTS: [&str; 3] =
    ["a wonderful film, warm and funny", "it is neither here nor there", "dull; the jokes are old"];

/// In the order of the texts.
const WORDS: [&str; 3] = ["good", "fine", "bad"];

struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    /// A small BERT and the zoo's experiment.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        support::tiny_bert(&folder.path().join("tiny"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("text/bert.yaml");
        fs::copy(file, folder.path().join("bert.yaml")).expect("the zoo's experiment");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Result<String, String> {
        program::salamander(self.folder.path(), args)
    }

    /// Writes each of the texts several times, with what `label` says of it.
    fn write(&self, name: &str, columns: [&'static str; 2], label: fn(usize) -> Value<'static>) {
        let path = self.path(name);
        let format = Format::guess(&path).expect("a known ending");
        let mut file = sink::create(&path, format).expect("a file");
        for at in (0..48).map(|at| at % TEXTS.len()) {
            let [text, class] = columns.map(Into::into);
            file.write(&Row::new(vec![(text, Value::Text(TEXTS[at])), (class, label(at))]))
                .expect("written");
        }
        file.finish().expect("finished");
    }

    /// Trains the zoo's experiment on a file, with settings beside; returns the run.
    fn train(&self, data: &str, sets: &[&str]) -> Result<String, String> {
        let (training, validation) =
            (format!("data.training={data}"), format!("data.validation={data}"));
        let own = [
            training.as_str(),
            validation.as_str(),
            "hyperparameters.bert_type=tiny",
            "hyperparameters.global_batch_size=12",
            "hyperparameters.learning_rate=0.003",
            "hyperparameters.warmup=2",
            "hyperparameters.dropout=0.0",
            "searcher.max_length={batches: 40}",
        ];
        let sets = own.iter().chain(sets).flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["train", "bert.yaml", "--json"].into_iter().chain(sets).collect();
        let summary = program::summary(&self.run(&args)?);
        let accuracy = &summary["metrics"]["validation"]["accuracy"];
        assert!(accuracy.as_f64().is_some_and(|found| found > 0.95), "{summary}");
        Ok(summary["dir"].as_str().expect("a folder").to_string())
    }

    /// The classes that a run gives to the texts of a file.
    fn labels(&self, run: &str, data: &str) -> Vec<String> {
        let args = ["predict", run, "--data", data, "--out", "p.jsonl", "--checkpoint", "latest"];
        self.run(&args).expect("predicts");
        let told = fs::read_to_string(self.path("p.jsonl")).expect("written");
        let label = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["label"].as_str().unwrap_or_else(|| panic!("{line}")).to_string()
        };
        told.lines().map(label).collect()
    }
}

#[test]
fn a_table_of_any_format_and_names_trains_and_is_predicted_in_its_own_words() {
    let place = Workplace::new();
    let lines = TEXTS.map(|text| format!("{{\"text\": {text:?}}}\n"));
    fs::write(place.path("new.jsonl"), lines.concat()).expect("written");
    let check = |data: &str, sets: &[&str], words: [&str; 3]| {
        let run = place.train(data, sets).unwrap_or_else(|error| panic!("{data}: {error}"));
        assert_eq!(place.labels(&run, "new.jsonl"), words, "{data}");
        run
    };
    let word = |at: usize| Value::Text(WORDS[at]);
    place.write("plain.csv", ["text", "label"], word);
    let run = check("plain.csv", &[], WORDS);
    place.write("reviews.tsv", ["review", "opinion"], word);
    let named = "data.columns={text: review, label: opinion}";
    let other = check("reviews.tsv", &[named], WORDS);
    assert_eq!(place.labels(&other, "reviews.tsv")[..3], WORDS, "under the names of the files");
    place.write("reviews.jsonl", ["review", "opinion"], word);
    check("reviews.jsonl", &[named], WORDS);
    place.write("stars.parquet", ["text", "label"], |at| {
        Value::Ints(vec![5 - 2 * at as i64].into())
    });
    check("stars.parquet", &[], ["5", "3", "1"]);
    let text = fs::read_to_string(place.path("plain.csv")).expect("read");
    let (_, without) = text.split_once('\n').expect("a header");
    fs::write(place.path("bare.csv"), without).expect("written");
    check("bare.csv", &["data.csv={header: [text, label]}"], WORDS);

    // What is exported says the classes, and begins another run with them.
    place.run(&["export", &run, "--out", "out", "--format", "huggingface"]).expect("exports");
    let config = fs::read_to_string(place.path("out/config.json")).expect("written");
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!(config["id2label"], serde_json::json!({"0": "bad", "1": "fine", "2": "good"}));
    let again = "hyperparameters.bert_type=out";
    check("reviews.tsv", &[named, again], WORDS);
    let error = place.train("stars.parquet", &[again]).expect_err("other classes");
    assert!(error.contains("names the classes bad, fine, good and the data 1, 3, 5"), "{error}");
    assert!(error.contains("new_head: true"), "{error}");
    check("stars.parquet", &[again, "hyperparameters.new_head=true"], ["5", "3", "1"]);
}

#[test]
fn classes_can_be_said_and_what_is_none_of_them_is_named() {
    let place = Workplace::new();
    place.write("plain.csv", ["text", "label"], |at| Value::Text(WORDS[at]));
    fs::write(place.path("other.csv"), "text,label\nfilm,odd\n").expect("written");
    let error = place.train("plain.csv", &["data.validation=other.csv"]).expect_err("a new class");
    let expected = "column \"label\": line 2: \"odd\" is none of its classes: bad, fine, good";
    assert!(error.contains(expected) && error.contains("other.csv"), "{error}");
    let error = place.train("plain.csv", &["data.columns={label: opinion}"]);
    error.expect("a file without the named column is read as it is");
    let error = place.train("plain.csv", &["data.columns={text: label, label: label}"]);
    let error = error.expect_err("one column, two names");
    assert!(error.contains("a column of the files can have one name only"), "{error}");

    fs::write(place.path("classes.txt"), "good\nfine\nbad\n").expect("written");
    let run = place.train("plain.csv", &[]).expect("trains");
    place.run(&["export", &run, "--out", "out", "--format", "huggingface"]).expect("exports");
    let config = fs::read_to_string(place.path("out/config.json")).expect("written");
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!(config["id2label"], serde_json::json!({"0": "good", "1": "fine", "2": "bad"}));
    fs::write(place.path("classes.txt"), "good\nfine\n").expect("written");
    let fresh = "hyperparameters.new_head=true";
    let error = place.train("plain.csv", &[fresh]).expect_err("one is not said");
    assert!(error.contains("\"bad\" is none of its classes: good, fine"), "{error}");
}
