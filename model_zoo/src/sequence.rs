//! A transformer's encoder (<https://arxiv.org/abs/1706.03762>) that classifies sequences of tokens.

use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    /// Different tokens.
    #[hparam(default = 32, min = 1)]
    tokens: usize,
    /// The longest sequence.
    #[hparam(default = 128, min = 1)]
    places: usize,
    #[hparam(default = 256, min = 1)]
    width: usize,
    #[hparam(default = 8, min = 1)]
    heads: usize,
    #[hparam(default = 4, min = 1)]
    layers: usize,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// Tokens by their numbers, and one of two classes.
#[derive(Example)]
pub struct Sequence {
    #[input(columns = [
        "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13",
        "t14", "t15", "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26",
        "t27", "t28", "t29", "t30", "t31"
    ])]
    tokens: [i64; 32],
    #[label]
    label: u8,
}

/// Tokens and places become rows, layers let rows look at each other, and their mean is classified.
#[derive(Module, Debug)]
pub struct SequenceEncoder {
    token: Embedding,
    place: Embedding,
    encoder: TransformerEncoder,
    norm: LayerNorm,
    out: Linear,
}

impl Trial for SequenceEncoder {
    const NAME: &str = "sequence_encoder";
    type Hparams = Hp;
    type Example = Sequence;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { tokens, places, width, heads, layers, dropout, .. } = cx.hp;
        if width % heads != 0 {
            return Err(format!("{heads} heads cannot share a width of {width} evenly").into());
        }
        let encoder = TransformerEncoderConfig::new(width, 4 * width, heads, layers)
            .with_dropout(dropout)
            .with_norm_first(true);
        Ok(Self {
            token: EmbeddingConfig::new(tokens, width).init(&cx.device),
            place: EmbeddingConfig::new(places, width).init(&cx.device),
            encoder: encoder.init(&cx.device),
            norm: LayerNormConfig::new(width).init(&cx.device),
            out: LinearConfig::new(width, 2).init(&cx.device),
        })
    }

    fn forward(&self, batch: &SequenceBatch) -> Tensor<2> {
        let [records, places] = batch.tokens.dims();
        let numbers = Tensor::<1, Int>::arange(0..places as i64, &batch.tokens.device());
        let rows = self.token.forward(batch.tokens.clone())
            + self.place.forward(numbers.reshape([1, places]));
        let rows = self.encoder.forward(TransformerEncoderInput::new(rows));
        let width = rows.dims()[2];
        self.out.forward(self.norm.forward(rows).mean_dim(1).reshape([records, width]))
    }

    fn loss(&self, output: &Tensor<2>, batch: &SequenceBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adamw(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &SequenceBatch) -> Metrics {
        accuracy(output, &batch.label).and(auc(output, &batch.label))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }
}
