//! Running the program, and saying aloud which test could not run and why.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_salamander-under-test");

/// A working directory of its own, removed at the end.
pub(crate) struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// The program, in this directory.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.path()).env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended(self.command(args).output().expect("the program starts"))
    }

    /// Runs the program, which must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> Ended {
        let ended = self.run(args);
        assert!(ended.0.status.success(), "{args:?} failed:\n{}{}", ended.out(), ended.err());
        ended
    }

    /// Trains with `--json`, which must succeed, and returns the object.
    pub(crate) fn train(&self, args: &[&str]) -> Value {
        let mut all = vec!["train", "--json"];
        all.extend(args);
        self.ok(&all).json()
    }
}

/// A run of the program that has ended.
pub(crate) struct Ended(pub(crate) Output);

impl Ended {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    /// The last line of standard output.
    pub(crate) fn json(&self) -> Value {
        let out = self.out();
        let line = out.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

/// Whether a process has ended. One whose parent is gone may stay in the list as a zombie: in a container the first
/// process, which inherits it, need not ask for it.
pub(crate) fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, which may have anything in it, is in brackets; the state is the letter after it.
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn a_process_that_nobody_has_waited_for_has_ended() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
    assert!(!has_ended(child.id()), "it waits for its input");
    drop(child.stdin.take());
    while !has_ended(child.id()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let entry = Path::new("/proc").join(child.id().to_string());
    assert!(entry.exists(), "it is a zombie");
    child.wait().expect("ended");
    assert!(has_ended(child.id()));
}

/// The final weights of a run, as they are on disk.
pub(crate) fn weights_of(summary: &Value) -> Vec<u8> {
    let checkpoint = summary["checkpoint"].as_str().expect("a checkpoint");
    std::fs::read(Path::new(checkpoint).join("model.safetensors")).expect("weights")
}

/// The digits that ship with the repository.
pub(crate) fn digits(name: &str) -> String {
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    zoo.join(name).canonicalize().expect("the zoo's data").display().to_string()
}

/// An experiment on the zoo's validation digits: 2,000 records, quick even without optimisation.
pub(crate) fn digits_experiment(model: &str, rest: &str) -> String {
    let (train, valid) = (digits("mnist-valid.recordio"), digits("mnist-valid.recordio"));
    format!(
        "entrypoint: {model}\n\
         data: {{training: \"{train}\", validation: \"{valid}\"}}\n\
         reproducibility: {{experiment_seed: 3}}\n{rest}"
    )
}

/// `count` points left and right of a slanted line, as CSV.
pub(crate) fn points_csv(count: u64) -> String {
    let mut text = String::from("x,y,side\n");
    for i in 0..count {
        let (x, y) = (((i * 37) % 101) as f64 / 50.0 - 1.0, ((i * 61) % 97) as f64 / 48.0 - 1.0);
        text.push_str(&format!("{x:.3},{y:.3},{}\n", u8::from(x + 0.3 * y > 0.0)));
    }
    text
}

/// The numbers of so many records, as CSV.
pub(crate) fn ids_csv(count: u64) -> String {
    let ids: String = (0..count).map(|id| format!("{id}\n")).collect();
    format!("id\n{ids}")
}

/// Python with the given modules; says so and returns nothing when it is not there.
pub(crate) fn python(test: &str, modules: &str) -> Option<PathBuf> {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let check = Command::new(&python).arg("-c").arg(format!("import {modules}")).output();
    if check.is_ok_and(|output| output.status.success()) {
        return Some(PathBuf::from(python));
    }
    skip(test, &format!("{python} cannot import {modules} (pip install {modules})"));
    None
}

/// A folder with all that is below it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_folder(&path, &copy),
            false => {
                std::fs::copy(&path, &copy).expect("copied");
            }
        }
    }
}

/// Whether this test may change the machine beyond its temporary folder: mounts, bridges, network namespaces. Says so
/// and returns false unless somebody has allowed it.
pub(crate) fn may_change_host(test: &str) -> bool {
    let allowed = std::env::var_os("SALAMANDER_CHANGE_HOST").is_some();
    if !allowed {
        skip(test, "it mounts or makes networks, which SALAMANDER_CHANGE_HOST=1 allows");
    }
    allowed
}

/// Reports a test that cannot run here. With SALAMANDER_NO_SKIPS, as in CI, that is a failure.
pub(crate) fn skip(test: &str, reason: &str) {
    if std::env::var_os("SALAMANDER_NO_SKIPS").is_some() {
        panic!("{test} may not be skipped here, but: {reason}");
    }
    // Straight to the stream: the test harness only captures what the print macros write.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
