//! Parameter servers of a synchronous run: what they tell, and how they leave.

use salamander_core::elastic::{CheckpointMark, FromMember, SERVER_SLOTS, Version, WorkerId};
use salamander_core::status::TableStats;
use salamander_master::Config;
use salamander_net::Cancel;
use salamander_proto::client::{NonMember, Registration, Role, RunEnd};

use crate::membership::patient;
use crate::support::{Run, Worker, together, wait_until};

fn server(run: &Run, id: u64, seat: u32) -> NonMember {
    let registration = Registration {
        id: WorkerId(id),
        endpoint: format!("host:{id}"),
        slot: SERVER_SLOTS + seat,
        process: id as u32,
        role: Role::Server,
    };
    NonMember::open(&run.session(), registration, Cancel::new()).expect("a session")
}

#[test]
fn what_tables_hold_is_told() {
    let run = Run::with(1, |config| {
        patient(config);
        config.servers = 1;
    });
    let server = server(&run, 70, 0);
    wait_until("it is seated", || run.status()["servers"][0]["seat"] == 0);
    let figures = TableStats { name: "item".into(), waiting: 3, evicted: 7, ..Default::default() };
    server.sender().tables(vec![figures]);
    wait_until("the figures are there", || {
        let table = run.status()["servers"][0]["tables"][0].clone();
        (table["name"] == "item") && (table["waiting"] == 3) && (table["evicted"] == 7)
    });
}

#[test]
fn a_server_that_leaves_stays_until_a_checkpoint_has_its_rows() {
    let run = Run::with(1, |config| {
        patient(config);
        config.servers = 1;
    });
    let (seated, stranger) = (server(&run, 70, 0), server(&run, 71, 5));
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    seated.sender().send(FromMember::Leave);
    stranger.sender().send(FromMember::Leave);
    wait_until("a checkpoint is asked for", || worker.seen().member.take_save());
    wait_until("one without rows may go", || stranger.end() == Some(RunEnd::Released));
    assert_eq!(seated.end(), None);
    let generation = worker.seen().member.generation().expect("active");
    let mark = CheckpointMark { id: "step-9".into(), version: Version(9), generation };
    worker.sender().send(FromMember::Wrote(mark));
    wait_until("it counts", || run.status()["checkpoint"]["id"] == "step-9");
    assert_eq!(seated.end(), None, "the members went on since: that would be done again");
    worker.sender().send(FromMember::Holds(generation));
    wait_until("its rows are safe", || seated.end() == Some(RunEnd::Released));
    assert!(run.told.has_note("parameter server 0 wants to leave"));
}

#[test]
fn a_server_that_wants_to_leave_tells_the_next_master_too() {
    let one_server = |config: &mut Config| {
        patient(config);
        config.servers = 1;
    };
    let mut run = Run::with(1, one_server);
    let server = server(&run, 70, 0);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    server.sender().send(FromMember::Leave);
    wait_until("a checkpoint is asked for", || worker.seen().member.take_save());
    // A master says what it has heard in moments; many heartbeats are far more.
    let beats = worker.seen().beats;
    wait_until("it was heard", || worker.seen().beats > beats + 20);
    run.kill();
    wait_until("it knows", || !worker.seen().connected);
    run.start(one_server);
    wait_until("a checkpoint is asked for again", || worker.seen().member.take_save());
    assert_eq!(server.end(), None);
    let generation = worker.seen().member.generation().expect("active");
    worker.sender().send(FromMember::Holds(generation));
    wait_until("its rows are safe", || server.end() == Some(RunEnd::Released));
}
