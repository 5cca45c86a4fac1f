//! The container of a parameter server: the shipped engine behind the shipped port, as `salamander ps` runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::elastic::{Beat, SERVER_SLOTS, ToMember, WorkerId};
use salamander_net::Cancel;
use salamander_proto::client::{Admin, Handler, Session, SessionOptions};
use salamander_proto::v1;
use salamander_ps::client::Map;
use salamander_ps::{EngineOptions, role};

use crate::roles::Args;

/// Serves its share of the partitions until the run is over, or until it is asked to leave.
pub(crate) fn run(args: &Args<'_>) -> i32 {
    let seat: u32 = args.get("--seat").expect("a seat").parse().expect("a number");
    let pid = std::env::var("SALAMANDER_PROCESS").expect("a number").parse().expect("a number");
    if std::fs::remove_file(args.folder().join(format!("crash-ps-{seat}"))).is_ok() {
        eprintln!("the rows do not fit");
        return 4;
    }
    let leave = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, leave.clone()).expect("a signal");
    let keys = args.keys();
    let session = SessionOptions::of(args.get("--master").expect("a master"), &keys);
    let Some(servers) = wanted(&session, &leave) else { return 75 };
    let map = Map { epoch: 0, servers: servers as usize };
    let partitions = map.partitions(seat as usize);
    let engine = EngineOptions { partitions, ..EngineOptions::default() };
    let config = role::Config::new(engine).expect("a name");
    let address = format!("{}:0", args.get("--listen").expect("an address"));
    let (listener, endpoint) =
        role::bind(address.parse().expect("an address"), keys).expect("a port");
    let ended = Arc::new(AtomicBool::new(false));
    let id = WorkerId(config.incarnation);
    let voice = Voice { id, endpoint, seat, pid, servers, ended: ended.clone() };
    let session = Session::open(&session, voice);
    let session = session.expect("a session");
    let shutdown = Cancel::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| role::run(&config, &listener, &shutdown));
        while !leave.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        shutdown.cancel();
        served.join().expect("no panic").expect("served");
    });
    drop(session);
    if leave.load(Ordering::Relaxed) { 75 } else { 0 }
}

/// How many servers the run has.
fn wanted(session: &SessionOptions, leave: &AtomicBool) -> Option<u32> {
    loop {
        let call = Duration::from_secs(5);
        let status = Admin::connect(session, call).and_then(|mut admin| admin.status());
        if let Ok(status) = status {
            return status["wanted_servers"].as_u64().map(|servers| servers as u32);
        }
        if leave.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Voice {
    id: WorkerId,
    endpoint: String,
    seat: u32,
    pid: u32,
    servers: u32,
    ended: Arc<AtomicBool>,
}

impl Handler for Voice {
    fn hello(&mut self) -> v1::Hello {
        v1::Hello {
            peer: Some(v1::Peer { id: self.id.0, endpoint: self.endpoint.clone() }),
            active: None,
            slot: SERVER_SLOTS + self.seat,
            pid: self.pid,
            records: u64::from(self.servers),
            fingerprint: 0,
            tasks_only: false,
            server: true,
        }
    }

    fn welcome(&mut self, _epoch: u32) -> Result<(), String> {
        Ok(())
    }

    fn message(&mut self, message: ToMember) {
        if let ToMember::Ended(_) = message {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    fn beat(&mut self) -> Beat {
        Beat::default()
    }

    fn refused(&mut self, reason: &str) {
        eprintln!("refused: {reason}");
        self.ended.store(true, Ordering::Relaxed);
    }
}
