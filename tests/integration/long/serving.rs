//! The batch client, killed at twenty random moments. `SALAMANDER_RECORDS` says over how many records (10,000 unless it
//! does).

#[test]
fn twenty_kills_repeat_and_lose_no_record() {
    let said = std::env::var("SALAMANDER_RECORDS").ok();
    crate::serving::kill_batch_client(
        20,
        said.map_or(10_000, |said| said.parse().expect("a number")),
    );
}
