//! Says in the log that connections were refused, but not once per connection: who can open
//! connections must not be able to fill a disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same is logged again after this time.
const QUIET: Duration = Duration::from_secs(60);
/// So many different refusals are told apart; beyond, all count as known.
const REMEMBERED: usize = 256;

/// What was logged, and when; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<HashMap<(String, String), Logged>>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    since: u64,
}

impl Refusals {
    /// Logs that `peer` was refused, unless the same was logged not long ago.
    pub fn log(&self, peer: &str, reason: &str) {
        if let Some(repeated) = self.notice(peer, reason, Instant::now()) {
            tracing::warn!(peer, reason, repeated, "refused a connection");
        }
    }

    /// How many refusals went unsaid, if it is time to say something.
    fn notice(&self, peer: &str, reason: &str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.retain(|_, logged| now.duration_since(logged.at) < QUIET);
        }
        let key = (peer.to_string(), reason.to_string());
        if let Some(logged) = all.get_mut(&key) {
            logged.since += 1;
            if now.duration_since(logged.at) < QUIET {
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.since));
        }
        if all.len() >= REMEMBERED {
            return None;
        }
        all.insert(key, Logged { at: now, since: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_refusal_is_said_once_a_minute() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.notice("a", "token", start), Some(0));
        assert_eq!(refusals.notice("a", "token", start), None);
        assert_eq!(refusals.notice("a", "garbage", start), Some(0));
        assert_eq!(refusals.notice("b", "token", start), Some(0));
        assert_eq!(refusals.notice("a", "token", start + QUIET), Some(2));
    }

    #[test]
    fn many_peers_take_no_memory_without_end() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        for peer in 0..10 * REMEMBERED {
            refusals.notice(&peer.to_string(), "garbage", start);
        }
        assert_eq!(refusals.0.lock().expect("not poisoned").len(), REMEMBERED);
        assert_eq!(refusals.notice("later", "garbage", start + QUIET), Some(0));
    }
}
