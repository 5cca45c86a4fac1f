//! Many faults in one run: enough to hit exchanges, pushes and moves, whoever is killed or stopped. The short forms
//! of these tests are beside what they test.

use tests::chaos::{Fire, Story};

use super::servers::killed_in_mid_move;
use crate::elastic::{fire, under_fire};
use crate::interrupted::killed_at;
use crate::stored::{Bucket, goes_on_elsewhere, goes_on_while_its_master_lives};
use crate::support::Workplace;

/// How many faults of a run were of this kind.
fn count(story: &Story, kind: &str) -> usize {
    story.faults.iter().filter(|(fault, _)| fault.starts_with(kind)).count()
}

#[test]
fn every_record_counts_once_under_many_kills_stops_and_joins() {
    let story = under_fire(&Fire { in_exchange: 3, ..fire(1, 4, 16) });
    let places: Vec<&str> = story.faults.iter().map(|(_, at)| at.as_str()).collect();
    assert!(story.in_exchange() >= 3, "few faults hit an exchange: {places:?}");
    assert!(story.summary["generations"].as_u64() > Some(3), "{}", story.summary);
}

#[test]
fn every_record_counts_once_over_tcp_under_many_faults() {
    under_fire(&Fire { transport: "tcp", ..fire(2, 3, 6) });
}

/// Each run's weights have the bits of one process that nobody disturbed, so that all of them have one hash.
#[test]
fn one_two_three_five_and_eight_workers_have_one_hash_under_twenty_faults() {
    let steps = Fire { records: 4813, ..fire(3, 1, 20) };
    let hashes = [1, 2, 3, 5, 8].map(|workers| {
        // Slow enough that it does not end before the last fault.
        let delay_ms = 3 * u64::from(workers.min(4));
        let fire = Fire { seed: 3 + u64::from(workers), workers, delay_ms, ..steps.clone() };
        under_fire(&fire).summary["weights_hash"].clone()
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn every_record_counts_once_with_tables_on_servers_that_are_killed() {
    let story = under_fire(&Fire { servers: 2, ..fire(1, 3, 14) });
    assert!(count(&story, "killed parameter") >= 1, "no server was killed: {:?}", story.faults);
}

#[test]
fn every_record_counts_once_without_waiting_whoever_is_killed() {
    let fire = Fire { servers: 2, asynchronous: true, in_exchange: 3, ..fire(2, 3, 14) };
    let story = under_fire(&fire);
    for kind in ["killed worker", "killed master", "killed parameter server"] {
        assert!(count(&story, kind) > 0, "no {kind}: {:?}", story.faults);
    }
    assert!(story.in_exchange() >= 3, "few faults hit a push: {:?}", story.faults);
}

#[test]
fn killed_at_twenty_moments_and_resumed_it_ends_with_the_same_weights() {
    killed_at(0..20);
}

#[test]
fn servers_killed_in_mid_move_lose_no_push() {
    let fire = Fire { servers: 2, asynchronous: true, delay_ms: 5, ..fire(1, 2, 14) };
    killed_in_mid_move(fire, "partitions move to");
}

#[test]
fn tables_on_servers_go_on_elsewhere() {
    let fire = Fire { epochs: 4, servers: 2, ..fire(1, 2, 2) };
    goes_on_elsewhere("tables_on_servers_go_on_elsewhere", &fire);
}

#[test]
fn servers_without_waiting_go_on_elsewhere() {
    let fire = Fire { epochs: 4, servers: 2, asynchronous: true, ..fire(1, 2, 2) };
    goes_on_elsewhere("servers_without_waiting_go_on_elsewhere", &fire);
}

#[test]
fn a_master_whose_run_goes_on_elsewhere_from_azure_stops_leading() {
    let test = "a_master_whose_run_goes_on_elsewhere_from_azure_stops_leading";
    let files = Workplace::new();
    let Some(bucket) = Bucket::start_azure(test, &files) else { return };
    goes_on_while_its_master_lives(&bucket);
}
