//! Numbers that are normalised by statistics, words of a vocabulary and classes as text: what a model needs besides its
//! weights to mean the same elsewhere.

use salamander::prelude::*;

/// At most four words of the vocabulary, and the bucket of all others.
const CITIES: usize = 5;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.05, min = 0.0)]
    learning_rate: f64,
    /// Inputs of the layer; anything but 6 does not fit.
    #[hparam(default = 6, min = 1)]
    inputs: usize,
}

/// A person, and whether something was bought.
#[derive(Example)]
pub struct Person {
    #[input(normalise = "stats.json")]
    age: f32,
    #[input(vocabulary = "lists/cities.txt", oov = 1)]
    city: String,
    #[label(classes = ["no", "yes"])]
    bought: String,
}

/// One linear layer.
#[derive(Module, Debug)]
pub struct People {
    out: Linear,
}

impl Trial for People {
    const NAME: &str = "people";
    type Hparams = Hp;
    type Example = Person;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self { out: LinearConfig::new(cx.hp.inputs, 2).init(&cx.device) })
    }

    fn forward(&self, batch: &PersonBatch) -> Tensor<2> {
        let city = batch.city.clone().one_hot::<2>(CITIES).float();
        self.out.forward(Tensor::cat(vec![batch.age.clone().unsqueeze_dim(1), city], 1))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PersonBatch) -> Tensor<1> {
        cross_entropy(output, &batch.bought)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PersonBatch) -> Metrics {
        accuracy(output, &batch.bought)
    }
}

/// People of several ages and cities, as CSV: the young and those of Bern buy.
pub fn people_csv(count: u64) -> String {
    let mut text = String::from("age,city,bought\n");
    for i in 0..count {
        let (age, city) = (20 + (i * 37) % 50, ["Bern", "Chur", "Ulm", "Genf"][(i % 4) as usize]);
        let bought = if age < 35 || city == "Bern" { "yes" } else { "no" };
        text.push_str(&format!("{age},{city},{bought}\n"));
    }
    text
}
