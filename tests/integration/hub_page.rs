//! The page of a hub in a real browser, on experiments that train: what is clicked is done, and what is shown is what
//! the API says.
//!
//! Needs what the hub's own tests of the page need (crates/salamander-hub/tests/page/main.rs).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::hub::{Hub, processes_of};
use crate::playwright::playwright;
use crate::support::{Workplace, ids_csv};
use crate::tracked::TallySearch;

/// Goes on for hours, if nobody ends it, and slowly enough to be looked at.
const STEERED: &str = "\
name: steered
entrypoint: tally
data: {training: ids.csv}
hyperparameters: {global_batch_size: 40, records: 4000, delay_ms: 10}
searcher: {metric: loss, max_length: {batches: 100000000}}
strategy: allreduce
workers: {min: 1, max: 2}
";

/// How long what has ended may take to be gone.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn what_is_clicked_is_done_and_what_is_shown_is_what_the_hub_says() {
    let Some(playwright) = playwright() else { return };
    let place = Workplace::new();
    place.write("ids.csv", &ids_csv(4000));
    place.write("few.csv", &ids_csv(40));
    place.write("steered.yaml", STEERED);
    let searched = TallySearch {
        name: "searched",
        batches: 100_000_000,
        trials: 4,
        hyperparameters: "  records: 4000\n  delay_ms: 10\n",
    };
    place.write("searched.yaml", &searched.text());
    let hub = Hub::start(&place);
    for file in ["steered.yaml", "searched.yaml"] {
        place.ok(&["experiment", "create", file, "--detach"]);
    }
    let mut command = Command::new("node");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("integration/hub_page.mjs"));
    command.env("LANG", "en_US.UTF-8").env("PLAYWRIGHT", playwright);
    command.env("URL", format!("http://{}", hub.address()));
    let output = command.output().expect("node");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}{}", said[0], said[1]);
    hub.stop();
    let since = Instant::now();
    while !processes_of(&place).is_empty() {
        assert!(since.elapsed() < PATIENCE, "left: {:?}", processes_of(&place));
        std::thread::sleep(Duration::from_millis(50));
    }
}
