//! Runs in an object store: killed at any moment, also in the middle of an upload, they go on on a machine that has
//! nothing of them, and end as if nothing had happened.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::chaos::{self, Fire};

use crate::elastic::{end_of, fire};
use crate::interrupted::signal;
use crate::places::{Server, moto, s3_settings, script};
#[cfg(feature = "long")]
use crate::places::{azure_settings, azurite};
use crate::support::{Ended, PROGRAM, Workplace, points_csv, weights_of};

const CREATE_BUCKET: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id="id",
                  aws_secret_access_key="secret", region_name="us-east-1")
s3.create_bucket(Bucket="runs")
"#;

const NO_TOKEN: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id="id",
                  aws_secret_access_key="secret", region_name="us-east-1")
keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket="runs")["Contents"]]
assert any(key.endswith("/journal") for key in keys), keys
assert not any("token" in key for key in keys), keys
"#;

pub(crate) const STORE: &str = "s3://runs/tests";

/// A server with an empty bucket, reached through a gate.
pub(crate) struct Bucket {
    server: Server,
    gate: Arc<Gate>,
    port: u16,
    protocol: Protocol,
    /// Lists what is in it, where it speaks S3.
    python: Option<PathBuf>,
}

/// What a bucket's server speaks.
struct Protocol {
    /// The place of runs.
    store: &'static str,
    /// How the program finds it.
    settings: fn(&str) -> Vec<(&str, &str)>,
}

const S3: Protocol = Protocol { store: STORE, settings: |url| s3_settings(url).to_vec() };
#[cfg(feature = "long")]
const AZURE: Protocol =
    Protocol { store: "az://runs/tests", settings: |url| azure_settings(url).to_vec() };

/// What may pass.
#[derive(Default)]
struct Gate {
    /// Nothing is answered any more.
    shut: AtomicBool,
    /// Uploads that still pass; the next one stays under way for ever.
    uploads: AtomicUsize,
    /// Whether one does.
    stuck: AtomicBool,
    /// Uploads of the list of checkpoints that count.
    counted: AtomicUsize,
    /// Uploads of the journal, and those without a condition.
    journals: AtomicUsize,
    unconditional: AtomicUsize,
}

impl Bucket {
    pub(crate) fn start(test: &str) -> Option<Self> {
        let (python, server) = moto(test)?;
        script(&python, CREATE_BUCKET, &[&server.url()]);
        Some(Self { python: Some(python), ..Self::behind_a_gate(server, S3) })
    }

    /// The same in Azure's words; the server's files are in a workplace.
    #[cfg(feature = "long")]
    pub(crate) fn start_azure(test: &str, place: &Workplace) -> Option<Self> {
        let server = azurite(test, place, "runs", &[])?;
        Some(Self::behind_a_gate(server, AZURE))
    }

    fn behind_a_gate(server: Server, protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let gate = Arc::new(Gate { uploads: usize::MAX.into(), ..Gate::default() });
        let (own, to) = (Arc::clone(&gate), server.port);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if !own.shut.load(Ordering::SeqCst) {
                    own.connect(client, to);
                }
            }
        });
        Self { server, gate, port, protocol, python: None }
    }

    /// Where the program finds it.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A command with a way to it.
    pub(crate) fn run(&self, place: &Workplace, args: &[&str]) -> Ended {
        Ended(self.command(place, args).output().expect("the program starts"))
    }

    fn command(&self, place: &Workplace, args: &[&str]) -> std::process::Command {
        let mut command = place.command(args);
        command.envs((self.protocol.settings)(&self.url()));
        command
    }

    fn start_run(&self, place: &Workplace, args: &[&str]) -> Child {
        let mut command = self.command(place, args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    }

    /// How often masters have put the list of checkpoints that count.
    #[cfg(feature = "long")]
    pub(crate) fn counted(&self) -> usize {
        self.gate.counted.load(Ordering::SeqCst)
    }

    /// Masters have put their journal, and only in the place of what they went on from.
    fn puts_under_conditions(&self) {
        assert!(self.gate.journals.load(Ordering::SeqCst) > 1, "masters put their journal");
        assert_eq!(
            self.gate.unconditional.load(Ordering::SeqCst),
            0,
            "only what they went on from"
        );
    }

    /// Goes on with the only run in the store, on a machine that has nothing of it.
    pub(crate) fn resume_elsewhere(&self, run: &str) -> (Workplace, Value) {
        let place = Workplace::new();
        let ended = self.run(&place, &["train", "--json", "--resume", &format!("{STORE}/{run}")]);
        assert!(ended.code() == Some(0), "{}{}", ended.out(), ended.err());
        let summary = ended.json();
        (place, summary)
    }
}

