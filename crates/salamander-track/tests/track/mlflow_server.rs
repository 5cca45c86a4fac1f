//! A real MLflow server on a database of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::python;

pub(crate) struct MlflowServer {
    pub(crate) address: SocketAddr,
    python: PathBuf,
    child: Child,
    _folder: TempDir,
}

impl MlflowServer {
    pub(crate) fn start() -> Option<Self> {
        let python = python::with("mlflow.server")?;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let mut command = Command::new(&python);
        command.args([
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--workers",
            "1",
        ]);
        command.arg("--backend-store-uri").arg(format!("sqlite:///{path}/mlflow.db"));
        command.arg("--artifacts-destination").arg(folder.path().join("artifacts"));
        command.env("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false");
        command.env("MLFLOW_DISABLE_TELEMETRY", "true").current_dir(folder.path());
        // A group of its own, so that its children end with it.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("python");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said.push_str(&format!("{line}\n"));
            line.split_once("running on http://")?.1.split_whitespace().next()?.parse().ok()
        });
        // It goes on talking, and must not find a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.unwrap_or_else(|| panic!("mlflow server did not start:\n{said}"));
        Some(Self { address, python, child, _folder: folder })
    }

    /// Asks it with MLflow's own client: `client` is there, and `out` is printed.
    pub(crate) fn ask(&self, script: &str) -> Value {
        let script = format!(
            "import json, sys\nfrom mlflow import MlflowClient\nclient = MlflowClient(sys.argv[1])\n\
             {script}\nprint(json.dumps(out))\n"
        );
        python::json(&self.python, &script, &[&format!("http://{}", self.address)])
    }
}

impl Drop for MlflowServer {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
