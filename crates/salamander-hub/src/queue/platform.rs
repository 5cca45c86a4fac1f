//! Where experiments train, beside the process that looks after each of them on this machine. A hub knows of no
//! cluster: whoever starts it says what the processes are told, and what has to go with an experiment.

use std::path::Path;

/// A place other than this machine.
pub trait QueuePlatform: Send {
    /// What the command that trains is told of it.
    fn arguments(&self) -> Vec<String>;

    /// Ends what the experiment of a folder has there: its process has gone, and it does not go on. Called again until
    /// it succeeds; the reason is for people.
    fn end(&self, folder: &Path) -> Result<(), String>;
}
