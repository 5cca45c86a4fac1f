//! The page of a folder of runs, for a test or a bench that looks at it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use salamander_hub::ui;

/// Serves a folder for as long as it lives.
pub(crate) struct ServedFolder {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ServedFolder {
    pub(crate) fn start(runs: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, heard) = channel();
        let thread = std::thread::spawn({
            let (runs, stop) = (runs.to_path_buf(), Arc::clone(&stop));
            move || {
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let tell = |address| sender.send(address).expect("somebody waits");
                ui::run(&runs, any, tell, &stop).expect("served");
            }
        });
        let address = heard.recv().expect("an address");
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for ServedFolder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}
