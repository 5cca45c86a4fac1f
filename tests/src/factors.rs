//! Users, items and their tags as rows of tables: for exact comparisons between a local run and servers.

use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.05, min = 0.0)]
    learning_rate: f64,
    /// Adagrad everywhere, with which rows move as a parameter does.
    #[hparam(default = false)]
    adagrad: bool,
    /// All tables as ordinary parameters.
    #[hparam(default = false)]
    as_parameters: bool,
}

/// Whether a user liked an item.
#[derive(Example)]
pub struct Rating {
    #[input]
    user: i64,
    #[input]
    item: i64,
    #[input(ragged = "|", hash = 1000)]
    tags: String,
    #[label]
    liked: u8,
}

/// The product of two rows and a linear layer over tags and a small parameter table.
#[derive(Module, Debug)]
pub struct Factors {
    user: Table,
    item: Table,
    tag: Table,
    bias: Table,
    out: Linear,
}

impl Trial for Factors {
    const NAME: &str = "factors";
    type Hparams = Hp;
    type Example = Rating;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let rate = cx.hp.learning_rate;
        let table =
            |name, dim| cx.table(name, dim).vocabulary(1000).on_servers(!cx.hp.as_parameters);
        Ok(Self {
            user: table("user", 8).normal(0.0, 0.1).optimizer(Optimizer::adagrad(rate)).build(),
            item: table("item", 8).uniform(-0.1, 0.1).build(),
            tag: table("tag", 4).xavier().build(),
            bias: cx.table("bias", 4).zeros().vocabulary(50).build(),
            out: LinearConfig::new(16, 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &RatingBatch) -> Tensor<2> {
        let product = self.user.lookup_one(&batch.user) * self.item.lookup_one(&batch.item);
        let tags = self.tag.bag(&batch.tags, Combine::Mean);
        let bias = self.bias.lookup_one(&batch.item);
        self.out.forward(Tensor::cat(vec![product, tags, bias], 1))
    }

    fn loss(&self, output: &Tensor<2>, batch: &RatingBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.liked)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        match hp.adagrad {
            true => Optimizer::from(Optimizer::adagrad(hp.learning_rate)),
            false => Optimizer::adam(hp.learning_rate).into(),
        }
    }

    fn metrics(&self, output: &Tensor<2>, batch: &RatingBatch) -> Metrics {
        auc(output, &batch.liked)
    }
}

/// Ratings that follow from a rule.
pub fn ratings_csv(records: u64) -> String {
    let mut rng = Rng::new(11);
    let mut text = "user,item,tags,liked\n".to_string();
    for _ in 0..records {
        let (user, item) = (rng.below(40), rng.below(50));
        let tags: Vec<String> = (0..rng.below(4)).map(|_| format!("t{}", rng.below(9))).collect();
        let liked = u8::from((user % 5 + item % 7 + tags.len() as u64).is_multiple_of(3));
        text.push_str(&format!("{user},{item},{},{liked}\n", tags.join("|")));
    }
    text
}
