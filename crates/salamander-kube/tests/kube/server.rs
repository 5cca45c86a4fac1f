//! The container of a parameter server: the shipped engine behind the shipped port, as `salamander ps` runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::elastic::{SERVER_SLOTS, WorkerId};
use salamander_net::Cancel;
use salamander_proto::client::{Admin, NonMember, Registration, Role, SessionOptions};
use salamander_ps::{EngineOptions, partitions_of, role};

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
    let partitions = partitions_of(seat as usize, servers as usize);
    let engine = EngineOptions { partitions, ..EngineOptions::default() };
    let config = role::Config::new(engine).expect("a name");
    let address = format!("{}:0", args.get("--listen").expect("an address"));
    let (listener, endpoint) =
        role::bind(address.parse().expect("an address"), keys).expect("a port");
    let registration = Registration {
        id: WorkerId(config.incarnation),
        endpoint,
        slot: SERVER_SLOTS + seat,
        process: pid,
        role: Role::Server,
    };
    let shutdown = Cancel::new();
    let session = NonMember::open(&session, registration, shutdown.clone()).expect("a session");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| role::run(&config, &listener, &shutdown));
        while !leave.load(Ordering::Relaxed) && !shutdown.is_cancelled() {
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
            return Some(status.wanted_servers as u32);
        }
        if leave.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
