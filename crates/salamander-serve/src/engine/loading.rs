//! A version is loaded and warmed by a thread of its own, which steps back behind those that answer: on a busy
//! machine a reload takes longer, and nobody who asks waits for it.

use std::sync::Arc;

use crate::model::{Loaded, Source};

/// What a version has to leave to others while it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadingBeside {
    /// Nobody is answered yet.
    Nobody,
    /// Others are in service.
    Others,
}

/// Loads a version, and waits for it.
pub(super) fn load(
    source: &Arc<dyn Source>,
    version: &str,
    beside: LoadingBeside,
) -> Result<Loaded, String> {
    let (source, wanted) = (Arc::clone(source), version.to_string());
    let thread = std::thread::Builder::new().name(format!("load-{version}"));
    let thread = thread.spawn(move || {
        if beside == LoadingBeside::Others {
            step_back();
        }
        source.load(&wanted)
    });
    let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    thread.join().unwrap_or_else(|_| Err("its thread ended while it loaded".to_string()))
}

/// The calling thread gets what others leave of the cores from now on; so do threads that it starts. It cannot come
/// back from there.
pub(super) fn step_back() {
    // Elsewhere it would be the whole process that steps back.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, LEAST_PRIORITY) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

/// The largest niceness: a seventieth of the time where another thread wants all of it.
#[cfg(target_os = "linux")]
const LEAST_PRIORITY: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    struct Panicking;

    impl Source for Panicking {
        fn newest(&self) -> Result<String, String> {
            Ok("1".to_string())
        }

        fn load(&self, _version: &str) -> Result<Loaded, String> {
            panic!("a source that a test made panic")
        }
    }

    #[test]
    fn a_panic_is_a_reason() {
        let source: Arc<dyn Source> = Arc::new(Panicking);
        let reason = load(&source, "1", LoadingBeside::Nobody).err();
        assert_eq!(reason.as_deref(), Some("its thread ended while it loaded"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_thread_that_loads_beside_others_steps_back() {
        use rustix::process::getpriority_process;

        struct Telling;

        impl Source for Telling {
            fn newest(&self) -> Result<String, String> {
                Ok("1".to_string())
            }

            fn load(&self, _version: &str) -> Result<Loaded, String> {
                Err(getpriority_process(None).expect("it is known").to_string())
            }
        }

        let source: Arc<dyn Source> = Arc::new(Telling);
        let own = getpriority_process(None).expect("it is known").to_string();
        assert_eq!(load(&source, "1", LoadingBeside::Nobody).err(), Some(own.clone()));
        let beside = load(&source, "1", LoadingBeside::Others).err();
        assert_eq!(beside, Some(LEAST_PRIORITY.to_string()));
        assert_eq!(getpriority_process(None).expect("it is known").to_string(), own);
    }
}
