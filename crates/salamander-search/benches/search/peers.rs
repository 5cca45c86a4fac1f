//! The Python that has the tables and the peer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of tables and curves that were written by `peers.py`, and Optuna.
pub(crate) struct Peers {
    python: String,
    script: PathBuf,
    folder: PathBuf,
}

impl Peers {
    /// Those of `SALAMANDER_PEERS`, if it has the packages; `SALAMANDER_TABLES` names a folder to keep the tables in.
    pub(crate) fn find(modules: &str) -> Option<Self> {
        let python = std::env::var("SALAMANDER_PEERS").unwrap_or_else(|_| "python3".to_string());
        // Looked for, not imported: lcdb needs more than its tables do.
        let look = format!(
            "import importlib.util as i, sys; sys.exit(any(i.find_spec(m) is None for m in '{modules}'.split()))"
        );
        let check = Command::new(&python).arg("-c").arg(look).output();
        if !check.is_ok_and(|output| output.status.success()) {
            println!("{python} has no {modules}: left out (set SALAMANDER_PEERS)");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/search/peers.py");
        let folder = std::env::var_os("SALAMANDER_TABLES")
            .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("tables"), PathBuf::from);
        std::fs::create_dir_all(&folder).expect("a folder for tables");
        Some(Self { python, script, folder })
    }

    /// The folder, with what a mode of the script writes into it.
    pub(crate) fn folder(&self, mode: &str, file: &str) -> &Path {
        if !self.folder.join(file).is_file() {
            self.run(&[mode, &self.folder.display().to_string()]);
        }
        &self.folder
    }

    /// What the script prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.python).arg(&self.script).args(arguments).output();
        let output = output.expect("Python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
