//! Neural collaborative filtering (<https://arxiv.org/abs/1708.05031>), its NeuMF: the product of a user's and a film's
//! factors beside hidden layers on two other embeddings of them. Reads MovieLens' `ratings.dat` and `ratings.csv`, or
//! what `salamander data generate movielens` writes; what is learned is who rates a film with at least 4.

use salamander::prelude::*;

use super::ranking;
use super::tower::Tower;

/// A rating from which on a film counts as liked.
const LIKED: f64 = 4.0;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 0.05, min = 0.0)]
    table_rate: f64,
    #[hparam(default = 8, min = 1)]
    factors: usize,
    #[hparam(default = 16, min = 1)]
    dim: usize,
    #[hparam(default = vec![32, 16])]
    hidden: Vec<usize>,
    #[hparam(default = 0.0, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// A film as a user rated it.
#[derive(Example)]
pub struct Rating {
    #[input(column = "userId")]
    user: i64,
    #[input(column = "movieId")]
    film: i64,
    #[label]
    rating: f32,
}

impl RatingBatch {
    /// 1 where the film was liked.
    pub fn liked(&self) -> Tensor<1, Int> {
        self.rating.clone().greater_equal_elem(LIKED).int()
    }
}

/// Two embeddings of users and two of films.
#[derive(Module, Debug)]
pub struct Ncf {
    user_factors: Table,
    film_factors: Table,
    user: Table,
    film: Table,
    tower: Tower,
    out: Linear,
}

impl Trial for Ncf {
    const NAME: &str = "ncf";
    type Hparams = Hp;
    type Example = Rating;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = 2 * hp.dim;
        let outputs = hp.factors + Tower::outputs(inputs, &hp.hidden);
        let table = |name: &str, dim: usize| {
            let adagrad = Optimizer::adagrad(hp.table_rate);
            cx.table(name, dim).normal(0.0, 0.1).optimizer(adagrad).build()
        };
        Ok(Self {
            user_factors: table("user_factors", hp.factors),
            film_factors: table("film_factors", hp.factors),
            user: table("user", hp.dim),
            film: table("film", hp.dim),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(outputs, 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &RatingBatch) -> Tensor<2> {
        let (user, film) = (&batch.user, &batch.film);
        let product = self.user_factors.lookup_one(user) * self.film_factors.lookup_one(film);
        let both = Tensor::cat(vec![self.user.lookup_one(user), self.film.lookup_one(film)], 1);
        self.out.forward(Tensor::cat(vec![product, self.tower.forward(both)], 1))
    }

    fn loss(&self, output: &Tensor<2>, batch: &RatingBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.liked())
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &RatingBatch) -> Metrics {
        ranking(output, &batch.liked())
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
