//! Advertisements as the flow `clicks` leaves them: numbers by the statistics of the training part, words by its
//! vocabularies, into embeddings and hidden layers. What [`criteo`](super::criteo) hashes is numbered here.

use salamander::prelude::*;

use super::ranking;
use super::tower::Tower;

/// Numbers of a record.
const NUMBERS: usize = 13;
/// Words of a record that are looked at: those with few values.
const WORDS: usize = 4;

/// What was known about an advertisement, and whether it was clicked.
#[derive(Example)]
pub struct PreparedClick {
    #[input(
        columns = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13"],
        normalise = "stats.json"
    )]
    numbers: [f32; NUMBERS],
    #[input(column = "C6", vocabulary = "vocabulary/C6.txt", oov = 1)]
    c6: String,
    #[input(column = "C9", vocabulary = "vocabulary/C9.txt", oov = 1)]
    c9: String,
    #[input(column = "C14", vocabulary = "vocabulary/C14.txt", oov = 1)]
    c14: String,
    #[input(column = "C17", vocabulary = "vocabulary/C17.txt", oov = 1)]
    c17: String,
    #[label]
    label: u8,
}

impl PreparedClickBatch {
    /// An id for each word, those of a column apart from those of the others.
    fn ids(&self) -> Tensor<2, Int> {
        let words = [&self.c6, &self.c9, &self.c14, &self.c17];
        let id = |(column, word): (usize, &Tensor<1, Int>)| {
            (word.clone() * WORDS as i64 + column as i64).unsqueeze_dim::<2>(1)
        };
        Tensor::cat(words.into_iter().enumerate().map(id).collect(), 1)
    }
}

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.002, min = 0.0, range = 0.0002..=0.02, log)]
    learning_rate: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = vec![32, 16])]
    hidden: Vec<usize>,
}

/// embeddings and numbers - hidden layers - linear.
#[derive(Module, Debug)]
pub struct PreparedClicks {
    words: Table,
    tower: Tower,
    out: Linear,
}

impl Trial for PreparedClicks {
    const NAME: &str = "prepared_clicks";
    type Hparams = Hp;
    type Example = PreparedClick;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = WORDS * hp.dim + NUMBERS;
        Ok(Self {
            words: cx.table("words", hp.dim).normal(0.0, 0.1).build(),
            tower: Tower::new(inputs, &hp.hidden, 0.0, &cx.device),
            out: LinearConfig::new(Tower::outputs(inputs, &hp.hidden), 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PreparedClickBatch) -> Tensor<2> {
        let words = self.words.lookup(&batch.ids()).flatten(1, 2);
        self.out.forward(self.tower.forward(Tensor::cat(vec![words, batch.numbers.clone()], 1)))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PreparedClickBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PreparedClickBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
