//! A Postgres server of the tests' own: in a temporary folder, on a socket, gone when the tests' process is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A server that runs.
pub(crate) struct PostgresServer {
    folder: PathBuf,
    /// What the server is told besides.
    settings: Vec<String>,
    process: Mutex<Child>,
    /// Removes the folder when this process is gone, however that comes: it reads until its input ends.
    _remover: Child,
}

/// Databases are numbered, so that each test has its own.
static DATABASES: AtomicU64 = AtomicU64::new(0);

/// The one server of this process.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(PostgresServer::start)
}

impl PostgresServer {
    /// Makes a server that nobody else uses, and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// The same with more settings, and with files in its data.
    pub(crate) fn start_with(settings: &[String], files: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("pg-").tempdir().expect("a folder").keep();
        if let Some(user) = other_user() {
            chown(&folder, Some(user), None).expect("given away");
        }
        let made = run("initdb", &folder)
            .args([
                "--pgdata=data",
                "--username=hub",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
            ])
            .output()
            .expect("initdb starts (apt-get install postgresql)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for (name, text) in files {
            let path = folder.join("data").join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
            if let Some(user) = other_user() {
                chown(&path, Some(user), None).expect("given away");
            }
        }
        let settings = settings.to_vec();
        let process = Mutex::new(spawn(&folder, &settings));
        let _remover = Command::new("sh")
            .args(["-c", "cat; sleep 1; rm -rf \"$1\"", "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let server = Self { folder, settings, process, _remover };
        server.wait();
        server
    }

    /// The address of a new database.
    pub(crate) fn database(&self) -> String {
        let name = format!("hub_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let asked = run("psql", &self.folder)
            .arg("--host")
            .arg(&self.folder)
            .args(["--username=hub", "postgres", "--command"])
            .arg(format!("CREATE DATABASE {name}"))
            .output()
            .expect("psql starts");
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        self.url(&name)
    }

    /// The address of a database of this name.
    pub(crate) fn url(&self, name: &str) -> String {
        let host: String =
            self.folder.to_str().expect("UTF-8").bytes().map(|b| format!("%{b:02x}")).collect();
        format!("postgres://hub@{host}/{name}")
    }

    /// Stops all of the server's processes, or lets them go on: each connection has one.
    #[allow(dead_code, reason = "not every test that has a server stops it")]
    pub(crate) fn signal(&self, name: &str) {
        let main = self.process.lock().unwrap_or_else(PoisonError::into_inner).id();
        // A connection may have ended meanwhile.
        let send = |name: &str, pid: &str| {
            let _ = Command::new("kill").args([name, pid]).stderr(Stdio::null()).status();
        };
        // It must not start others meanwhile, as it does when it sees one of its processes killed: what it started to
        // recover would wait for a minute for a process that is not there any more, and hold its memory.
        if name == "-KILL" {
            send("-STOP", &main.to_string());
            let stat = || fs::read_to_string(format!("/proc/{main}/stat")).unwrap_or_default();
            while stat().contains(") R ") || stat().contains(") S ") {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
        let children = children.unwrap_or_default();
        for pid in children.split_whitespace().chain([main.to_string().as_str()]) {
            send(name, pid);
        }
    }

    /// Kills the server, with what it was doing, and starts it again after a while.
    #[allow(dead_code, reason = "not every test that has a server kills it")]
    pub(crate) fn restart(&self, away: Duration) {
        self.signal("-KILL");
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.wait().expect("ended");
        std::thread::sleep(away);
        let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
        *process = spawn(&self.folder, &self.settings);
        drop(process);
        self.wait();
    }

    /// Until it answers. One that ends again is started again: processes of the one before may still be there.
    fn wait(&self) {
        let asked = || run("pg_isready", &self.folder).arg("--host").arg(&self.folder).output();
        let mut starts = 0;
        while !asked().expect("pg_isready starts").status.success() {
            let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            if process.try_wait().expect("known").is_some() {
                starts += 1;
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                assert!(starts < 100, "the server does not start: {log}");
                let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
                *process = spawn(&self.folder, &self.settings);
            }
            drop(process);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.signal("-KILL");
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program of Postgres, as a user who may run it: root may not.
fn run(program: &str, folder: &Path) -> Command {
    let mut folders: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    folders.sort();
    let found = folders.iter().rev().map(|bin| bin.join(program)).find(|path| path.is_file());
    let program = found.unwrap_or_else(|| PathBuf::from(program));
    let mut command = match other_user() {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={user}")).args(["--clear-groups", "--pdeathsig=KILL"]);
            command.arg(program);
            command
        }
        None => {
            let mut command = Command::new("setpriv");
            command.arg("--pdeathsig=KILL").arg(program);
            command
        }
    };
    command.current_dir(folder).env("LC_ALL", "C.UTF-8");
    command
}

/// The user `nobody`, where this process is root's.
fn other_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(65534)
}

/// Starts a server; its parent is a thread that stays, as it ends with that.
fn spawn(folder: &Path, settings: &[String]) -> Child {
    let mut command = run("postgres", folder);
    command.args(["-D", "data", "-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(folder);
    command.args(["-c", "max_connections=200", "-c", "shared_buffers=16MB"]);
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    let log = fs::File::create(folder.join("log")).expect("a log");
    command.stdout(Stdio::null()).stderr(log);
    let (sender, started) = channel();
    std::thread::spawn(move || {
        sender.send(command.spawn().expect("postgres starts")).expect("waited for");
        loop {
            std::thread::park();
        }
    });
    started.recv().expect("started")
}
