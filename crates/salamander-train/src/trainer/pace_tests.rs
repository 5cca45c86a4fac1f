//! What a trainer shows of itself to those who wait for it, and what it does not wait for.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use salamander_core::elastic::Work;
use salamander_core::optimizer::Optimizer;
use salamander_core::progress::StepCount;
use salamander_net::Fold;

use super::Trainer;
use crate::Error;
use crate::callback::{Callback, Control, StepReport};
use crate::context::Context;
use crate::exchange::{Alone, Entered, Exchange};
use crate::tables::{Finish, StagedRows};
use crate::testing::{Points, TestPoint, setup};
use crate::trial::{BuildError, Trial};

#[derive(Module, Debug)]
struct Line {
    out: Linear,
}

impl Trial for Line {
    const NAME: &'static str = "line";
    type Hparams = ();
    type Example = TestPoint;
    type Output = Tensor<2>;

    fn build(cx: &Context<()>) -> Result<Self, BuildError> {
        Ok(Self { out: LinearConfig::new(2, 1).init(&cx.device) })
    }

    fn forward(&self, batch: &Points) -> Tensor<2> {
        self.out.forward(batch.at.clone())
    }

    fn loss(&self, output: &Tensor<2>, _batch: &Points) -> Tensor<1> {
        output.clone().square().flatten::<1>(0, 1)
    }

    fn optimizer(_: &()) -> impl Into<Optimizer> {
        Optimizer::sgd(0.001)
    }
}

const CSV: &str = "x,y,side\n1,2,0\n2,1,1\n3,1,0\n1,4,1\n2,2,0\n1,1,1\n3,2,0\n2,5,1\n";

/// Four steps and, if there is data for it, four batches of validation in each epoch.
const REST: &str = "entrypoint: line\nhyperparameters: {global_batch_size: 2}\n\
                    reproducibility: {experiment_seed: 1}\n";

/// What is told, in its order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<&'static str>>>);

impl Told {
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

impl Callback for Told {
    fn validation_batch(&mut self) {
        self.tell("validated a batch");
    }
}

/// A member of its own that tells what it would be seen to do.
struct Watched {
    alone: Alone,
    told: Told,
}

impl Exchange for Watched {
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
    let mut setup = setup(folder.path(), CSV, &format!("{REST}max_length: {{epochs: 2}}\n"));
    let data = &mut setup.experiment.settings_mut().data;
    data.validation = data.training.clone();
    let (alone, told) = (Alone::new(Arc::clone(&setup.stop)), Told::default());
    let watched = Box::new(Watched { alone, told: told.clone() });
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(told.clone())];
    let trainer = Trainer::<Line>::new(setup, watched, callbacks).expect("a trainer");
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
    let setup = setup(folder.path(), CSV, &rest);
    let alone = Alone::new(Arc::clone(&setup.stop));
    let (say, said) = channel();
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(SayWhen(StepCount(6), say))];
    let trainer = Trainer::<Line>::new(setup, Box::new(alone), callbacks);
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
