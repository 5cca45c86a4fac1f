//! What an optimizer is: its kind and numbers, with the defaults that PyTorch's users know.

use serde::{Deserialize, Serialize};

/// Optimizers: their numbers besides the learning rate, each with its default and a function that sets it.
macro_rules! optimizers {
    ($($(#[doc = $about:literal])* $kind:ident {
        $($(#[doc = $doc:literal])* $(#[serde $serde:tt])? $name:ident: $type:ty = $default:expr,)*
    })*) => {
        $(
            $(#[doc = $about])*
            #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $kind {
                /// The rate before any schedule.
                pub learning_rate: f64,
                $($(#[doc = $doc])* $(#[serde $serde])? pub $name: $type,)*
            }

            impl $kind {
                fn new(learning_rate: f64) -> Self {
                    Self { learning_rate, $($name: $default,)* }
                }

                $($(#[doc = $doc])* #[must_use] pub fn $name(mut self, $name: $type) -> Self {
                    self.$name = $name;
                    self
                })*
            }

            impl From<$kind> for Optimizer {
                fn from(optimizer: $kind) -> Self {
                    Optimizer::$kind(optimizer)
                }
            }
        )*
    };
}

/// An optimizer and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adagrad, <https://jmlr.org/papers/v12/duchi11a.html>.
    Adagrad(Adagrad),
    /// Adam, <https://arxiv.org/abs/1412.6980>, and AMSGrad, <https://arxiv.org/abs/1904.09237>.
    Adam(Adam),
    /// Adam with decoupled weight decay, <https://arxiv.org/abs/1711.05101>.
    AdamW(AdamW),
    /// RMSprop.
    RmsProp(RmsProp),
    /// FTRL-Proximal, <https://research.google.com/pubs/archive/41159.pdf>.
    Ftrl(Ftrl),
}

impl Optimizer {
    /// Stochastic gradient descent, plain until `momentum` or `nesterov` is set.
    pub fn sgd(learning_rate: f64) -> Sgd {
        Sgd::new(learning_rate)
    }

    /// Adagrad.
    pub fn adagrad(learning_rate: f64) -> Adagrad {
        Adagrad::new(learning_rate)
    }

    /// Adam; `amsgrad(true)` makes it AMSGrad.
    pub fn adam(learning_rate: f64) -> Adam {
        Adam::new(learning_rate)
    }

    /// AdamW.
    pub fn adamw(learning_rate: f64) -> AdamW {
        AdamW::new(learning_rate)
    }

    /// RMSprop.
    pub fn rmsprop(learning_rate: f64) -> RmsProp {
        RmsProp::new(learning_rate)
    }

    /// FTRL-Proximal, with the defaults of TensorFlow, where its users come from.
    pub fn ftrl(learning_rate: f64) -> Ftrl {
        Ftrl::new(learning_rate)
    }

    /// The learning rate before any schedule.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Optimizer::Sgd(o) => o.learning_rate,
            Optimizer::Adagrad(o) => o.learning_rate,
            Optimizer::Adam(o) => o.learning_rate,
            Optimizer::AdamW(o) => o.learning_rate,
            Optimizer::RmsProp(o) => o.learning_rate,
            Optimizer::Ftrl(o) => o.learning_rate,
        }
    }

    /// The same with another weight decay, where it has one.
    #[must_use]
    pub fn with_weight_decay(mut self, weight_decay: f64) -> Self {
        match &mut self {
            Optimizer::Sgd(o) => o.weight_decay = weight_decay,
            Optimizer::Adam(o) => o.weight_decay = weight_decay,
            Optimizer::AdamW(o) => o.weight_decay = weight_decay,
            Optimizer::Adagrad(o) => o.weight_decay = weight_decay,
            // The one has none, the other's regularisers are part of its formula.
            Optimizer::RmsProp(_) | Optimizer::Ftrl(_) => {}
        }
        self
    }

    /// Names of the state kept for each parameter, in the order that
    /// [`update`](Optimizer::update) takes it.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            Optimizer::Sgd(o) if o.momentum == 0.0 => &[],
            Optimizer::Sgd(_) => &["momentum"],
            Optimizer::Adagrad(_) => &["sum"],
            Optimizer::Adam(o) if o.amsgrad => &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
            Optimizer::Adam(_) | Optimizer::AdamW(_) => &["exp_avg", "exp_avg_sq"],
            Optimizer::RmsProp(o) => match (o.momentum != 0.0, o.centered) {
                (false, false) => &["square_avg"],
                (true, false) => &["square_avg", "momentum"],
                (false, true) => &["square_avg", "grad_avg"],
                (true, true) => &["square_avg", "momentum", "grad_avg"],
            },
            Optimizer::Ftrl(_) => &["accumulator", "linear"],
        }
    }

    /// What is wrong with the numbers, if anything.
    pub fn validate(&self) -> Result<(), String> {
        let rate = self.learning_rate();
        if !rate.is_finite() || rate < 0.0 {
            return Err(format!("the learning rate must be a number of at least 0, not {rate}"));
        }
        match self {
            Optimizer::Sgd(o) if o.nesterov && o.momentum <= 0.0 => {
                Err("nesterov needs a momentum above 0".to_string())
            }
            Optimizer::Adam(Adam { beta1, beta2, .. })
            | Optimizer::AdamW(AdamW { beta1, beta2, .. })
                if !(0.0..1.0).contains(beta1) || !(0.0..1.0).contains(beta2) =>
            {
                Err(format!("betas must lie in [0, 1), not {beta1} and {beta2}"))
            }
            Optimizer::Ftrl(o) => o.validate(),
            _ => Ok(()),
        }
    }
}

