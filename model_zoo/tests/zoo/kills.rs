//! Models that people have, on three workers of which some are killed: the weights have the bits of a run alone.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use salamander_data::generate::Pictures;
use salamander_data::{Format, Row, Value, sink};
use serde_json::Value as Json;

use crate::support;

/// Nothing here takes a tenth of it.
const LONGEST: Duration = Duration::from_secs(600);

/// On a busy machine a run may be over before a kill arrives; then there is another one.
const TRIES: usize = 5;

struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    /// A folder with an experiment.
    fn new(experiment: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("x.yaml"), experiment).expect("written");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, out: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_salamander"));
        command.args(["train", "x.yaml", "--json", "--out", out]).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    fn alone(&self) -> Json {
        let ended = self.command("alone").output().expect("the program starts");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{told}");
        last_line(&String::from_utf8_lossy(&ended.stdout))
    }

    /// On three workers, one of which is killed after the first step and another one later; nothing where nobody was
    /// missed, because the kills came too late.
    fn under_fire(&self, out: &str) -> Option<Json> {
        let file = |name: &str| File::create(self.path(name)).expect("a file");
        let mut command = self.command(out);
        command.args(["--workers", "3"]).stdout(file("out.txt")).stderr(file("err.txt"));
        let mut parent = command.spawn().expect("the program starts");
        let (begun, mut killed, mut due) = (Instant::now(), 0, 1);
        let status = loop {
            if let Some(status) = parent.try_wait().expect("known") {
                break status;
            }
            let told = || fs::read_to_string(self.path("err.txt")).unwrap_or_default();
            if begun.elapsed() > LONGEST {
                let _ = parent.kill();
                let _ = parent.wait();
                panic!("the run hangs\n{}", told());
            }
            let done = self.steps(out);
            if killed < 2
                && done >= due
                && let Some(victim) = workers_of(parent.id()).get(killed)
            {
                let sent =
                    Command::new("sh").args(["-c", &format!("kill -KILL {victim}")]).status();
                killed += usize::from(sent.is_ok_and(|sent| sent.success()));
                due = done + 2;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let told = fs::read_to_string(self.path("err.txt")).unwrap_or_default();
        assert!(status.success(), "{told}");
        let summary = last_line(&fs::read_to_string(self.path("out.txt")).expect("a summary"));
        (killed > 0 && summary["generations"].as_u64() > Some(1)).then_some(summary)
    }

    /// Steps that the only run of a folder has logged.
    fn steps(&self, out: &str) -> usize {
        let runs = fs::read_dir(self.path(out)).into_iter().flatten().flatten();
        let logs = runs.filter_map(|run| fs::read_to_string(run.path().join("metrics.jsonl")).ok());
        logs.map(|log| log.matches("\"step\"").count()).sum()
    }

    fn check(&self) {
        let alone = self.alone();
        let fire = (0..TRIES).find_map(|at| self.under_fire(&format!("fire{at}")));
        let fire = fire.expect("in one of these runs somebody is missed");
        for field in ["weights_hash", "ledger", "steps"] {
            assert!(!alone[field].is_null(), "{field}: {alone}");
            assert_eq!(fire[field], alone[field], "{field}");
        }
    }
}

fn last_line(text: &str) -> Json {
    serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON")
}

/// The workers that a run has started, from the system's own list.
fn workers_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, ppid) = (fields.next()?, fields.next()?);
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let role = line.split(|byte| *byte == 0).nth(1)?;
        (ppid == parent.to_string() && state != "Z" && role == b"worker").then_some(pid)
    });
    let mut found: Vec<u32> = found.collect();
    found.sort_unstable();
    found
}

#[test]
fn bert_has_the_same_bits_under_kills() {
    let place = Workplace::new(
        "entrypoint: bert_pairs\ndata: {training: pairs.csv}\nmicro_batches: 3\n\
         hyperparameters: {bert_type: tiny, global_batch_size: 12, learning_rate: 0.001, new_head: true, \
         dropout: 0.1}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 200}}\n",
    );
    support::tiny_bert(&place.path("tiny"));
    let line = |at: usize| {
        let label = ["entailment", "neutral", "contradiction"][at % 3];
        format!("the film is warm {at},{} jokes,{label}\n", "old ".repeat(at % 5))
    };
    let lines: String = (0..96).map(line).collect();
    fs::write(place.path("pairs.csv"), format!("premise,hypothesis,label\n{lines}"))
        .expect("written");
    place.check();
}

#[test]
fn the_gpt_has_the_same_bits_under_kills() {
    let place = Workplace::new(
        "entrypoint: gpt_bytes\ndata: {training: passages.jsonl}\nmicro_batches: 3\n\
         hyperparameters: {global_batch_size: 12, learning_rate: 0.01, width: 32, heads: 2, layers: 2, dropout: 0.1}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 200}}\n",
    );
    let line = |at: usize| {
        format!("{{\"text\": \"{}\"}}\n", &"to be or not to be, ".repeat(5)[at % 20..30 + at % 50])
    };
    fs::write(place.path("passages.jsonl"), (0..96).map(line).collect::<String>())
        .expect("written");
    place.check();
}

#[test]
fn resnet18_has_the_same_bits_under_kills() {
    let place = Workplace::new(
        "entrypoint: imagenet\ndata: {training: photos}\nmicro_batches: 3\n\
         hyperparameters: {arch: resnet18, classes: 2, global_batch_size: 3, lr: 0.01}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 12}}\n",
    );
    let mut out = sink::create(&place.path("photos"), Format::ImageFolder).expect("a folder");
    for at in 0..12u8 {
        let pixels: Vec<u8> = (0..3 * 48 * 48).map(|pixel| (pixel % 251) as u8 ^ at).collect();
        let cells = vec![
            ("image".into(), Value::Bytes(&pixels)),
            ("height".into(), Value::Ints(vec![48].into())),
            ("width".into(), Value::Ints(vec![48].into())),
            ("class".into(), Value::Text(["left", "right"][usize::from(at % 2)])),
        ];
        out.write(&Row::new(cells)).expect("written");
    }
    out.finish().expect("finished");
    place.check();
}

#[test]
fn mobilenet_has_the_same_bits_under_kills() {
    let place = Workplace::new(
        "entrypoint: cifar_mobilenet_v2\ndata: {training: data_batch_1.bin}\nmicro_batches: 3\n\
         hyperparameters: {global_batch_size: 6, learning_rate: 0.01}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 20}}\n",
    );
    let path = place.path("data_batch_1.bin");
    let mut out = sink::create(&path, Format::Cifar).expect("a file");
    let world = Pictures::new(1);
    (0..24).for_each(|record| out.write(&world.draw(record).row()).expect("written"));
    out.finish().expect("finished");
    place.check();
}
