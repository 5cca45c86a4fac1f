//! How long the program keeps memory that it has freed.
#![expect(
    unsafe_code,
    reason = "a setting of mimalloc, which has no safe function for it; measured: see below"
)]

use std::ffi::{OsStr, c_int, c_long};

// Named, so that it is linked.
use mimalloc as _;

/// mimalloc's number for the time after which freed memory goes back to the system (`mi_option_purge_delay`).
const PURGE_DELAY: c_int = 15;

/// Milliseconds. After a second, as it is by default, mimalloc gives back all that is free at that moment, and a
/// residual network spends a seventh of its time on the kernel's clearing the same pages again.
const A_MINUTE: c_long = 60_000;

// SAFETY: as mimalloc's header declares it; it is linked wherever the allocator is.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Subcommands that stay and wait for requests. What loading a model took, three times its weights and more, is not
/// what a request takes: others on the machine need that sooner than in a minute.
const SERVERS: [&str; 3] = ["serve", "hub", "ui"];

/// Keeps freed memory for a minute instead of a second: a step frees as much as it takes.
pub fn keep() {
    // SAFETY: the function takes any number and may be called at any time.
    unsafe { mi_option_set(PURGE_DELAY, A_MINUTE) }
}

/// [`keep`], unless the program's first argument names a server.
pub fn keep_for(command: Option<&OsStr>) {
    if !is_server(command) {
        keep();
    }
}

fn is_server(command: Option<&OsStr>) -> bool {
    command.is_some_and(|command| SERVERS.iter().any(|server| command == *server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_give_memory_back_and_trainers_keep_it() {
        let check = |command: &str, expected: bool| {
            assert_eq!(is_server(Some(OsStr::new(command))), expected, "{command}");
        };
        check("serve", true);
        check("train", false);
        check("worker", false);
        check("serve-check", false);
        assert!(!is_server(None));
    }
}
