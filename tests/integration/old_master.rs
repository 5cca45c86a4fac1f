//! A master that was stopped for so long that another one has taken over, and that then goes on behind the address at
//! which workers look for their master: real processes, and a proxy that leads from one master to the other.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::chaos::{self, Fire};

use crate::elastic::fire;
use crate::interrupted::{signal, steps_logged};
use crate::support::{PROGRAM, Workplace, copy_folder};

/// The exit code of a master whose run another one leads.
const DEPOSED: i32 = 76;

/// What a worker says when a master has welcomed it.
const CONNECTED: &str = "up=true";
const WORKERS: [&str; 2] = ["worker-0", "worker-1"];

/// One address for whoever leads, as a cluster gives to a service.
struct Proxy {
    address: String,
    route: Arc<Mutex<Route>>,
}

/// Where a proxy leads, and the ends of what it has connected.
#[derive(Default)]
struct Route {
    to: String,
    open: Vec<TcpStream>,
}

impl Proxy {
    fn leading_to(master: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let route = Arc::new(Mutex::new(Route { to: master.to_string(), ..Route::default() }));
        let own = Arc::clone(&route);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Whoever finds nobody tries again.
                let _ = own.lock().unwrap_or_else(PoisonError::into_inner).connect(client);
            }
        });
        Self { address, route }
    }

    /// From now on it leads to this master, and what it has connected before is cut.
    fn lead_to(&self, master: &str) {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        route.to = master.to_string();
        route.open.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

impl Route {
    fn connect(&mut self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(&self.to)?;
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                // One end is gone, and so is the other.
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        self.open.extend([client, server]);
        Ok(())
    }
}

/// The processes of a run that nobody looks after, with their logs; they end with the test.
struct Roles {
    place: Workplace,
    children: Vec<(&'static str, Child)>,
}

impl Roles {
    fn start(&mut self, name: &'static str, args: &[&str]) {
        let log = fs::File::create(self.log(name)).expect("a log");
        let mut command = self.place.command(args);
        // Whom a worker leaves, and why.
        command.env("SALAMANDER_LOG", "info,salamander_proto=debug");
        command.stdout(Stdio::null()).stderr(log);
        self.children.push((name, command.spawn().expect("the program starts")));
    }

    fn child(&mut self, name: &str) -> &mut Child {
        let found = self.children.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, child)| child).expect("it was started")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.place.path().join(format!("{name}.log"))
    }

    /// How often both workers, each of them, have said something.
    fn said(&self, words: &str) -> [usize; 2] {
        WORKERS.map(|name| {
            let text = fs::read_to_string(self.log(name)).unwrap_or_default();
            text.matches(words).count()
        })
    }

    /// Waits for something that happens while all of them live.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let ended = self
                .children
                .iter_mut()
                .find_map(|(name, child)| Some((*name, child.try_wait().expect("a state")?)));
            if let Some((name, status)) = ended {
                self.fail(&format!("{name} ended with {status} before this: {what}"));
            }
            if begun.elapsed() > Duration::from_secs(120) {
                self.fail(&format!("not within two minutes: {what}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Both workers come to a master, which hears of steps then.
    fn follow(&mut self, proxy: &Proxy, master: &str, run: &Path) {
        let (logged, connected) = (steps_logged(run), self.said(CONNECTED));
        proxy.lead_to(master);
        self.until("both follow the master", |roles| {
            let again = roles.said(CONNECTED);
            again.iter().zip(connected).all(|(again, before)| *again > before)
                && steps_logged(run) > logged + 2
        });
    }

    /// How a process ends that nothing holds up any more.
    fn end_of(&mut self, name: &str) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child(name).try_wait().expect("a state") {
                return status.code();
            }
            if begun.elapsed() > Duration::from_secs(120) {
                self.fail(&format!("{name} does not end"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Fails with what all of them have said last.
    fn fail(&self, what: &str) -> ! {
        let said = self.children.iter().map(|(name, _)| {
            let text = fs::read_to_string(self.log(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{name}:\n{}\n", lines[lines.len().saturating_sub(30)..].join("\n"))
        });
        panic!("{what}\n{}", said.collect::<String>());
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // It has ended by itself, where nothing failed.
            let _ = (child.kill(), child.wait());
        }
    }
}

/// Stops a process and waits until none of its threads does anything.
fn stop(child: &Child) {
    signal(child, Signal::STOP);
    let tasks = format!("/proc/{}/task", child.id());
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    let begun = Instant::now();
    while !fs::read_dir(&tasks).expect("it lives").flatten().all(is_stopped) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What another machine sees of a run's folder: all that its master had written, and the same checkpoints.
fn seen_elsewhere(run: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(run).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        match name.to_str() {
            Some("checkpoints") => symlink(&path, to.join(name)).expect("a link"),
            Some("tls") => copy_folder(&path, &to.join(name)),
            // Nobody listens there any more.
            Some("master.address") => {}
            // Of workers too, which write on.
            _ if path.is_dir() => {}
            _ => {
                fs::copy(&path, to.join(name)).expect("copied");
            }
        }
    }
}

/// Workers that know a later term leave the old master each time that the proxy leads to it, and it ends as soon as it
/// sees that its run has another one.
#[test]
fn an_old_master_behind_a_proxy_is_not_followed() {
    let mut roles = Roles { place: Workplace::new(), children: Vec::new() };
    // Two minutes at least, until nothing more is done to it and it is slow no more.
    let fire = Fire { epochs: 12, delay_ms: 100, ..fire(1, 2, 2) };
    chaos::prepare(roles.place.path(), &fire);
    let slow = roles.place.write("slow", "");
    let slowly = format!("hyperparameters.slow_file={}", slow.display());
    let prepare = ["train", "tally.yaml", "--prepare", "--set", &slowly];
    let prepared = roles.place.ok(&[&prepare[..], &["--set", "elastic.silence=2"]].concat());
    let run = PathBuf::from(prepared.out().trim());
    let lead = |roles: &mut Roles, name, run: &Path| {
        roles.start(name, &["master", &run.display().to_string()]);
        let address = || fs::read_to_string(run.join("master.address")).ok();
        roles.until("a master leads", |_| address().is_some());
        address().expect("an address").trim().to_string()
    };
    let old = lead(&mut roles, "old", &run);
    let proxy = Proxy::leading_to(&old);
    for (slot, name) in WORKERS.into_iter().enumerate() {
        let (run, slot) = (run.display().to_string(), slot.to_string());
        roles.start(name, &["worker", &run, "--master", &proxy.address, "--slot", &slot]);
    }
    // Nobody makes a file any more in the folder that is copied now.
    let pids = WORKERS.map(|name| roles.child(name).id());
    roles.until("both train", |roles| {
        let phase = |pid| roles.place.path().join(format!("phase-{pid}"));
        steps_logged(&run) > 2 && pids.iter().all(|pid| phase(pid).exists())
    });

    stop(roles.child("old"));
    let later = roles.place.path().join("later");
    seen_elsewhere(&run, &later);
    let new = lead(&mut roles, "new", &later);
    roles.follow(&proxy, &new, &later);

    signal(roles.child("old"), Signal::CONT);
    proxy.lead_to(&old);
    roles.until("both have met the old one and left it", |roles| {
        roles.said("its master was replaced").iter().all(|times| *times > 0)
    });
    roles.follow(&proxy, &new, &later);

    fs::remove_file(slow).expect("it was slow");
    for name in ["new", "worker-0", "worker-1"] {
        let code = roles.end_of(name);
        if code != Some(0) {
            roles.fail(&format!("{name} ended with {code:?}"));
        }
    }
    let text = fs::read_to_string(later.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&summary["state"], &summary["steps"]), (&"completed".into(), &300.into()));
    let proven = chaos::prove(Path::new(PROGRAM), roles.place.path(), &fire, &summary);
    proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");

    // What the other one has written comes into sight.
    fs::write(run.join(".term-2"), "").expect("written");
    let code = roles.end_of("old");
    if code != Some(DEPOSED) {
        roles.fail(&format!("the old master ended with {code:?}"));
    }
}
