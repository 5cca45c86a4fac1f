//! The planner by itself: a world of maps instead of a disk.

use std::cell::RefCell;

use serde_json::json;

use super::super::read::PipelineText;
use super::super::store::StepOutput;
use super::*;

#[derive(Default)]
struct Fake {
    /// Contents by place; all others are `?`.
    contents: BTreeMap<String, String>,
    program: String,
    artifacts: BTreeMap<Key, Artifact>,
    records: BTreeMap<String, Components>,
    asked: RefCell<Vec<String>>,
}

impl World for Fake {
    fn digest(&self, place: &str) -> Result<String, String> {
        self.asked.borrow_mut().push(place.to_string());
        match self.contents.get(place).map(String::as_str) {
            Some("") => Err(format!("{place}: not there")),
            Some(content) => Ok(content.to_string()),
            None => Ok("?".to_string()),
        }
    }

    fn experiment(&self, _: &Path, sets: &[String]) -> Result<Vec<(String, String)>, String> {
        let data = sets.iter().filter_map(|set| set.strip_prefix("data.training="));
        Ok(data
            .map(|place| ("data.training".to_string(), place.trim_matches('"').into()))
            .collect())
    }

    fn program(&self) -> Result<(PathBuf, String), String> {
        Ok(("/bin/program".into(), format!("{}{}", "0".repeat(63), self.program.len())))
    }

    fn artifact(&self, key: &Key) -> Artifact {
        self.artifacts.get(key).cloned().unwrap_or(Artifact::Absent)
    }

    fn record(&self, instance: &str) -> Option<Components> {
        self.records.get(instance).cloned()
    }

    fn folder(&self, key: &Key) -> PathBuf {
        Path::new("/unfinished").join(&key.0)
    }
}

impl Fake {
    /// Does what is due until nothing is, as a run would; what a step leaves has the hash of its key.
    fn run(&mut self, pipeline: &Pipeline, values: Json) -> Vec<String> {
        let mut ran = Vec::new();
        loop {
            let statuses = look(pipeline, self, &PipelineProgress::default());
            let due: Vec<Due> = statuses
                .into_iter()
                .filter_map(|status| match status.decision {
                    Decision::Run(due) => Some(*due),
                    _ => None,
                })
                .collect();
            if due.is_empty() {
                return ran;
            }
            for due in due {
                self.done(pipeline, &due, &values);
                ran.push(due.instance);
            }
        }
    }

    fn done(&mut self, pipeline: &Pipeline, due: &Due, values: &Json) {
        let step = pipeline.step(&due.step).expect("a step");
        let digest = blake3::hash(due.key.0.as_bytes()).to_hex().to_string();
        let output = |name: &str| {
            (name.to_string(), StepOutput { path: name.into(), digest: digest.clone() })
        };
        let outputs = step.main_output().map(output).into_iter();
        let values = values.as_object().cloned().unwrap_or_default();
        let manifest = ArtifactManifest {
            key: due.key.clone(),
            step: due.step.clone(),
            outputs: outputs.chain(step.outs.iter().map(|(name, _)| output(name))).collect(),
            values: values.into_iter().collect(),
            files: BTreeMap::new(),
            seconds: 1.0,
            attempts: 1,
            folder: Path::new("/artifacts").join(&due.key.0),
        };
        self.artifacts.insert(due.key.clone(), Artifact::Whole(Box::new(manifest)));
        self.records.insert(due.instance.clone(), due.components.clone());
    }
}

fn read(text: &str, sets: &[&str]) -> Pipeline {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    Pipeline::read(&PipelineText::of_text("p.yaml", text), &sets).expect("a pipeline")
}

/// What is to be done, and why, a line per instance.
fn plan(pipeline: &Pipeline, world: &Fake, progress: &PipelineProgress) -> Vec<String> {
    let word = |decision: &Decision| match decision {
        Decision::Run(_) => "run",
        Decision::Unchanged(..) => "unchanged",
        Decision::Done(_) => "done",
        Decision::Running => "running",
        Decision::Wait => "wait",
        Decision::Skip => "skip",
        Decision::Failed => "failed",
        Decision::Blocked => "blocked",
        Decision::Refused => "refused",
    };
    look(pipeline, world, progress)
        .iter()
        .map(|status| format!("{} {}: {}", status.instance, word(&status.decision), status.why))
        .collect()
}

const FILE: &str = "
parameters: {epochs: 3, bound: 0.9}
steps:
  ship: {export: ${fit}, when: ${test.accuracy} > ${params.bound}}
  prep: {run: clean ${in.raw} > ${out.clean}, in: {raw: raw.csv}, out: {clean: clean.csv}}
  fit:  {train: a.yaml, set: {data.training: ${prep.clean}, searcher.max_length.epochs: ${params.epochs}}}
  test: {evaluate: ${fit}}
  note: {run: date, needs: test}
