//! A tiny generative adversarial network (<https://arxiv.org/abs/1406.2661>): two optimizers in one
//! model. The generator learns to put points on a ring.

use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.002, min = 0.0, range = 0.0002..=0.02, log)]
    learning_rate: f64,
    #[hparam(default = 8, min = 1)]
    noise: usize,
    #[hparam(default = 32, min = 1)]
    hidden: usize,
}

/// A point of the ring.
#[derive(Example)]
#[example(unlabelled)]
pub struct RingPoint {
    #[input(columns = ["x", "y"])]
    at: [f32; 2],
}

/// Two linear layers with a ReLU between.
#[derive(Module, Debug)]
pub struct Net {
    fc1: Linear,
    fc2: Linear,
}

impl Net {
    fn new([from, hidden, to]: [usize; 3], device: &Device) -> Self {
        Self {
            fc1: LinearConfig::new(from, hidden).init(device),
            fc2: LinearConfig::new(hidden, to).init(device),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc2.forward(relu(self.fc1.forward(x)))
    }
}

/// The generator makes points from noise; the discriminator tells them from real ones.
#[derive(Module, Debug)]
pub struct RingGan {
    generator: Net,
    discriminator: Net,
    noise: usize,
}

impl RingGan {
    /// Points made from the draws of a generator.
    pub fn sample(&self, records: usize, rng: &mut Rng, device: &Device) -> Tensor<2> {
        let noise: Vec<f32> = (0..records * self.noise).map(|_| rng.normal() as f32).collect();
        let noise = Tensor::<1>::from_data(noise.as_slice(), device);
        self.generator.forward(noise.reshape([records, self.noise]))
    }

    /// How sure the discriminator is that points are fake (or real): a loss per point.
    fn judged(&self, points: Tensor<2>, real: bool) -> Tensor<1> {
        let device = points.device();
        let labels = Tensor::<1, Int>::full([points.dims()[0]], i64::from(real), &device);
        binary_cross_entropy(&self.discriminator.forward(points), &labels)
    }
}

impl Trial for RingGan {
    const NAME: &str = "ring_gan";
    type Hparams = Hp;
    type Example = RingPoint;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { noise, hidden, .. } = cx.hp;
        Ok(Self {
            generator: Net::new([noise, hidden, 2], &cx.device),
            discriminator: Net::new([2, hidden, 1], &cx.device),
            noise,
        })
    }

    /// How real a point looks to the discriminator.
    fn forward(&self, batch: &RingPointBatch) -> Tensor<2> {
        self.discriminator.forward(batch.at.clone())
    }

    fn loss(&self, _output: &Tensor<2>, batch: &RingPointBatch) -> Tensor<1> {
        self.judged(batch.at.clone(), true)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate).beta1(0.5)
    }

    fn passes(hp: &Hp) -> Vec<Pass> {
        vec![
            Pass::new("discriminator", Self::optimizer(hp)).only("discriminator"),
            Pass::new("generator", Self::optimizer(hp)).only("generator"),
        ]
    }

    fn train_batch(&self, pass: &Pass, batch: &RingPointBatch, cx: &BatchContext) -> BatchLoss {
        let records = batch.at.dims()[0];
        let made = self.sample(records, &mut cx.rng(), &cx.device);
        let loss = match pass.name {
            "generator" => self.judged(made, true),
            _ => self.judged(made.detach(), false) + self.judged(batch.at.clone(), true),
        };
        BatchLoss { loss, metrics: Metrics::new() }
    }
}
