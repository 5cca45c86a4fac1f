//! The books of asynchronous training as the master knows them: what it is told goes to the model's account.

use std::path::{Path, PathBuf};

use anyhow::Result;
use salamander_core::experiment::Experiment;
use salamander_core::plan::MicroBatch;
use salamander_core::push::Checkpoint;
use salamander_master::{Books, Keeping, NamesPlan, Notes};
use salamander_train::asynchronous::{Account, Entered};
use salamander_train::checkpoint::write_atomic;
use salamander_train::device;
use salamander_train::model::Models;
use salamander_train::trainer::Setup;
use serde_json::Value;

/// What the master of an asynchronous run needs to know.
pub(super) fn plan(folder: &Path, experiment: &Experiment, models: &Models) -> Result<NamesPlan> {
    let model = models.find(experiment.model())?;
    let setup = Setup {
        device: device::select(&experiment.device.0)?,
        experiment: experiment.clone(),
        folder: folder.to_path_buf(),
        stop: Default::default(),
    };
    let account = model.account(setup)?;
    Ok(NamesPlan {
        settings: account.settings(),
        validation: account.validation(),
        initial: account.initial(),
        checkpoints: account.checkpoints(),
        books: Box::new(Kept { end: folder.join("end.json"), account }),
    })
}

struct Kept {
    account: Account,
    end: PathBuf,
}

impl Books for Kept {
    fn begin(&mut self, workers: u64) -> Notes {
        notes(self.account.begin(workers))
    }

    fn brief(&self) -> Value {
        self.account.brief()
    }

    fn measured(&mut self, name: MicroBatch, measured: &Value) -> Notes {
        notes(self.account.measured(name, measured))
    }

    fn is_closed(&self, epoch: u64) -> bool {
        self.account.is_closed(epoch)
    }

    fn close(&mut self, epoch: u64, parts: &[Value]) -> Result<Notes, String> {
        self.account.close(epoch, parts).map(notes).map_err(|error| error.to_string())
    }

    fn keep(&mut self, checkpoint: &Checkpoint, files: Vec<PathBuf>) -> Keeping {
        let keeping = self.account.keep(*checkpoint, files);
        Box::new(move || keeping().map_err(|error| error.to_string()))
    }

    fn end(&mut self, interrupted: bool) -> Notes {
        let end = self.account.end(interrupted).to_string();
        if let Err(error) = write_atomic(&self.end, end.as_bytes()) {
            tracing::error!(%error, "the end of the run could not be written down");
        }
        Notes::default()
    }

    fn tick(&mut self) {
        self.account.tick();
    }
}

fn notes(entered: Entered) -> Notes {
    let Entered { reports, save, stop } = entered;
    Notes { reports, save, stop }
}
