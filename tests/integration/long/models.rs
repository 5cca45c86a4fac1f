//! Models that people have, on three workers of which some are killed: the weights have the bits of a run alone.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use salamander_data::generate::Pictures;
use salamander_data::{Format, Row, Value, sink};
use serde_json::Value as Json;
use tests::chaos::processes_of;

use crate::hugging_face::tiny_bert;
use crate::support::Workplace;

/// Nothing here takes a tenth of it.
const LONGEST: Duration = Duration::from_secs(600);

/// On a busy machine a run may be over before a kill arrives; then there is another one.
const TRIES: usize = 5;

/// The experiment `x.yaml` of a folder has the same weights alone and under fire.
fn check(place: &Workplace) {
    let alone = place.train(&["x.yaml", "--out", "alone"]);
    let fire = (0..TRIES).find_map(|at| under_fire(place, &format!("fire{at}")));
    let fire = fire.expect("in one of these runs somebody is missed");
    for field in ["weights_hash", "ledger", "steps"] {
        assert!(!alone[field].is_null(), "{field}: {alone}");
        assert_eq!(fire[field], alone[field], "{field}");
    }
}

/// On three workers, one of which is killed after the first step and another one later; nothing where nobody was
/// missed, because the kills came too late.
fn under_fire(place: &Workplace, out: &str) -> Option<Json> {
    let file = |name: &str| File::create(place.path().join(name)).expect("a file");
    let mut command: Command =
        place.command(&["train", "x.yaml", "--json", "--out", out, "--workers", "3"]);
    command.stdout(file("out.txt")).stderr(file("err.txt"));
    let mut parent = command.spawn().expect("the program starts");
    let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap_or_default();
    let (begun, mut killed, mut due) = (Instant::now(), 0, 1);
    let status = loop {
        if let Some(status) = parent.try_wait().expect("known") {
            break status;
        }
        if begun.elapsed() > LONGEST {
            let _ = parent.kill();
            let _ = parent.wait();
            panic!("the run hangs\n{}", read("err.txt"));
        }
        let done = steps(place, out);
        let victim = processes_of(parent.id(), "worker").get(killed).copied();
        if killed < 2
            && done >= due
            && let Some(victim) = victim.and_then(|pid| Pid::from_raw(pid as i32))
        {
            killed += usize::from(kill_process(victim, Signal::KILL).is_ok());
            due = done + 2;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{}", read("err.txt"));
    let told = read("out.txt");
    let summary: Json =
        serde_json::from_str(told.lines().last().expect("a summary")).expect("JSON");
    (killed > 0 && summary["generations"].as_u64() > Some(1)).then_some(summary)
}

/// Steps that the only run of a folder has logged.
fn steps(place: &Workplace, out: &str) -> usize {
    let runs = fs::read_dir(place.path().join(out)).into_iter().flatten().flatten();
    let logs = runs.filter_map(|run| fs::read_to_string(run.path().join("metrics.jsonl")).ok());
    logs.map(|log| log.matches("\"step\"").count()).sum()
}

#[test]
fn bert_has_the_same_bits_under_kills() {
    let place = Workplace::new();
    place.write(
        "x.yaml",
        "entrypoint: bert_pairs\ndata: {training: pairs.csv}\nmicro_batches: 3\n\
         hyperparameters: {bert_type: tiny, global_batch_size: 12, learning_rate: 0.001, new_head: true, \
         dropout: 0.1}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 200}}\n",
    );
    tiny_bert(&place.path().join("tiny"));
    let line = |at: usize| {
        let label = ["entailment", "neutral", "contradiction"][at % 3];
        format!("the film is warm {at},{} jokes,{label}\n", "old ".repeat(at % 5))
    };
    let lines: String = (0..96).map(line).collect();
    place.write("pairs.csv", &format!("premise,hypothesis,label\n{lines}"));
    check(&place);
}

#[test]
fn the_gpt_has_the_same_bits_under_kills() {
    let place = Workplace::new();
    place.write(
        "x.yaml",
        "entrypoint: gpt_bytes\ndata: {training: passages.jsonl}\nmicro_batches: 3\n\
         hyperparameters: {global_batch_size: 12, learning_rate: 0.01, width: 32, heads: 2, layers: 2, dropout: 0.1}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 200}}\n",
    );
    let line = |at: usize| {
        format!("{{\"text\": \"{}\"}}\n", &"to be or not to be, ".repeat(5)[at % 20..30 + at % 50])
    };
    place.write("passages.jsonl", &(0..96).map(line).collect::<String>());
    check(&place);
}

#[test]
fn resnet18_has_the_same_bits_under_kills() {
    let place = Workplace::new();
    place.write(
        "x.yaml",
        "entrypoint: imagenet\ndata: {training: photos}\nmicro_batches: 3\n\
         hyperparameters: {arch: resnet18, classes: 2, global_batch_size: 3, lr: 0.01}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 12}}\n",
    );
    let mut out =
        sink::create(&place.path().join("photos"), Format::ImageFolder).expect("a folder");
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
    check(&place);
}

#[test]
fn mobilenet_has_the_same_bits_under_kills() {
    let place = Workplace::new();
    place.write(
        "x.yaml",
        "entrypoint: cifar_mobilenet_v2\ndata: {training: data_batch_1.bin}\nmicro_batches: 3\n\
         hyperparameters: {global_batch_size: 6, learning_rate: 0.01}\n\
         reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 20}}\n",
    );
    let path = place.path().join("data_batch_1.bin");
    let mut out = sink::create(&path, Format::Cifar).expect("a file");
    let world = Pictures::new(1);
    (0..24).for_each(|record| out.write(&world.draw(record).row()).expect("written"));
    out.finish().expect("finished");
    check(&place);
}

#[test]
fn small_pictures_are_learned_by_a_plain_network_and_by_mobilenet() {
    let place = Workplace::new();
    for (skip, records, out) in
        [("0", "1500", "data_batch_1.bin"), ("1500", "200", "test_batch.bin")]
    {
        let args = ["data", "generate", "cifar", "--seed", "1", "--skip", skip];
        place.ok(&[&args[..], &["--records", records, "--out", out]].concat());
    }
    let check = |experiment: &str, sets: &[&str], least: f64| {
        let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo");
        let file = zoo.join(experiment).display().to_string();
        let data = ["training=data_batch_1.bin", "validation=test_batch.bin"].map(|set| {
            let (field, name) = set.split_once('=').expect("a field");
            format!("data.{field}={}", place.path().join(name).display())
        });
        let sets = data.iter().map(String::as_str).chain(sets.iter().copied());
        let args: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
        let summary = place.train(&[&[file.as_str()], &args[..]].concat());
        let found = summary["metrics"]["validation"]["accuracy"].as_f64().expect("measured");
        assert!(found >= least, "{experiment}: {found}, and one in ten is right by chance");
    };
    let sets = [
        "hyperparameters.global_batch_size=50",
        "hyperparameters.width=8",
        "searcher.max_length={epochs: 4}",
    ];
    check("cifar/cnn.yaml", &sets, 0.5);
    let sets = ["hyperparameters.global_batch_size=25", "searcher.max_length={batches: 120}"];
    check("cifar/mobilenet.yaml", &sets, 0.17);
}