";

#[test]
fn steps_run_once_and_again_when_what_they_stand_on_changes() {
    let mut world = Fake::default();
    let pipeline = read(FILE, &[]);
    let none = PipelineProgress::default();
    assert_eq!(
        plan(&pipeline, &world, &none),
        [
            "prep run: it has not run yet",
            "fit wait: after prep",
            "test wait: after fit",
            "ship wait: after fit, test",
            "note wait: after test",
        ]
    );
    let all = ["prep", "fit", "test", "ship", "note"];
    assert_eq!(world.run(&pipeline, json!({"accuracy": 0.95})), all);
    assert_eq!(world.run(&pipeline, json!({})), [""; 0], "nothing changed");

    // A parameter of one step, a file, the program, what an experiment holds.
    let more = read(FILE, &["epochs=4"]);
    assert_eq!(plan(&more, &world, &none)[1], "fit run: set.searcher.max_length.epochs: 3 -> 4");
    assert_eq!(world.run(&more, json!({"accuracy": 0.95})), ["fit", "test", "ship"]);
    assert_eq!(world.run(&pipeline, json!({})), [""; 0], "the old artifacts are there");
    world.contents.insert("raw.csv".into(), "other".into());
    assert_eq!(plan(&pipeline, &world, &none)[0], "prep run: raw.csv changed");
    assert_eq!(world.run(&pipeline, json!({"accuracy": 0.95})), ["prep", "fit", "test", "ship"]);
    world.program = "newer".into();
    assert_eq!(plan(&pipeline, &world, &none)[1], "fit run: the program changed");
    assert_eq!(world.run(&pipeline, json!({"accuracy": 0.95})), ["fit", "test", "ship"]);

    // A condition is no part of a key.
    let strict = read(FILE, &["bound=0.99"]);
    assert_eq!(plan(&strict, &world, &none)[3], "ship skip: when: 0.95 > 0.99 is false");
}

#[test]
fn artifacts_that_are_gone_or_changed_are_made_again() {
    let mut world = Fake::default();
    let pipeline = read(FILE, &[]);
    world.run(&pipeline, json!({"accuracy": 0.95}));
    let whole = world.artifacts.clone();
    let none = PipelineProgress::default();
    let prep = world.records["prep"].key();
    world.artifacts.insert(prep.clone(), Artifact::Damaged("clean.csv".into()));
    assert_eq!(plan(&pipeline, &world, &none)[0], "prep run: its artifact was changed: clean.csv");
    world.artifacts = whole;
    world.artifacts.remove(&prep);
    assert_eq!(plan(&pipeline, &world, &none)[0], "prep run: its artifact is gone");
    // The same content again leaves the others alone.
    assert_eq!(world.run(&pipeline, json!({"accuracy": 0.95})), ["prep"]);
}

#[test]
fn failures_stop_what_depends_on_them_and_nothing_else() {
    let text = "
steps:
  a: {run: a, out: a}
  b: {run: b, out: b}
  c: {run: c ${a}, out: c}
  d: {run: d ${c} ${b}}
  e: {run: e ${b}}
";
    let (mut world, pipeline) = (Fake::default(), read(text, &[]));
    let mut progress = PipelineProgress::default();
    progress.outcomes.insert("a".into(), StepOutcome::Failed);
    let expected = [
        "a failed: failed",
        "b run: it has not run yet",
        "c blocked: a failed",
        "d blocked: c failed",
        "e wait: after b",
    ];
    assert_eq!(plan(&pipeline, &world, &progress), expected);
    let statuses = look(&pipeline, &world, &progress);
    let Decision::Run(due) = &statuses[1].decision else { panic!("b is due") };
    progress.outcomes.insert("b".into(), StepOutcome::Running(due.key.clone()));
    assert_eq!(plan(&pipeline, &world, &progress)[1], "b running: runs");
    world.done(&pipeline, due, &Json::Null);
    progress.outcomes.remove("b");
    assert_eq!(plan(&pipeline, &world, &progress)[4], "e run: it has not run yet");
}