impl Gate {
    /// Passes what one client and the server say to each other.
    fn connect(self: &Arc<Self>, mut client: TcpStream, to: u16) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)) else { return };
        let (mut answers, mut back) =
            (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
        std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let gate = Arc::clone(self);
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(read @ 1..) = client.read(&mut bytes) {
                if gate.shut.load(Ordering::SeqCst) {
                    let _ = client.shutdown(std::net::Shutdown::Both);
                    return;
                }
                let line = bytes[..read].split(|byte| *byte == b'\r').next().unwrap_or_default();
                if line.starts_with(b"PUT ") && line.windows(9).any(|part| part == b"/counted ") {
                    gate.counted.fetch_add(1, Ordering::SeqCst);
                }
                if line.starts_with(b"PUT ") && line.windows(9).any(|part| part == b"/journal ") {
                    gate.journals.fetch_add(1, Ordering::SeqCst);
                    let head = String::from_utf8_lossy(&bytes[..read]).to_ascii_lowercase();
                    if !head.contains("\r\nif-match: ") && !head.contains("\r\nif-none-match: *") {
                        gate.unconditional.fetch_add(1, Ordering::SeqCst);
                    }
                }
                if line.starts_with(b"PUT ") && !gate.lets_upload() {
                    gate.stuck.store(true, Ordering::SeqCst);
                    // Half of the request has arrived, and nothing more does.
                    let _ = server.write_all(&bytes[..read / 2]);
                    while client.read(&mut bytes).is_ok_and(|read| read > 0) {}
                    return;
                }
                if server.write_all(&bytes[..read]).is_err() {
                    return;
                }
            }
        });
    }

    fn lets_upload(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(usize::from(left != usize::MAX));
        self.uploads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

fn wait_until(what: &str, child: &mut Child, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(child.try_wait().expect("a child").is_none(), "the run ended before {what}");
        assert!(start.elapsed() < Duration::from_secs(120), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The name of the only run in a workplace.
fn the_run(place: &Workplace) -> String {
    run_of(place).expect("a run")
}

fn run_of(place: &Workplace) -> Option<String> {
    let runs = std::fs::read_dir(place.path().join("runs")).into_iter().flatten().flatten();
    let mut names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| !name.starts_with('.'))
}

fn points(place: &Workplace) {
    place.write("points.csv", &points_csv(803));
    let data = place.path().join("points.csv").display().to_string();
    place.write(
        "points.yaml",
        &format!(
            "entrypoint: points\n\
             data: {{training: \"{data}\", shuffle: full}}\n\
             min_checkpoint_period: {{batches: 5}}\n\
             hyperparameters: {{global_batch_size: 37, learning_rate: 0.01}}\n\
             searcher: {{metric: loss, max_length: {{batches: 120}}}}\n\
             reproducibility: {{experiment_seed: 5}}\n"
        ),
    );
}

#[test]
fn a_run_killed_in_the_middle_of_an_upload_goes_on_elsewhere() {
    let test = "a_run_killed_in_the_middle_of_an_upload_goes_on_elsewhere";
    let Some(bucket) = Bucket::start(test) else { return };
    let place = Workplace::new();
    points(&place);
    let uncut = weights_of(&place.train(&["points.yaml", "--out", "uncut"]));
    // The experiment goes first; then each checkpoint is five uploads, and the metrics follow it. Two are sure to be
    // put, the first and the last: a slow store leaves out what is between.
    for uploads in [0, 3, 6, 1 + 6 + 3] {
        let place = Workplace::new();
        points(&place);
        bucket.gate.uploads.store(uploads, Ordering::SeqCst);
        bucket.gate.stuck.store(false, Ordering::SeqCst);
        // Runs of one second have one name, and there is one store.
        let name = format!("name=points-{uploads}");
        let args = ["train", "points.yaml", "--store", STORE, "--set", &name];
        let mut child = bucket.start_run(&place, &args);
        wait_until("an upload is stuck", &mut child, || bucket.gate.stuck.load(Ordering::SeqCst));
        signal(&child, Signal::KILL);
        child.wait().expect("ended");
        bucket.gate.uploads.store(usize::MAX, Ordering::SeqCst);
        let run = the_run(&place);
        if uploads == 0 {
            let args = ["train", "--resume", &format!("{STORE}/{run}")];
            let err = bucket.run(&Workplace::new(), &args).err();
            assert!(err.contains(&format!("there is no run at {STORE}/{run}")), "{err}");
            continue;
        }
        let (_elsewhere, summary) = bucket.resume_elsewhere(&run);
        assert!(weights_of(&summary) == uncut, "the weights are those of a run left alone");
        assert_eq!(summary["ledger"][0]["duplicated"], 0, "{summary}");
        // On its own machine it goes on as well, from what is newer there.
        let again = bucket.run(&place, &["train", "--json", "--resume", &run]);
        assert_eq!(again.code(), Some(0), "{}", again.err());
        assert!(weights_of(&again.json()) == uncut);
    }
}

#[test]
fn a_store_that_is_gone_is_told_and_loses_nothing() {
    let Some(bucket) = Bucket::start("a_store_that_is_gone_is_told_and_loses_nothing") else {
        return;
    };
    let place = Workplace::new();
    points(&place);
    let patience = "checkpoint_storage.store_patience=1";
    let train = ["train", "points.yaml", "--json", "--store", STORE, "--set", patience];
    bucket.gate.shut.store(true, Ordering::SeqCst);
    let err = bucket.run(&place, &train).err();
    assert!(err.contains("the store cannot be used") && err.contains(STORE), "{err}");
    assert!(!err.contains("secret"), "{err}");
    assert!(!place.path().join("runs").exists(), "nothing was begun");

    bucket.gate.shut.store(false, Ordering::SeqCst);
    // The first checkpoint arrives, and then nothing any more.
    bucket.gate.uploads.store(7, Ordering::SeqCst);
    bucket.gate.stuck.store(false, Ordering::SeqCst);
    let mut child = bucket.start_run(&place, &train);
    wait_until("an upload is stuck", &mut child, || bucket.gate.stuck.load(Ordering::SeqCst));
    bucket.gate.shut.store(true, Ordering::SeqCst);
    signal(&child, Signal::KILL);
    child.wait().expect("ended");
    bucket.gate.uploads.store(usize::MAX, Ordering::SeqCst);
    bucket.gate.shut.store(false, Ordering::SeqCst);
    let run = the_run(&place);
    let whole = bucket.run(&place, &["train", "--json", "--resume", &run]);
    assert_eq!(whole.code(), Some(0), "{}", whole.err());
    let (_elsewhere, summary) = bucket.resume_elsewhere(&run);
    assert!(weights_of(&summary) == weights_of(&whole.json()), "the last one is in the store");
}

/// Kills a distributed run, and goes on with it elsewhere.
pub(crate) fn goes_on_elsewhere(test: &str, fire: &Fire) {
    let Some(bucket) = Bucket::start(test) else { return };
    let place = Workplace::new();
    chaos::prepare(place.path(), fire);
    let file = |name: &str| place.path().join(name).display().to_string();
    let mut sets = vec![format!("data.training={}", file("ids.csv"))];
    if fire.asynchronous {
        sets.push(format!("data.validation={}", file("ids.csv")));
    }
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let args = ["train", "tally.yaml", "--json", "--store", STORE];
    let mut child = bucket.start_run(&place, &[&args, sets.as_slice()].concat());
    let counted = || {
        let runs = std::fs::read_dir(place.path().join("runs")).into_iter().flatten().flatten();
        let lists = runs.map(|run| run.path().join("checkpoints/counted"));
        let lines = lists.filter_map(|list| std::fs::read_to_string(list).ok());
        let names = |list: String| list.lines().filter(|line| line.starts_with("step-")).count();
        lines.map(names).max().unwrap_or(0)
    };
    wait_until("two checkpoints count", &mut child, || counted() >= 2);
    signal(&child, Signal::KILL);
    child.wait().expect("ended");
    let run = the_run(&place);
    let (elsewhere, summary) = bucket.resume_elsewhere(&run);
    assert_eq!(summary["state"], "completed", "{summary}");
    let proven = chaos::prove(Path::new(PROGRAM), place.path(), fire, &summary);
    proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
    let checkpoint = PathBuf::from(summary["checkpoint"].as_str().expect("a checkpoint"));
    assert!(checkpoint.starts_with(elsewhere.path().canonicalize().expect("a folder")));
    bucket.puts_under_conditions();
    // The secret stays on its machine.
    let python = bucket.python.as_ref().expect("it speaks S3");
    script(python, NO_TOKEN, &[&bucket.server.url()]);
}

#[test]
fn a_ring_goes_on_elsewhere() {
    goes_on_elsewhere("a_ring_goes_on_elsewhere", &Fire { epochs: 4, ..fire(1, 2, 2) });
}

#[test]
fn a_master_whose_run_goes_on_elsewhere_stops_leading() {
    let test = "a_master_whose_run_goes_on_elsewhere_stops_leading";
    let Some(bucket) = Bucket::start(test) else { return };
    goes_on_while_its_master_lives(&bucket);
}

/// A distributed run of which a checkpoint counts, and the file that makes it slow while it is there: two minutes at
/// least.
fn begin_slowly(
    bucket: &Bucket,
    place: &Workplace,
    fire: &Fire,
    more: &[&str],
) -> (Child, PathBuf) {
    chaos::prepare(place.path(), fire);
    let slow = place.write("slow", "");
    let sets = [
        format!("data.training={}", place.path().join("ids.csv").display()),
        format!("hyperparameters.slow_file={}", slow.display()),
        "min_checkpoint_period={batches: 4}".to_string(),
    ];
    let sets = sets.iter().map(String::as_str).chain(more.iter().copied());
    let args = ["train", "tally.yaml", "--json", "--store", bucket.protocol.store];
    let args: Vec<&str> = args.into_iter().chain(sets.flat_map(|set| ["--set", set])).collect();
    let mut command = bucket.command(place, &args);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut first = command.spawn().expect("the program starts");
    let list = |run| place.path().join("runs").join(run).join("checkpoints/counted");
    let begun = || run_of(place).is_some_and(|run| list(run).exists());
    wait_until("a checkpoint counts", &mut first, begun);
    (first, slow)
}

/// Mostly waiting: a claim has to run out.
#[cfg(feature = "long")]
mod long {
    use super::*;

    /// Somebody may go on with it elsewhere, which it cannot see.
    #[test]
    fn a_master_that_cannot_reach_its_store_stops_leading() {
        let test = "a_master_that_cannot_reach_its_store_stops_leading";
        let Some(bucket) = Bucket::start(test) else { return };
        let place = Workplace::new();
        let fire = Fire { epochs: 12, delay_ms: 100, ..fire(1, 2, 2) };
        let patience = "checkpoint_storage.store_patience=1";
        let (first, slow) = begin_slowly(&bucket, &place, &fire, &[patience]);
        bucket.gate.shut.store(true, Ordering::SeqCst);
        let ended = first.wait_with_output().expect("ended");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains("the master crashed"), "{told}");
        let run = the_run(&place);
        let folder = place.path().join("runs").join(&run);
        let log = std::fs::read_to_string(folder.join("logs/master.log")).expect("its log");
        assert!(log.contains("this master stops leading: its store does not answer"), "{log}");

        bucket.gate.shut.store(false, Ordering::SeqCst);
        std::fs::remove_file(slow).expect("it was slow");
        let whole = bucket.run(&place, &["train", "--json", "--resume", &run]);
        assert_eq!(whole.code(), Some(0), "{}", whole.err());
        let proven = chaos::prove(Path::new(PROGRAM), place.path(), &fire, &whole.json());
        proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
    }
}

/// Nobody has killed the master of a run that somebody goes on with elsewhere, with nothing but its store.
pub(crate) fn goes_on_while_its_master_lives(bucket: &Bucket) {
    let place = Workplace::new();
    let fire = Fire { epochs: 12, delay_ms: 100, ..fire(1, 2, 2) };
    let (first, slow) = begin_slowly(bucket, &place, &fire, &[]);
    let (elsewhere, run) = (Workplace::new(), the_run(&place));
    let resume = ["train", "--json", "--resume", &format!("{}/{run}", bucket.protocol.store)];
    let mut second = bucket.start_run(&elsewhere, &resume);
    let ended = first.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("another master leads this run"), "{told}");
    assert!(second.try_wait().expect("a child").is_none(), "the second one goes on");
    std::fs::remove_file(slow).expect("it was slow");
    let summary = end_of(&mut second, &elsewhere.path().join("runs").join(run));
    assert_eq!(summary["state"], "completed", "{summary}");
    let proven = chaos::prove(Path::new(PROGRAM), place.path(), &fire, &summary);
    proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
    bucket.puts_under_conditions();
}
