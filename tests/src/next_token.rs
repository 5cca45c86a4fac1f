//! A language model of one layer: every place of a sequence has the scores of the token behind it, so that its output
//! has three dimensions.

use salamander::burn::nn::{Embedding, EmbeddingConfig};
use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.1, min = 0.0)]
    learning_rate: f64,
    #[hparam(default = 7)]
    tokens: usize,
}

/// Tokens, and the one behind each of them; below 0 where there is none.
#[derive(Example)]
pub struct Text {
    #[input(columns = ["t0", "t1", "t2", "t3"])]
    tokens: [i64; 4],
    #[label(columns = ["n0", "n1", "n2", "n3"])]
    next: [i64; 4],
}

/// embedding - linear.
#[derive(Module, Debug)]
pub struct NextToken {
    token: Embedding,
    out: Linear,
}

impl Trial for NextToken {
    const NAME: &str = "next_token";
    type Hparams = Hp;
    type Example = Text;
    type Output = Tensor<3>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let tokens = cx.hp.tokens;
        if tokens < 2 {
            return Err(format!("there is nothing to learn from tokens: {tokens}").into());
        }
        Ok(Self {
            token: EmbeddingConfig::new(tokens, 16).init(&cx.device),
            out: LinearConfig::new(16, tokens).init(&cx.device),
        })
    }

    fn forward(&self, batch: &TextBatch) -> Tensor<3> {
        self.out.forward(self.token.forward(batch.tokens.clone()))
    }

    fn loss(&self, output: &Tensor<3>, batch: &TextBatch) -> Tensor<1> {
        token_cross_entropy(output, &batch.next)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<3>, batch: &TextBatch) -> Metrics {
        token_accuracy(output, &batch.next)
    }

    /// The likeliest token of every place.
    fn predict(&self, output: Tensor<3>) -> Tensor<2> {
        output.argmax(2).float().flatten(1, 2)
    }
}

/// Sequences that count modulo seven, the last place without a token behind it.
pub fn counting_csv(records: u64) -> String {
    let mut text = "t0,t1,t2,t3,n0,n1,n2,n3\n".to_string();
    for record in 0..records {
        let at = |place: u64| (record * 5 + place) % 7;
        let [a, b, c, d] = [at(0), at(1), at(2), at(3)];
        text.push_str(&format!("{a},{b},{c},{d},{b},{c},{d},-1\n"));
    }
    text
}
