//! A digit recogniser is trained, served and asked: what it says is what `predict` writes, bit for bit, whatever is
//! computed beside a record.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use salamander_data::{Dataset, open};
use serde_json::{Value as Json, json};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_salamander"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist"));
    command
}

fn ok(command: &mut Command) {
    let ended = command.output().expect("the program starts");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?} failed:\n{told}");
}

/// A server that ends with the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        Self::logging(args, Stdio::inherit())
    }

    /// With what it says of itself in a place of its own.
    fn logging(args: &[&str], log: Stdio) -> Self {
        let mut command = program();
        command.arg("serve").args(args).args(["--http", "127.0.0.1:0"]);
        // Who runs the tests may want other logs.
        command.env_remove("SALAMANDER_LOG").env_remove("SALAMANDER_LOG_FORMAT").stderr(log);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on http://").map(str::to_string));
        Self { child, address: address.expect("it listens") }
    }

    fn get(&self, path: &str) -> Json {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).expect("JSON")
    }

    fn post(&self, path: &str, body: &str) -> Json {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).expect("JSON")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bits(values: &Json) -> Vec<u32> {
    let values = values.as_array().expect("a list").iter();
    values.map(|value| (value.as_f64().expect("a number") as f32).to_bits()).collect()
}

/// A model trained for a moment; what `predict` writes for its validation data.
fn trained(experiment: &str, folder: &Path) -> (PathBuf, Vec<Vec<u32>>) {
    let mut train = program();
    train.args(["train", experiment, "--set", "searcher.max_length={batches: 5}"]);
    ok(train.args(["--set", "reproducibility.experiment_seed=3", "--out"]).arg(folder));
    let run =
        std::fs::read_dir(folder).expect("runs").next().expect("a run").expect("a run").path();
    let out = folder.join("predicted.jsonl");
    let mut predict = program();
    predict.arg("predict").arg(&run).args(["--data", "data/mnist-valid.recordio", "--out"]);
    ok(predict.arg(&out));
    let text = std::fs::read_to_string(out).expect("predictions");
    let line = |line: &str| bits(&serde_json::from_str::<Json>(line).expect("JSON")["scores"]);
    (run, text.lines().map(line).collect())
}

fn images(count: u64) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist/data/mnist-valid.recordio");
    let data = Dataset::new(open(&[path], None).expect("opened").into()).expect("a dataset");
    let mut images = Vec::new();
    data.read(&(0..count).collect::<Vec<_>>(), &mut |_, row| {
        images.push(row.bytes("image")?.to_vec());
        Ok(())
    })
    .expect("read");
    images
}

fn check(experiment: &str, model: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, expected) = trained(experiment, folder.path());
    let images = images(300);
    let run = run.to_str().expect("a path");
    let serving = Serving::start(&[run, &format!("other={run}"), "--max-batch", "16"]);
    let path = format!("/v2/models/{model}/infer");
    let ask = |first: usize, rows: usize| {
        let data: Vec<u8> = images[first..first + rows].concat();
        let input =
            json!({"name": "image", "shape": [rows, 1, 28, 28], "datatype": "UINT8", "data": data});
        let request = json!({"inputs": [input], "outputs": [{"name": "scores"}]});
        let answer = serving.post(&path, &request.to_string());
        let found = bits(&answer["outputs"][0]["data"]);
        assert_eq!(found, expected[first..first + rows].concat(), "{rows} records from {first}");
    };
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let ask = &ask;
            scope.spawn(move || {
                for round in 0..12 {
                    ask((thread * 61 + round * 17) % 230, 1 + (thread * 13 + round * 7) % 64);
                }
            });
        }
    });
    // A record with the data's own column, and a model of another name.
    let record = json!({"image": images[7]}).to_string();
    let answer = serving.post("/v1/models/other:predict", &record);
    assert_eq!(bits(&answer["predictions"][0]["scores"]), expected[7]);
}

#[test]
fn a_served_network_says_what_predict_writes() {
    check("mnist.yaml", "mnist_conv16");
}

/// In eight bits a record's answer does not depend on what is computed beside it either, and is near the exact one.
#[test]
fn a_network_in_eight_bits_says_the_same_in_every_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, exact) = trained("mlp.yaml", folder.path());
    let images = images(60);
    let serving = Serving::start(&[&format!("digits={}", run.display()), "--int8"]);
    let ask = |first: usize, rows: usize| {
        let data: Vec<u8> = images[first..first + rows].concat();
        let input =
            json!({"name": "image", "shape": [rows, 1, 28, 28], "datatype": "UINT8", "data": data});
        let request = json!({"inputs": [input], "outputs": [{"name": "scores"}]});
        bits(&serving.post("/v2/models/digits/infer", &request.to_string())["outputs"][0]["data"])
    };
    let alone: Vec<Vec<u32>> = (0..60).map(|record| ask(record, 1)).collect();
    for rows in [2, 7, 33, 60] {
        assert_eq!(ask(0, rows), alone[..rows].concat(), "{rows} records");
    }
    assert_ne!(alone, exact[..60], "it was computed in f32");
    for (found, exact) in alone.concat().iter().zip(exact.concat()) {
        let far = (f32::from_bits(*found) - f32::from_bits(exact)).abs();
        assert!(far < 0.05, "{far}");
    }
}

