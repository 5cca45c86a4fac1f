//! Pipelines of small commands, run to their end: what is done, what is not done again, and what is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use salamander_flow::pipeline::{
    ArtifactStore, Error, Options, Pipeline, PipelineEvent, PipelineState, PipelineSummary,
    PipelineText, run,
};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(text: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.write("p.yaml", text);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).expect("written");
    }

    fn pipeline(&self, sets: &[&str]) -> Pipeline {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let source = PipelineText::of_file(&self.at("p.yaml")).expect("a file");
        Pipeline::read(&source, &sets).expect("a pipeline")
    }

    fn try_run(
        &self,
        sets: &[&str],
        only: Option<&str>,
        stop: &AtomicBool,
    ) -> Result<PipelineSummary, Error> {
        let mut store =
            ArtifactStore::open(&self.at("out"), |_| Err("no addresses".into())).expect("a store");
        store.claim(only.is_some()).expect("nobody else is here");
        let options = Options { parallel: Some(2), only, stop };
        run(&self.pipeline(sets), &store, options, &mut |_: PipelineEvent| {})
    }

    fn run(&self, sets: &[&str]) -> PipelineSummary {
        self.try_run(sets, None, &AtomicBool::new(false)).expect("it runs")
    }

    fn entries(&self, folder: &str) -> usize {
        fs::read_dir(self.at("out").join(folder)).map_or(0, Iterator::count)
    }
}

/// The states of all steps, a word each.
fn states(summary: &PipelineSummary) -> String {
    let state =
        |step: &salamander_flow::pipeline::StepReport| format!("{}:{}", step.name, step.state);
    summary.steps.iter().map(state).collect::<Vec<_>>().join(" ")
}

fn why<'a>(summary: &'a PipelineSummary, name: &str) -> &'a str {
    let step = summary.steps.iter().find(|step| step.name == name);
    &step.unwrap_or_else(|| panic!("no {name} in {summary:?}")).why
}

#[test]
fn what_did_not_change_is_not_done_again() {
    let place = Place::new(
        "
parameters: {n: 2}
steps:
  sort: {run: sort ${in.raw} > ${out}, in: {raw: raw.txt}, out: sorted.txt}
  top:  {run: 'head -n ${params.n} ${sort} > ${out}', out: top.txt}
  size: {run: 'wc -l < ${top}; echo \"{\\\"n\\\": 1}\"', values: [n]}
",
    );
    place.write("raw.txt", "b\na\nc\n");
    assert_eq!(states(&place.run(&[])), "sort:done top:done size:done");
    assert_eq!(states(&place.run(&[])), "sort:unchanged top:unchanged size:unchanged");
    let more = place.run(&["n=3"]);
    assert_eq!(states(&more), "sort:unchanged top:done size:done");
    let path = more.steps[1].outputs.as_ref().expect("outputs")["top"].as_str().expect("a path");
    assert_eq!(fs::read_to_string(path).expect("there"), "a\nb\nc\n");
    assert_eq!(states(&place.run(&[])), "sort:unchanged top:unchanged size:unchanged");
    // Another order of the same lines is another input, and the same output: the rest stays as it is.
    place.write("raw.txt", "c\nb\na\n");
    let again = place.run(&[]);
    assert_eq!(states(&again), "sort:done top:unchanged size:unchanged");
    assert_eq!(why(&again, "sort"), "raw.txt changed");
    // Whoever changes an artifact gets another one.
    fs::write(path, "x\n").expect("written");
    let damaged = place.run(&["n=3"]);
    assert_eq!(why(&damaged, "top"), "its artifact was changed: top.txt");
    assert_eq!(states(&damaged), "sort:unchanged top:done size:unchanged");
}

