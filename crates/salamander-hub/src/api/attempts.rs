//! Logins that failed, by the address that they came from: who guesses has to wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Wrong tokens of an address within a minute, after which it has to wait for the next one.
const ALLOWED: u32 = 10;
const MINUTE: i64 = 60_000;
/// Addresses that are remembered.
const REMEMBERED: usize = 4096;

/// Failed logins of the last minute.
#[derive(Debug, Default)]
pub(super) struct LoginAttempts {
    failed: Mutex<HashMap<IpAddr, FailedLogins>>,
}

#[derive(Clone, Copy, Debug)]
struct FailedLogins {
    /// The first one, in milliseconds since 1970.
    since: i64,
    count: u32,
}

impl LoginAttempts {
    /// Milliseconds that an address has to wait before it may try again.
    pub(super) fn wait(&self, from: IpAddr, now: i64) -> Option<i64> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failed.get(&from).filter(|known| known.count >= ALLOWED)?;
        Some(known.since + MINUTE - now).filter(|left| *left > 0)
    }

    /// A token of this address was wrong.
    pub(super) fn failed(&self, from: IpAddr, now: i64) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= REMEMBERED {
            failed.retain(|_, known| known.since + MINUTE > now);
        }
        // Whoever comes from everywhere at once is slowed by argon2 alone.
        if failed.len() >= REMEMBERED {
            failed.clear();
        }
        let known = failed.entry(from).or_insert(FailedLogins { since: now, count: 0 });
        if known.since + MINUTE <= now {
            *known = FailedLogins { since: now, count: 0 };
        }
        known.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_for_the_next_minute_and_nobody_else_does() {
        let attempts = LoginAttempts::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for at in 0..i64::from(ALLOWED) {
            assert_eq!(attempts.wait(one, at), None);
            attempts.failed(one, at);
        }
        assert_eq!(attempts.wait(one, 1000), Some(MINUTE - 1000));
        assert_eq!(attempts.wait(other, 1000), None);
        assert_eq!(attempts.wait(one, MINUTE), None);
        attempts.failed(one, MINUTE);
        assert_eq!(attempts.wait(one, MINUTE), None, "it counts anew");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let attempts = LoginAttempts::default();
        for at in 0..3 * REMEMBERED as u32 {
            attempts.failed(IpAddr::from(at.to_be_bytes()), 0);
        }
        assert!(attempts.failed.lock().expect("alone").len() <= REMEMBERED);
    }
}
