//! Members as threads of the test, each with its own listener, as processes would have.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use salamander_net::tls::Files;
use salamander_net::{
    Cancel, Endpoint, Error, Keys, Listener, Ring, RingOptions, Tls, Token, Transport,
};

/// The transports that a group can be forced to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Shm,
    Tcp,
    Mixed,
    Tls,
}

pub(crate) const WAYS: [Way; 4] = [Way::Shm, Way::Tcp, Way::Mixed, Way::Tls];

/// Listeners that know each other.
pub(crate) struct Group {
    pub(crate) keys: Keys,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) members: Vec<Endpoint>,
    pub(crate) options: RingOptions,
}

impl Group {
    pub(crate) fn new(size: usize, way: Way) -> Self {
        let keys = keys(way);
        let listeners: Vec<Listener> = (0..size).map(|_| listener(&keys)).collect();
        let mut members: Vec<Endpoint> = listeners.iter().map(Listener::endpoint).collect();
        if way == Way::Mixed {
            // Neighbours in pairs on hosts of their own.
            for (rank, member) in members.iter_mut().enumerate() {
                member.host = format!("host-{}", rank / 2);
            }
        }
        Self { keys, listeners, members, options: options(way) }
    }

    /// Runs a member per thread in a generation; what each returned, by rank.
    pub(crate) fn run<T: Send>(
        &self,
        generation: u64,
        member: impl Fn(Ring) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let member = &member;
            let threads: Vec<_> = (0..self.members.len())
                .map(|rank| {
                    scope.spawn(move || {
                        member(self.connect(generation, rank, &Cancel::new()).expect("connected"))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    pub(crate) fn connect(
        &self,
        generation: u64,
        rank: usize,
        cancel: &Cancel,
    ) -> Result<Ring, Error> {
        let listener = &self.listeners[rank];
        Ring::connect(listener, generation, rank, &self.members, &self.options, cancel)
    }
}

pub(crate) fn listener(keys: &Keys) -> Listener {
    let address = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(address, keys.clone()).expect("a listener")
}

/// The keys of a job that nobody else has, but for the certificates.
pub(crate) fn keys(way: Way) -> Keys {
    let tls = (way == Way::Tls).then(|| Tls::load(certificates()).expect("certificates"));
    Keys { tls, ..Keys::from(Token::random().expect("randomness")) }
}

/// A folder with certificates, for all jobs of this process.
pub(crate) fn certificates() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files::create().expect("certificates");
        files.write(&folder.path().join("tls")).expect("written");
        folder
    });
    // Kept for as long as the process lives, whose children read it.
    Box::leak(Box::new(folder.path().join("tls")))
}

pub(crate) fn options(way: Way) -> RingOptions {
    let transport = match way {
        Way::Shm => Transport::Shm,
        Way::Tcp | Way::Tls => Transport::Tcp,
        Way::Mixed => Transport::Auto,
    };
    RingOptions { transport, connect_timeout: Duration::from_secs(180), ..RingOptions::default() }
}

/// A value that depends on who, which and when, with many digits.
pub(crate) fn value(rank: usize, index: usize, round: usize) -> f32 {
    let mixed = (rank * 1_000_003 + index * 7919 + round * 104_729) as u32;
    (mixed.wrapping_mul(0x9e37_79b9) >> 8) as f32 / 1000.0 - 8000.0
}