/// The batch client is killed again and again; its output is what `predict` writes, each record once and in order.
#[test]
fn a_killed_batch_client_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, expected) = trained("mlp.yaml", folder.path());
    let serving = Serving::start(&[&format!("digits={}", run.display())]);
    let out = folder.path().join("answers.jsonl");
    let partial = folder.path().join("answers.jsonl.partial");
    let infer = || {
        let mut infer = program();
        let url = format!("http://{}", serving.address);
        infer.args(["infer", &url, "--model", "digits", "--data", "data/mnist-valid.recordio"]);
        infer.args(["--batch", "3", "--connections", "2", "--out"]).arg(&out).stdout(Stdio::null());
        infer
    };
    for kills in 1..4u64 {
        let mut child = infer().spawn().expect("starts");
        let lines = |path: &Path| {
            std::fs::read(path).unwrap_or_default().iter().filter(|b| **b == b'\n').count()
        };
        while lines(&partial) < kills as usize * 40 && child.try_wait().expect("known").is_none() {
            std::thread::yield_now();
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    ok(&mut infer());
    let text = std::fs::read_to_string(&out).expect("written");
    assert_eq!(text.lines().count(), expected.len());
    for (record, (line, expected)) in text.lines().zip(&expected).enumerate() {
        let line: Json = serde_json::from_str(line).expect("JSON");
        assert_eq!((&line["record"], &bits(&line["scores"])), (&json!(record), expected));
    }
    assert!(!partial.exists());
}

/// The scores of a CSV file's records, each in a column of its own.
fn scores_in_csv(path: &Path) -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(path).expect("written");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let score = |(name, cell): (&&str, &str)| {
        let number = || cell.parse::<f32>().expect("a number").to_bits();
        name.starts_with("scores_").then(number)
    };
    lines.map(|line| header.iter().zip(line.split(',')).filter_map(score).collect()).collect()
}

/// The same of a Parquet file.
fn scores_in_parquet(path: &Path, classes: usize) -> Vec<Vec<u32>> {
    let file = open(&[path.to_path_buf()], None).expect("opened");
    let data = Dataset::new(file.into()).expect("a dataset");
    let mut scores = Vec::new();
    data.read(&(0..data.len()).collect::<Vec<_>>(), &mut |at, row| {
        assert_eq!(row.ints("record")?, [at as i64]);
        let mut own = Vec::new();
        for class in 0..classes {
            own.push(row.floats(&format!("scores_{class}"))?[0].to_bits());
        }
        scores.push(own);
        Ok(())
    })
    .expect("read");
    scores
}

/// The batch client writes tables with the values of its lines of JSON; the server logs who asked.
#[test]
fn answers_are_tables_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, expected) = trained("mlp.yaml", folder.path());
    let log = folder.path().join("log.txt");
    let file = std::fs::File::create(&log).expect("a file");
    let named = format!("digits={}", run.display());
    let serving = Serving::logging(&[&named, "--access-log"], file.into());
    let infer = |name: &str| {
        let (mut infer, out) = (program(), folder.path().join(name));
        let url = format!("http://{}", serving.address);
        infer.args(["infer", &url, "--model", "digits", "--data", "data/mnist-valid.recordio"]);
        ok(infer.arg("--out").arg(&out));
        out
    };
    let text = std::fs::read_to_string(infer("answers.jsonl")).expect("written");
    let line = |line: &str| bits(&serde_json::from_str::<Json>(line).expect("JSON")["scores"]);
    assert!(text.lines().map(line).eq(expected.iter().cloned()), "lines say what predict says");
    assert_eq!(scores_in_csv(&infer("answers.csv")), expected);
    assert_eq!(scores_in_parquet(&infer("answers.parquet"), 10), expected);

    // A line is written before its request is answered.
    let log = std::fs::read_to_string(log).expect("a log");
    let told = |line: &str| line.contains("answered") && line.contains("/v2/models/digits/infer");
    assert!(log.lines().any(told), "{log}");
}

#[test]
fn a_run_that_goes_on_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, _) = trained("mlp.yaml", folder.path());
    let named = format!("digits={}", run.display());
    let serving = Serving::start(&[&named, "--checkpoint", "latest", "--watch"]);
    let version = || serving.get("/v2/models/digits")["versions"][0].as_str().map(str::to_string);
    let first = version();
    let mut resume = program();
    resume.args(["train", "--resume"]).arg(&run);
    ok(resume.args(["--set", "searcher.max_length={batches: 9}"]));
    while version() == first {
        std::thread::yield_now();
    }
    assert_eq!(version().as_deref(), Some("step-00000009"));
    assert_eq!(serving.get("/v2/health/ready")["ready"], true);
}
