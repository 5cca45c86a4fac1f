//! Two inputs, two classes, nothing random after the first weights: runs that differ only in how they
//! are cut must agree, and weights of other programs must give the same outputs.

use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.1, min = 0.0, range = 1e-3..=1.0, log)]
    learning_rate: f64,
    #[hparam(default = 4, min = 1, range = 2..=16)]
    hidden: usize,
    /// A model may refuse what does not fit together.
    #[hparam(default = 1, min = 1)]
    hidden_multiple_of: usize,
    #[hparam(default = None)]
    stop_after: Option<u64>,
}

/// A point and the side it is on.
#[derive(Example)]
pub struct Point {
    #[input(columns = ["x", "y"])]
    at: [f32; 2],
    #[label]
    side: u8,
}

/// linear - ReLU - linear.
#[derive(Module, Debug)]
pub struct Points {
    fc1: Linear,
    fc2: Linear,
}

impl Trial for Points {
    const NAME: &str = "points";
    type Hparams = Hp;
    type Example = Point;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { hidden, hidden_multiple_of, .. } = cx.hp;
        if hidden % hidden_multiple_of != 0 {
            let reason = format!("hidden: {hidden} is no multiple of {hidden_multiple_of}");
            return Err(InvalidHparams::new(reason).into());
        }
        Ok(Self {
            fc1: LinearConfig::new(2, cx.hp.hidden).init(&cx.device),
            fc2: LinearConfig::new(cx.hp.hidden, 2).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PointBatch) -> Tensor<2> {
        self.fc2.forward(relu(self.fc1.forward(batch.at.clone())))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
        cross_entropy(output, &batch.side)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PointBatch) -> Metrics {
        accuracy(output, &batch.side)
    }

    fn callbacks(hp: &Hp) -> Vec<Box<dyn Callback>> {
        let stop = |limit| Box::new(StopAfter { limit, seen: 0 }) as Box<dyn Callback>;
        hp.stop_after.map(stop).into_iter().collect()
    }

    fn class_names() -> Vec<String> {
        vec!["left".to_string(), "right".to_string()]
    }
}

/// Ends training after so many steps that it has seen itself, in this life of the run or before.
struct StopAfter {
    limit: u64,
    seen: u64,
}

impl Callback for StopAfter {
    fn step_end(&mut self, _step: &StepReport, control: &mut Control) {
        self.seen += 1;
        if self.seen == self.limit {
            control.stop();
        }
    }

    fn state(&self) -> Option<(&'static str, serde_json::Value)> {
        Some(("stop_after", self.seen.into()))
    }

    fn restore(&mut self, state: &serde_json::Value) {
        self.seen = state.as_u64().unwrap_or_default();
    }
}