#[test]
fn failures_leave_a_message_and_no_artifact() {
    let place = Place::new(
        "
steps:
  fails:  {run: 'echo half > ${out}; echo it went wrong >&2; exit 3', out: a}
  after:  {run: 'cat ${fails}'}
  slow:   {run: sleep 600, timeout: 50ms}
  lazy:   {run: 'true', out: {made: made.txt}}
  silent: {run: echo hello, values: [n]}
  fine:   {run: echo fine > ${out}, out: b}
  tries:  {run: 'echo x >> tries; exit 1', retries: 2, backoff: 1ms}
",
    );
    let summary = place.run(&[]);
    assert_eq!(summary.state, PipelineState::Failed);
    assert_eq!(
        states(&summary),
        "fails:failed after:blocked slow:failed lazy:failed silent:failed fine:done tries:failed"
    );
    let begins = |name: &str, expected: &str| {
        assert!(why(&summary, name).starts_with(expected), "{}", why(&summary, name));
    };
    begins("fails", "exit code 3: it went wrong (log: ");
    begins("after", "fails failed");
    begins("slow", "it took longer than 50ms");
    begins("lazy", "it ended well but has not written made.txt (${out.made})");
    begins("silent", "the last line that it printed is no JSON object with \"n\"");
    assert_eq!(fs::read_to_string(place.at("tries")).expect("there").lines().count(), 3);
    assert_eq!((place.entries("artifacts"), place.entries("unfinished")), (1, 0));
    // The dashboard shows how it ended.
    let picture = fs::read_to_string(place.at("out/graph.svg")).expect("a picture");
    let words = |word: &str| picture.matches(&format!(", {word}</text>")).count();
    assert_eq!((words("failed"), words("blocked"), words("done"), words("runs")), (5, 1, 1, 0));
}

#[test]
fn asked_to_stop_it_ends_its_children_and_goes_on_later() {
    let place = Place::new(
        "
steps:
  quick: {run: echo done > ${out}, out: a}
  long:  {run: 'echo $$ > pid; cat ${quick}; test -e go || sleep 600 & wait'}
",
    );
    let stop = AtomicBool::new(false);
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            while fs::read_to_string(place.at("pid")).unwrap_or_default().trim().is_empty() {
                sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        place.try_run(&[], None, &stop).expect("it runs")
    });
    assert_eq!(
        (summary.state, states(&summary).as_str()),
        (PipelineState::Interrupted, "quick:done long:stopped")
    );
    let pid = fs::read_to_string(place.at("pid")).expect("a number");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} lives on");
    place.write("go", "");
    assert_eq!(states(&place.run(&[])), "quick:unchanged long:done");
}

#[test]
fn a_single_step_takes_the_decisions_of_a_whole_run() {
    let place = Place::new(
        "
steps:
  a: {run: echo a > ${out}, out: a}
  b: {run: cat ${a} > ${out}, out: b, for_each: [1, 2]}
  c: {run: cat ${b} ${item}, for_each: [x], when: '1 > 2'}
",
    );
    let step = |name: &str| place.try_run(&[], Some(name), &AtomicBool::new(false));
    let error = step("b").expect_err("a has not run").to_string();
    assert_eq!(error, "step b: it comes after a, which has not run as things are now");
    let error = step("d").expect_err("no such step").to_string();
    assert!(error.starts_with("no step \"d\" in "), "{error}");
    assert_eq!(states(&step("a").expect("it runs")), "a:done");
    assert_eq!(states(&step("a").expect("it runs")), "a:unchanged");
    assert_eq!(states(&step("b[1]").expect("it runs")), "b[1]:done");
    assert_eq!(states(&step("b").expect("it runs")), "b[0]:unchanged b[1]:unchanged");
    assert_eq!(states(&step("c").expect("it runs")), "c:skipped");
    assert_eq!(states(&place.run(&[])), "a:unchanged b[0]:unchanged b[1]:unchanged c:skipped");
}

