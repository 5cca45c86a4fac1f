//! A hub and its trials, killed thirty times.

#[test]
fn nothing_is_lost_or_doubled_by_thirty_kills() {
    crate::hub::kill_often(30);
}
