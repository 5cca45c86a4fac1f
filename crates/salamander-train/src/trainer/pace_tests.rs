//! What a trainer shows of itself to those who wait for it, and what it does not wait for.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salamander_core::elastic::Work;
use salamander_core::progress::StepCount;
use salamander_net::Fold;

use super::Trainer;
use crate::Error;
use crate::callback::{Callback, Control, StepReport};
use crate::exchange::{Alone, Entered, Exchange};
use crate::tables::{Finish, StagedRows};
use crate::testing::{EIGHT_POINTS, LinearNet, setup};

/// Four steps and, if there is data for it, four batches of validation in each epoch.
const REST: &str = "entrypoint: net\nhyperparameters: {global_batch_size: 2}\n\
                    reproducibility: {experiment_seed: 1}\n";

/// What is told, in its order.
#[derive(Clone, Default)]
struct Transcript(Arc<Mutex<Vec<&'static str>>>);

impl Transcript {
    fn tell(&self, what: &'static str) {
        self.0.lock().expect("not poisoned").push(what);
    }

    /// What came before each of these, and after it.
    fn around(&self, what: &str) -> Vec<(&'static str, &'static str)> {
        let told = self.0.lock().expect("not poisoned");
        let places = told.windows(3).filter(|place| place[1] == what);
        places.map(|place| (place[0], place[2])).collect()
    }
}

impl Callback for Transcript {
    fn validation_batch(&mut self) {
        self.tell("validated a batch");
    }
}

/// A member of its own that tells what it would be seen to do.
struct ObservedMember {
    alone: Alone,
    told: Transcript,
}

impl Exchange for ObservedMember {
    fn rows(&mut self, seed: u64) -> Result<Box<dyn StagedRows>, Error> {
        self.alone.rows(seed)
    }

    fn enter(&mut self) -> Result<Entered, Error> {
        self.alone.enter()
    }

    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.told.tell("meets");
        self.alone.gather(side)
    }

    fn sum(
        &mut self,
        len: usize,
        fold: &Fold,
        fill: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], Error> {
        self.alone.sum(len, fold, fill)
    }

    fn working(&mut self, work: Work, _records: u64) {
        self.told.tell(work.as_str());
    }

    fn wants_stop(&self) -> bool {
        self.alone.wants_stop()
    }
}

#[test]
fn who_waits_for_others_is_seen_to_wait_and_who_validates_to_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup =
        setup(folder.path(), EIGHT_POINTS, &format!("{REST}max_length: {{epochs: 2}}\n"));
    let data = &mut setup.experiment.settings_mut().data;
    data.validation = data.training.clone();
    let (alone, told) = (Alone::new(Arc::clone(&setup.stop)), Transcript::default());
    let watched = Box::new(ObservedMember { alone, told: told.clone() });
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(told.clone())];
    let trainer = Trainer::<LinearNet<2>>::new(setup, watched, callbacks).expect("a trainer");
    trainer.run().expect("trained");
    // Validations and checkpoints, and the end.
    let meetings = told.around("meets");
    assert!(meetings.len() >= 3, "{meetings:?}");
    assert!(meetings.iter().all(|around| *around == ("exchanging", "computing")), "{meetings:?}");
    let batches = told.around("validated a batch");
    assert_eq!(batches.len(), 8, "four of each epoch");
    assert!(batches.iter().all(|(before, _)| *before == "computing"), "{batches:?}");
    let saves = told.around("idle");
    assert!(!saves.is_empty() && saves.iter().all(|(_, after)| *after == "computing"), "{saves:?}");
}

/// Says when so many steps are done.
struct SayWhen(StepCount, Sender<()>);

impl Callback for SayWhen {
    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        if step.steps == self.0 {
            self.1.send(()).expect("somebody waits");
        }
    }
}

#[test]
fn a_checkpoint_that_is_written_slowly_holds_no_step_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let rest = format!("{REST}max_length: {{epochs: 3}}\nrecovery_period: 0.000001\n");
    let setup = setup(folder.path(), EIGHT_POINTS, &rest);
    let alone = Alone::new(Arc::clone(&setup.stop));
    let (say, said) = channel();
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(SayWhen(StepCount(6), say))];
    let trainer = Trainer::<LinearNet<2>>::new(setup, Box::new(alone), callbacks);
    let mut trainer = trainer.expect("a trainer");
    let slow: Finish = Box::new(move |_| match said.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => Ok(Vec::new()),
        Err(_) => Err(Error::Invalid("no steps were done meanwhile".to_string())),
    });
    let first = trainer.snapshot(crate::checkpoint::id(StepCount(0)), None);
    trainer.checkpoints.save(first, Some(slow)).expect("handed over");
    let outcome = trainer.run().expect("steps go on");
    assert_eq!(outcome.progress.steps, StepCount(12));
}
