//! Starting members and talking to them: a line to each, then a line from each.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use salamander_net::Token;
use salamander_net::tls::Files;

/// The variable with the job's token, which makes this program a member.
pub(crate) const MEMBER: &str = "SALAMANDER_BENCH_MEMBER";

/// The variable with the folder of its certificates, if it has any.
pub(crate) const CERTIFICATES: &str = "SALAMANDER_BENCH_TLS";

/// A member in a process of its own.
pub(crate) struct MemberProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl MemberProcess {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, stdin, stdout }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open until the end");
        writeln!(stdin, "{line}").expect("the member reads");
    }

    pub(crate) fn hear(&mut self) -> String {
        self.stdout.next().expect("the member answers").expect("with text")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // It ends by itself when its input does; those that hang are ended.
        for _ in 0..100 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells each member its line and hears all answers.
pub(crate) fn all(members: &mut [MemberProcess], line: impl Fn(usize) -> String) -> Vec<String> {
    for (rank, member) in members.iter_mut().enumerate() {
        member.tell(&line(rank));
    }
    members.iter_mut().map(MemberProcess::hear).collect()
}

/// Members of ours, not connected yet, and where they listen.
pub(crate) fn ours(size: usize, way: &str) -> (Vec<MemberProcess>, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = folder.path().join("tls");
    Files::create().expect("certificates").write(&certificates).expect("written");
    let token = Token::random().expect("randomness");
    let program = std::env::current_exe().expect("this program");
    let mut members: Vec<MemberProcess> = (0..size)
        .map(|_| {
            let mut command = Command::new(&program);
            command.env(MEMBER, token.to_hex());
            if way.starts_with("tls") {
                command.env(CERTIFICATES, &certificates);
            }
            MemberProcess::start(command)
        })
        .collect();
    let endpoints = members.iter_mut().map(MemberProcess::hear).collect();
    (members, endpoints)
}

/// A Python that has torch.
pub(crate) struct Gloo {
    python: String,
}

impl Gloo {
    pub(crate) fn find() -> Option<Self> {
        let python = std::env::var("SALAMANDER_PEERS").unwrap_or_else(|_| "python3".to_string());
        let check = Command::new(&python).args(["-c", "import torch"]).output();
        if check.is_ok_and(|output| output.status.success()) {
            return Some(Self { python });
        }
        println!("{python} cannot import torch: no ratios to Gloo (set SALAMANDER_PEERS)");
        None
    }

    /// Members of a group.
    pub(crate) fn start(&self, size: usize) -> Vec<MemberProcess> {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/gloo.py");
        let mut members: Vec<MemberProcess> = (0..size)
            .map(|_| {
                let mut command = Command::new(&self.python);
                command.arg(&script);
                MemberProcess::start(command)
            })
            .collect();
        members.iter_mut().for_each(|member| assert_eq!(member.hear(), "ready"));
        // Free for now, which is enough on a machine that runs a bench.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        all(&mut members, |rank| format!("join first {rank} {size} {port}"));
        members
    }
}
