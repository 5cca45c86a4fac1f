//! The real TensorBoard's reader on our event files.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use salamander_core::layout::RunLayout;
use salamander_track::{Patience, Sinks, Tracker};
use serde_json::Value;

use crate::{folder, python};

/// Keeps a reader open, as a TensorBoard that somebody looks at does, and reads again for each line of input.
const LIVE: &str = r#"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
reader = EventAccumulator(sys.argv[1], size_guidance={k: 0 for k in
    ("scalars", "images", "tensors", "histograms", "compressedHistograms", "audio")})
for line in sys.stdin:
    error, out = None, {}
    try:
        reader.Reload()
        tags = reader.Tags()
        out = {tag: [[e.step, e.wall_time, e.value] for e in reader.Scalars(tag)] for tag in tags["scalars"]}
        out["images"] = {tag: [[e.step, e.width, e.height, e.encoded_image_string[:4].hex()]
                         for e in reader.Images(tag)] for tag in tags["images"]}
        out["histograms"] = {tag: [[e.step, e.histogram_value.num, sum(e.histogram_value.bucket)]
                             for e in reader.Histograms(tag)] for tag in tags["histograms"]}
        hparams = {}
        try:
            contents = reader.PluginTagToContent("hparams")
        except KeyError:
            contents = {}
        for tag, content in contents.items():
            if tag == metadata.SESSION_START_INFO_TAG:
                start = metadata.parse_session_start_info_plugin_data(content)
                hparams["start"] = {k: (v.number_value or v.string_value or v.bool_value)
                                    for k, v in start.hparams.items()}
                hparams["group"] = start.group_name
            if tag == metadata.SESSION_END_INFO_TAG:
                hparams["end"] = metadata.parse_session_end_info_plugin_data(content).status
        out["hparams"] = hparams
    except Exception as e:
        error = repr(e)
    out["error"] = error
    print(json.dumps(out).replace("NaN", "null"), flush=True)
"#;

/// Every number in the files, without any of TensorBoard's own logic.
const RAW: &str = r#"
import glob, json, os, sys
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2
files = [file for file in glob.glob(sys.argv[1] + "/*tfevents*") if os.path.getsize(file)]
steps = []
for file in files:
    for raw in RawEventFileLoader(file).Load():
        event = event_pb2.Event.FromString(raw)
        steps += [event.step for value in event.summary.value if value.tag == "loss"]
print(json.dumps({"files": len(files), "steps": steps}))
"#;

struct Live {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Live {
    fn start(run: &RunLayout) -> Option<Self> {
        let python = python::with("tensorboard")?;
        let mut command = Command::new(python);
        command.arg("-c").arg(LIVE).arg(run.folder());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Some(Self { child, input, output })
    }

    fn read(&mut self) -> Value {
        writeln!(self.input, "again").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Reads until the loss has these steps and no others.
    fn until(&mut self, what: &str, steps: impl Iterator<Item = u64>) -> Value {
        let expected: Vec<u64> = steps.collect();
        let mut last = Value::Null;
        // As long as it takes, but not for ever: the runner of tests has its own limit.
        for _ in 0..1000 {
            last = self.read();
            if steps_of(&last) == expected {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let error = &last["error"];
        panic!("{what}: {} of {} steps, {error}", steps_of(&last).len(), expected.len());
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn steps_of(read: &Value) -> Vec<u64> {
    let points = read["loss"].as_array().into_iter().flatten();
    points.filter_map(|point| point[0].as_u64()).collect()
}

fn sinks() -> Sinks {
    Sinks { tensorboard: true, ..Sinks::default() }
}

#[test]
fn tensorboard_reads_what_was_written_while_it_is_written_and_after_a_resume() {
    let (_parent, run) = folder::run();
    let Some(mut live) = Live::start(&run) else { return };
    let tracker = Tracker::start(&run, &sinks());
    folder::append(&run, 1..=100, 0);
    folder::histograms(&run, [40, 80], 3);
    let read = live.until("the first life", 1..=100);
    assert_eq!(read["loss"][9][1], 1_700_000_010.0, "the time of the line");
    assert_eq!(read["hparams"]["start"]["optimizer.name"], "sgd");
    assert_eq!(read["hparams"]["start"]["learning_rate"], 0.5);
    assert_eq!(read["hparams"]["group"], "digits-1");
    // Goes back to step 50 in the same process, as an elastic run does.
    folder::cut(&run, 50);
    folder::histograms(&run, [80], 5);
    folder::append(&run, 51..=80, 1);
    let read = live.until("after a checkpoint was gone back to", 1..=80);
    assert_eq!(read["loss"][60][2].as_f64().map(|v| v as f32), Some(folder::loss(61, 1) as f32));
    // Killed, and gone on with by another process.
    drop(tracker);
    folder::cut(&run, 60);
    let tracker = Tracker::start(&run, &sinks());
    folder::histograms(&run, [80, 120], 7);
    folder::append(&run, 61..=120, 2);
    folder::append_text(&run, &folder::epoch(120));
    folder::end(&run);
    assert_eq!(tracker.finish(Patience::default()), Vec::<String>::new());
    let read = live.until("a resumed run", 1..=120);
    check_end(&read);
    // And for somebody who comes later, TensorBoard or not.
    let read = Live::start(&run).expect("as before").until("later", 1..=120);
    check_end(&read);
    let python = python::with("tensorboard").expect("as before");
    let raw = python::json(&python, RAW, &[&run.folder().to_string_lossy()]);
    assert_eq!(raw["files"], 1);
    assert_eq!(raw["steps"], serde_json::json!((1..=120).collect::<Vec<u64>>()));
}

fn check_end(read: &Value) {
    assert_eq!(read["validation/accuracy"][0], serde_json::json!([120, 1_700_000_120.0, 0.75]));
    assert_eq!(read["validation/loss"][0][2], Value::Null, "not a number");
    assert_eq!(read["images"]["validation/confusion"][0][0], 120);
    assert_eq!(read["images"]["validation/confusion"][0][3], "89504e47");
    assert_eq!(read["hparams"]["end"], 1);
    let steps = serde_json::json!([[40, 3.0, 3.0], [80, 7.0, 7.0], [120, 7.0, 7.0]]);
    assert_eq!(read["histograms"], serde_json::json!({"weights/layer.weight": steps}));
    assert_eq!(read["loss"][55][2].as_f64().map(|v| v as f32), Some(folder::loss(56, 1) as f32));
    assert_eq!(read["loss"][65][2].as_f64().map(|v| v as f32), Some(folder::loss(66, 2) as f32));
}

#[test]
fn files_of_others_stay_and_a_folder_that_cannot_be_written_is_told() {
    let (_parent, run) = folder::run();
    let other = run.file("events.out.tfevents.1.host.other");
    fs::write(&other, "somebody's").expect("written");
    folder::append(&run, 1..=3, 0);
    let notes = Tracker::start(&run, &sinks()).finish(Patience::default());
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(fs::read_to_string(&other).expect("there"), "somebody's");
    // The name of what is written beside is taken by a folder.
    fs::create_dir(run.file(".tensorboard-beside")).expect("made");
    let notes = Tracker::start(&run, &sinks()).finish(Patience::default());
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("not complete") && notes[0].contains("beside"), "{notes:?}");
}
