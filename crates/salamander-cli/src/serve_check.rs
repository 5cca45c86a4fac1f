//! `salamander serve-check`: whether a model that is served says what it predicts.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use salamander_core::experiment::Experiment;
use salamander_core::words::count;
use salamander_run::Program;
use salamander_run::infer::{ClientOptions, DataToAsk, Inference};
use salamander_run::serving::{
    Batching, ModelToServe, MoreAddresses, ServedFrom, ServerOptions, Service, ServiceEvent,
};
use serde_json::{Value, json};

use crate::args::TrainedArgs;

/// What the model is called while it is tried.
const NAME: &str = "checked";
const ANSWERS: &str = "answers.jsonl";
const PREDICTIONS: &str = "predictions.jsonl";
/// Records of a request, and requests at a time.
const BATCH: usize = 16;
const CONNECTIONS: usize = 2;
/// How long a request may be tried again: the server is there by then.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// Files or folders of records to ask about; labels may be absent
    #[arg(long, required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The folder to write: answers.jsonl, and predictions.jsonl as `predict` writes them
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How far a score may be from the one that is predicted, as a share of it, or of one where it is smaller
    #[arg(long, value_name = "SHARE", default_value_t = 1e-4)]
    tolerance: f64,
    /// Print one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let (answers, predictions) = (args.out.join(ANSWERS), args.out.join(PREDICTIONS));
    let model = args.trained.load(program)?;
    let predicted = model.predict_to(&args.data, &predictions, None)?;
    if predicted.skipped > 0 {
        let skipped = count(predicted.skipped, "record");
        bail!("{skipped} could not be decoded: a server refuses these");
    }
    // Its weights are read once more by the server, as they are wherever it is served.
    let experiment = model.experiment().clone();
    drop(model);
    // What an earlier model has answered is nothing to go on with.
    for old in [answers.clone(), args.out.join(format!("{ANSWERS}.partial"))] {
        match fs::remove_file(&old) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| old.display().to_string());
            }
            _ => {}
        }
    }
    serve(args, program, &experiment, &answers)?;
    let found = compare(&answers, &predictions, args.tolerance)?;
    if args.json {
        let object = json!({"records": found.records, "largest_difference": found.largest});
        outln!("{object}")?;
    } else {
        let records = count(found.records, "answer");
        outln!("{records}, none further than {:e} from what is predicted", found.largest)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves the model on a free port until it was asked about every record.
fn serve(args: &Args, program: &Program, experiment: &Experiment, answers: &Path) -> Result<()> {
    let (folder, checkpoint) = args.trained.place()?;
    let from = ServedFrom::Folder { folder, checkpoint };
    let service = Service {
        models: vec![ModelToServe { name: Some(NAME.to_string()), version: None, from }],
        find: None,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        more_addresses: MoreAddresses::default(),
        device: args.trained.device().to_string(),
        threads: None,
        int8: false,
        table_memory: None,
        batching: Batching::default(),
        options: ServerOptions::default(),
        watch: None,
    };
    let over = AtomicBool::new(false);
    let (send, listening) = channel();
    std::thread::scope(|scope| {
        let over = &over;
        let asking = scope.spawn(move || {
            let _over = SetAtTheEnd(over);
            match listening.recv() {
                Ok(address) => ask(args, experiment, address, answers),
                // It does not listen; why not is the server's to say.
                Err(_) => Ok(()),
            }
        });
        let served = service.run(program, over, &mut |event| {
            if let ServiceEvent::Listening(address) = event {
                // Who asks waits for it.
                let _ = send.send(address);
            }
        });
        drop(send);
        let asked = asking.join().map_err(|_| anyhow!("the thread that asks has ended badly"));
        served?;
        asked?
    })
}

fn ask(args: &Args, experiment: &Experiment, address: SocketAddr, answers: &Path) -> Result<()> {
    let inference = Inference {
        url: format!("http://{address}"),
        model: NAME.to_string(),
        options: ClientOptions { token: None, authorities: None, server_name: None },
        batch: BATCH,
        connections: CONNECTIONS,
        patience: PATIENCE,
    };
    let asked = DataToAsk::like(&args.data, experiment)?;
    inference.files(&asked, answers, &mut |_, _| {})?;
    Ok(())
}

/// However it ends.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, PartialEq)]
struct ServedScores {
    records: u64,
    largest: f64,
}

/// Compares the scores of every record.
fn compare(answers: &Path, predictions: &Path, tolerance: f64) -> Result<ServedScores> {
    let (mut answers, mut predictions) = (lines(answers)?, lines(predictions)?);
    let mut compared = ServedScores { records: 0, largest: 0.0 };
    loop {
        let record = compared.records;
        let (answer, prediction) = match (answers.next(), predictions.next()) {
            (None, None) => return Ok(compared),
            (Some(answer), Some(prediction)) => (answer?, prediction?),
            (None, Some(_)) => bail!("record {record} was not answered"),
            (Some(_), None) => bail!("record {record} was not predicted"),
        };
        let (found, expected) = (&answer["scores"], &prediction["scores"]);
        let distance = distance(found, expected).filter(|distance| *distance <= tolerance);
        let Some(distance) = distance else {
            bail!("record {record}: the server answers {found}, and {expected} is predicted");
        };
        compared.largest = compared.largest.max(distance);
        compared.records += 1;
    }
}

fn lines(path: &Path) -> Result<impl Iterator<Item = Result<Value>>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    Ok(BufReader::new(file).lines().map(move |line| {
        let line = line.with_context(|| name.clone())?;
        serde_json::from_str(&line).with_context(|| name.clone())
    }))
}

/// How far numbers are from those expected, at most, as a share of them; nothing where they are not of one shape.
fn distance(found: &Value, expected: &Value) -> Option<f64> {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let mut each = found.iter().zip(expected).map(|(one, other)| distance(one, other));
            each.try_fold(0.0, |most: f64, distance| Some(most.max(distance?)))
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64()?, expected.as_f64()?);
            Some((found - expected).abs() / expected.abs().max(1.0))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_record_by_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let check = |answers: &str, predictions: &str, expected: &str| {
            fs::write(at("a"), answers).expect("written");
            fs::write(at("p"), predictions).expect("written");
            let found = match compare(&at("a"), &at("p"), 0.01) {
                Ok(compared) => format!("{} {}", compared.records, compared.largest),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected);
        };
        let one = "{\"scores\": [0.5, 2.0]}\n";
        check(one, one, "1 0");
        check("{\"scores\": [0.5, 1.0]}\n", one, {
            "record 0: the server answers [0.5,1.0], and [0.5,2.0] is predicted"
        });
        check("{\"scores\": [0.5]}\n", one, {
            "record 0: the server answers [0.5], and [0.5,2.0] is predicted"
        });
        check("{\"y\": 1}\n", one, {
            "record 0: the server answers null, and [0.5,2.0] is predicted"
        });
        check("", one, "record 0 was not answered");
        check(&one.repeat(2), one, "record 1 was not predicted");
    }
}
