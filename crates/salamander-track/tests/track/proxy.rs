//! A way to a server that can be cut, or loses answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;

/// What the way does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// Nothing comes through.
    Cut,
    /// Requests come through, and a third of the answers is lost.
    Lossy,
}

/// Listens for as long as the process lives.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    server: SocketAddr,
    way: AtomicU8,
    answers: AtomicU64,
    lost: AtomicU64,
}

impl Proxy {
    pub(crate) fn start(server: SocketAddr, way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (way, answers, lost) = (AtomicU8::new(way as u8), AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(ProxyState { server, way, answers, lost });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                thread::spawn(move || own.pass(client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn set(&self, way: Way) {
        self.shared.way.store(way as u8, Ordering::SeqCst);
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl ProxyState {
    fn is(&self, way: Way) -> bool {
        self.way.load(Ordering::SeqCst) == way as u8
    }

    /// In no rhythm that calls could fall into step with.
    fn is_unlucky(&self) -> bool {
        let number = self.answers.fetch_add(1, Ordering::SeqCst);
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(3)
    }

    fn pass(self: Arc<Self>, client: TcpStream) {
        if self.is(Way::Cut) {
            return;
        }
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let (mut from, mut to) =
            (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
        let own = Arc::clone(&self);
        let up = thread::spawn(move || {
            own.copy(&mut from, &mut to, false);
        });
        let (mut from, mut to) = (server, client);
        self.copy(&mut from, &mut to, true);
        let _ = up.join();
    }

    fn copy(&self, from: &mut TcpStream, to: &mut TcpStream, answers: bool) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut buffer) {
            let lost = answers && count > 0 && self.is(Way::Lossy) && self.is_unlucky();
            self.lost.fetch_add(u64::from(lost), Ordering::SeqCst);
            if count == 0 || lost || self.is(Way::Cut) || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
