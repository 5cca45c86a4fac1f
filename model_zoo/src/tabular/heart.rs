//! Heart disease (<https://archive.ics.uci.edu/dataset/45/heart+disease>) from numbers, groups of an age and a word, as
//! ElasticDL's zoo has it. `salamander data fetch heart` writes what it reads.

use salamander::prelude::*;

/// Groups of an age.
const AGES: usize = 11;
/// Results of a scan.
const SCANS: usize = 3;
/// Columns of a result's embedding.
const DIM: usize = 8;
/// Numbers of a patient.
const NUMBERS: usize = 11;
/// Means and deviations of the numbers.
const MEANS: [f32; NUMBERS] = [0.68, 3.2, 131.0, 248.0, 0.15, 1.0, 150.0, 0.33, 1.05, 1.6, 0.67];
const DEVIATIONS: [f32; NUMBERS] =
    [0.47, 0.95, 18.0, 51.0, 0.36, 1.0, 23.0, 0.47, 1.15, 0.61, 0.94];

/// A patient, and whether a vessel is narrowed.
#[derive(Example)]
pub struct Patient {
    #[input(
        columns = ["sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca"],
        missing = 0
    )]
    numbers: [f32; NUMBERS],
    #[input(column = "age", discretise = [18, 25, 30, 35, 40, 45, 50, 55, 60, 65])]
    age_group: f32,
    #[input(classes = ["normal", "fixed", "reversible"], missing = "normal")]
    thal: String,
    #[label]
    target: u8,
}

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.003, min = 0.0, range = 0.0003..=0.03, log)]
    learning_rate: f64,
    #[hparam(default = 16, min = 1, range = 4..=64, log)]
    hidden: usize,
    #[hparam(default = 0.01, min = 0.0)]
    weight_decay: f64,
}

/// Embeddings beside numbers, two hidden layers.
#[derive(Module, Debug)]
pub struct Heart {
    ages: Embedding,
    scans: Embedding,
    fc1: Linear,
    fc2: Linear,
    out: Linear,
}

impl Trial for Heart {
    const NAME: &str = "heart";
    type Hparams = Hp;
    type Example = Patient;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hidden = cx.hp.hidden;
        Ok(Self {
            ages: EmbeddingConfig::new(AGES, DIM).init(&cx.device),
            scans: EmbeddingConfig::new(SCANS, DIM).init(&cx.device),
            fc1: LinearConfig::new(NUMBERS + 2 * DIM, hidden).init(&cx.device),
            fc2: LinearConfig::new(hidden, hidden).init(&cx.device),
            out: LinearConfig::new(hidden, 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PatientBatch) -> Tensor<2> {
        let (device, dtype) = (batch.numbers.device(), batch.numbers.dtype());
        let row = |values: [f32; NUMBERS]| Tensor::<2>::from_data([values], &device).cast(dtype);
        let numbers = (batch.numbers.clone() - row(MEANS)) / row(DEVIATIONS);
        let ages = self.ages.rows(batch.age_group.clone());
        let scans = self.scans.rows(batch.thal.clone());
        let x = Tensor::cat(vec![numbers, ages, scans], 1);
        self.out.forward(relu(self.fc2.forward(relu(self.fc1.forward(x)))))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PatientBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.target)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adamw(hp.learning_rate).weight_decay(hp.weight_decay)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PatientBatch) -> Metrics {
        auc(output, &batch.target).and(accuracy(output, &batch.target))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