optimizers! {
    /// Stochastic gradient descent with optional momentum.
    Sgd {
        /// Decay of the running sum of gradients; 0 keeps none.
        momentum: f64 = 0.0,
        /// Whether to look ahead along the momentum.
        nesterov: bool = false,
        /// Share of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    /// Adagrad.
    Adagrad {
        /// Where the sum of squares starts.
        initial_accumulator: f64 = 0.0,
        /// Added to the denominator.
        epsilon: f64 = 1e-10,
        /// Share of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    /// Adam and AMSGrad.
    Adam {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9,
        /// Decay of the mean of squares.
        beta2: f64 = 0.999,
        /// Added to the denominator.
        epsilon: f64 = 1e-8,
        /// Share of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
        /// Whether to divide by the greatest mean of squares so far.
        amsgrad: bool = false,
    }
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9,
        /// Decay of the mean of squares.
        beta2: f64 = 0.999,
        /// Added to the denominator.
        epsilon: f64 = 1e-8,
        /// Shrinks the parameter by this share of the learning rate.
        weight_decay: f64 = 0.01,
    }
    /// RMSprop.
    RmsProp {
        /// Decay of the mean of squares.
        alpha: f64 = 0.99,
        /// Added to the denominator.
        epsilon: f64 = 1e-8,
        /// Decay of the running sum of steps; 0 keeps none.
        momentum: f64 = 0.0,
        /// Whether to divide by the variance rather than the mean of squares.
        centered: bool = false,
        /// Share of the parameter that is added to its gradient.
        weight_decay: f64 = 0.0,
    }
    /// FTRL-Proximal. The long names that TensorFlow and ElasticDL use are understood in files too.
    Ftrl {
        /// How the rate falls with the sum of squares: -0.5 is its inverse root, 0 keeps it.
        #[serde(default = "inverse_root")]
        learning_rate_power: f64 = inverse_root(),
        /// Where the sum of squares starts.
        #[serde(default = "tenth", alias = "initial_accumulator_value")]
        initial_accumulator: f64 = tenth(),
        /// Weight of the absolute values: parameters are exactly zero whose gradients do not outweigh it.
        #[serde(default, alias = "l1_regularization_strength")]
        l1: f64 = 0.0,
        /// Weight of the squares, which shrinks parameters.
        #[serde(default, alias = "l2_regularization_strength")]
        l2: f64 = 0.0,
        /// The paper's beta, added to the root of the sum of squares.
        #[serde(default)]
        beta: f64 = 0.0,
    }
}

impl Ftrl {
    fn validate(&self) -> Result<(), String> {
        let Ftrl { learning_rate, learning_rate_power, initial_accumulator, l1, l2, beta } = *self;
        if learning_rate <= 0.0 {
            return Err(format!("ftrl divides by the learning rate, which is {learning_rate}"));
        }
        if learning_rate_power.is_nan() || learning_rate_power > 0.0 {
            return Err(format!(
                "learning_rate_power must be at most 0, not {learning_rate_power}"
            ));
        }
        let wrong = [initial_accumulator, l1, l2, beta]
            .into_iter()
            .find(|value| value.is_nan() || *value < 0.0);
        wrong.map_or(Ok(()), |value| {
            Err(format!("initial_accumulator, l1, l2 and beta must be at least 0, not {value}"))
        })
    }
}

fn inverse_root() -> f64 {
    -0.5
}

fn tenth() -> f64 {
    0.1
}