#[test]
fn a_list_is_done_item_by_item_and_comes_back_as_a_list() {
    let text = "
parameters: {rates: [{lr: 0.1, on: true}, {lr: 0.2, on: false}, {lr: 0.3, on: true}, {lr: 0.1, on: true}]}
steps:
  fit:  {run: fit ${item.lr}, for_each: ${params.rates}, when: ${item.on}, out: model}
  test: {run: [test, ${item}], for_each: ${fit}, out: score}
  best: {run: best ${test}}
";
    let (mut world, pipeline) = (Fake::default(), read(text, &[]));
    assert_eq!(
        plan(&pipeline, &world, &PipelineProgress::default()),
        [
            "fit[0] run: it has not run yet",
            "fit[1] skip: when: it is false",
            "fit[2] run: it has not run yet",
            "fit[3] wait: another step does just the same",
            "test wait: after fit",
            "best wait: after test",
        ]
    );
    let ran = world.run(&pipeline, Json::Null);
    assert_eq!(ran, ["fit[0]", "fit[2]", "test[0]", "test[1]", "best"]);
    let fewer = read(text, &["rates=[{lr: 0.1, on: true}, {lr: 0.3, on: true}]"]);
    // The same contents, though the list of models is another; three scores have become two.
    assert_eq!(world.run(&fewer, Json::Null), ["best"]);
    let empty = read(text, &["rates=[]"]);
    assert_eq!(world.run(&empty, Json::Null), ["best"]);
    let wrong = read(text, &["rates=[1]"]);
    let why = "line 4: ${item.on}: there is no \"on\" in it";
    assert_eq!(
        plan(&wrong, &world, &PipelineProgress::default())[0],
        format!("fit[0] refused: when: {why}")
    );
}

#[test]
fn what_cannot_be_had_is_refused_with_its_place() {
    let mut world = Fake::default();
    world.contents.insert("raw.csv".into(), String::new());
    let pipeline = read(FILE, &[]);
    let refused = "prep refused: in.raw: raw.csv: not there";
    assert_eq!(plan(&pipeline, &world, &PipelineProgress::default())[0], refused);
    world.contents.clear();
    world.run(&pipeline, json!({"accurracy": 0.95}));
    let why = "line 4: ${test.accuracy}: step test has left no \"accuracy\" (did you mean \"accurracy\"?)";
    assert_eq!(
        plan(&pipeline, &world, &PipelineProgress::default())[3],
        format!("ship refused: when: {why}")
    );
}

#[test]
fn commands_get_places_and_keys_get_contents() {
    let mut world = Fake::default();
    let pipeline = read(FILE, &[]);
    let first = look(&pipeline, &world, &PipelineProgress::default());
    let Decision::Run(prep) = &first[0].decision else { panic!("prep is due") };
    let line = format!("clean raw.csv > /unfinished/{}/clean.csv", prep.key);
    assert_eq!(prep.fields["run"], line);
    assert_eq!(prep.components.fields["run"], "clean raw.csv > out:clean");
    assert_eq!(prep.components.inputs, [("raw.csv".to_string(), "?".to_string())].into());
    assert_eq!(prep.components.program, None, "a command of one's own is told by its text");
    let prep = prep.clone();
    world.done(&pipeline, &prep, &Json::Null);
    let then = look(&pipeline, &world, &PipelineProgress::default());
    let Decision::Run(fit) = &then[1].decision else { panic!("fit is due") };
    let place = format!("/artifacts/{}/clean", prep.key);
    assert_eq!(fit.fields["set"]["data.training"], place);
    assert!(is_digest(fit.components.fields["set"]["data.training"].as_str().expect("text")));
    let names: Vec<&String> = fit.components.inputs.keys().collect();
    assert_eq!(names, ["a.yaml", "data.training"]);
}

#[test]
fn an_address_to_fetch_from_counts_as_text() {
    let text = "
parameters: {source: https://example.org/digits}
steps:
  digits: {fetch: mnist, from: '${params.source}'}
  table:  {convert: 'https://example.org/a.csv'}
";
    let (world, pipeline) = (Fake::default(), read(text, &[]));
    let statuses = look(&pipeline, &world, &PipelineProgress::default());
    let Decision::Run(digits) = &statuses[0].decision else { panic!("{}", statuses[0].why) };
    assert_eq!(digits.components.fields["from"], "https://example.org/digits");
    assert!(digits.components.inputs.is_empty(), "nothing is at the address itself");
    // What is read from an address has a content.
    assert_eq!(*world.asked.borrow(), ["https://example.org/a.csv"]);
    let elsewhere = read(text, &["source=https://example.com/digits"]);
    let statuses = look(&elsewhere, &world, &PipelineProgress::default());
    let Decision::Run(other) = &statuses[0].decision else { panic!("{}", statuses[0].why) };
    assert_ne!(digits.key, other.key);

    let (world, pipeline) = (Fake::default(), read(text, &["source=raw"]));
    look(&pipeline, &world, &PipelineProgress::default());
    assert!(world.asked.borrow().contains(&"raw".to_string()), "a folder counts by its content");
}
