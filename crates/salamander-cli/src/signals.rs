//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Signals of a training.
pub(crate) struct Signals {
    pub(crate) stop: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn install() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let terminated = Arc::new(AtomicBool::new(false));
        for (signal, code) in [(SIGINT, 130), (SIGTERM, 143)] {
            // In this order: the handler that ends the process must see the flag of the signal before.
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
                .context("cannot listen for signals")?;
        }
        signal_hook::flag::register(SIGTERM, Arc::clone(&terminated))
            .context("cannot listen for signals")?;
        Ok(Self { stop, terminated })
    }

    pub(crate) fn asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        if self.terminated.load(Ordering::Relaxed) { 143 } else { 130 }
    }
}