#[test]
fn mistakes_name_their_line_and_the_nearest_name() {
    let check = |steps: &str, expected: &str| {
        let text = format!("parameters: {{epochs: 3, name: x}}\nsteps:\n{steps}");
        let source = PipelineText::of_text("p.yaml", &text);
        let error = Pipeline::read(&source, &[]).expect_err(steps).to_string();
        assert_eq!(error, format!("pipeline p.yaml: {expected}"));
    };
    check("  a: {trian: x.yaml}", "line 3: a: no kind of step \"trian\" (did you mean \"train\"?)");
    check(
        "  a: {train: x, workres: 2}",
        "line 3: unknown field \"workres\" in a (did you mean \"workers\"?)",
    );
    check(
        "  raw: {run: x}\n  b: {run: '${rwa}'}",
        "line 4: b.run: ${rwa}: no step \"rwa\" (did you mean \"raw\"?)",
    );
    check(
        "  fit: {train: x}\n  b: {run: '${fit.chekpoint}'}",
        "line 4: b.run: ${fit.chekpoint}: \"fit\" has no \"chekpoint\" (did you mean \"checkpoint\"?)",
    );
    check(
        "  a: {run: x, when: '${params.epoch} > 1'}",
        "line 3: a.when: ${params.epoch}: no parameter \"epoch\" (did you mean \"epochs\"?)",
    );
    check(
        "  a: {run: x, when: '${params.name} > 1'}",
        "line 3: a.when: ${params.name}: is a text: only numbers have an order",
    );
    check(
        "  a: {train: x, workers: '${params.name}'}",
        "line 3: a.workers: ${params.name}: is a text, not a number",
    );
    check("  a: {train: x, workers: many}", "line 3: a.workers: write a number");
    check(
        "  a: {convert: '${params.epochs}'}",
        "line 3: a.convert: ${params.epochs}: is a number, not a file or folder",
    );
    check(
        "  a: {run: '${b}', out: x}\n  b: {run: '${a}', out: y}",
        "line 3: steps wait for each other: a <- b <- a",
    );
    check(
        "  a: {run: '${a.x}', out: x}",
        "line 3: a.run: ${a.x}: a step cannot use what it leaves itself",
    );
    check("  a: {run: x, needs: [bb]}", "line 3: a.needs: no step \"bb\" (known: a)");
    check(
        "  a: {run: x, out: ../x}",
        "line 3: a.out: write a plain file name: it is put into the step's own folder",
    );
    check("  a: {run: x, train: y}", "line 3: a: a step does one thing, not run and train");
    check(
        "  a: {run: x, timeout: soon}",
        "line 3: a.timeout: write a time, as in 90s, 30m, 2h or 1d",
    );
    check("  a: {run: '${item}'}", "line 3: a.run: ${item}: there is no item without for_each");
    check("  in: {run: x}", "line 3: in: this name has a meaning of its own");
    check(
        "  a: {evaluate: x}\n  b: {run: '${a}'}",
        "line 4: b.run: ${a}: name one of its outputs: records, skipped, report",
    );
    check(
        "  a: {run: x}\n  b: {run: '${a}'}",
        "line 4: b.run: ${a}: it leaves nothing: name what it writes with `out`",
    );
    let source = PipelineText::of_text("p.yaml", "parameters: {epochs: 3}\nsteps: {a: {run: x}}");
    let error = Pipeline::read(&source, &["epoch=3".into()]).expect_err("unknown").to_string();
    assert_eq!(
        error,
        "pipeline p.yaml: --set epoch=3: no parameter \"epoch\" (did you mean \"epochs\"?)"
    );
}

#[test]
fn the_folder_has_one_path_however_it_is_named() {
    let place = Place::new("steps:\n  a: {run: x}\n");
    let open = |folder: &Path| {
        ArtifactStore::open(folder, |_| Err("no addresses".into())).expect("a store")
    };
    fs::create_dir(place.at("inner")).expect("made");
    std::os::unix::fs::symlink(place.folder.path(), place.at("link")).expect("a link");
    let expected = place.folder.path().canonicalize().expect("a folder").join("kept");
    for name in ["inner/../kept", "link/kept", "kept"] {
        let mut store = open(&place.at(name));
        store.claim(false).expect("nobody else is here");
        assert_eq!(store.layout().folder(), expected, "{name}");
        drop(store);
        assert_eq!(open(&place.at(name)).layout().folder(), expected, "{name}");
    }
}
