//! Which optimizers have a kernel on GPUs, and the numbers that it takes.

use salamander_core::optimizer::{Corrections, Optimizer, corrections};
use salamander_kernels::ops::Rule;

/// The formula of a parameter's move number `step`, if there is a kernel for it: the others move on the host.
pub(super) fn of(optimizer: &Optimizer, rate: f64, step: u64) -> Option<Rule> {
    match optimizer {
        Optimizer::Sgd(o) if o.momentum == 0.0 => {
            Some(Rule::Sgd { rate: rate as f32, decay: o.weight_decay as f32 })
        }
        Optimizer::Sgd(o) => Some(Rule::Momentum {
            rate: rate as f32,
            decay: o.weight_decay as f32,
            momentum: o.momentum as f32,
            nesterov: o.nesterov,
        }),
        Optimizer::Adam(o) if !o.amsgrad => {
            let moments = AdamMoments { beta1: o.beta1, beta2: o.beta2, epsilon: o.epsilon };
            Some(moments.rule(rate, step, o.weight_decay as f32, 1.0))
        }
        Optimizer::AdamW(o) => {
            let moments = AdamMoments { beta1: o.beta1, beta2: o.beta2, epsilon: o.epsilon };
            Some(moments.rule(rate, step, 0.0, (1.0 - rate * o.weight_decay) as f32))
        }
        Optimizer::Adam(_) | Optimizer::Adagrad(_) | Optimizer::RmsProp(_) | Optimizer::Ftrl(_) => {
            None
        }
    }
}

/// What Adam and AdamW have in common.
struct AdamMoments {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
}

impl AdamMoments {
    fn rule(&self, rate: f64, step: u64, decay: f32, keep: f32) -> Rule {
        let Corrections { mean: first, root } = corrections(self.beta1, self.beta2, step);
        Rule::Adam {
            rate: rate as f32 / first,
            beta1: self.beta1 as f32,
            beta2: self.beta2 as f32,
            epsilon: self.epsilon as f32,
            decay,
            keep,
            root,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};
    use salamander_core::optimizer::Update;
    use salamander_kernels::ops::{Gradient, step as on_device};

    use super::*;

    /// Ten steps by the kernel's formula and by the one of the host.
    fn check(optimizer: impl Into<Optimizer>) {
        let optimizer = optimizer.into();
        let rate = optimizer.learning_rate();
        let device = Device::flex();
        let mut theirs = [1.0f32, -0.5];
        let mut others = vec![vec![0.0f32; 2]; optimizer.slots().len()];
        let mut ours = Tensor::<1>::from_data(theirs, &device);
        let mut slots = vec![Tensor::<1>::zeros([2], &device); others.len()];
        for step in 1..=10u64 {
            let grad = [(0.3 * step as f32).sin(), (0.7 * step as f32).cos()];
            let rule = of(&optimizer, rate, step).expect("has a kernel");
            assert_eq!(rule.slots(), slots.len(), "{optimizer:?}");
            let bucket = Tensor::<1>::from_data(grad, &device);
            let gradient = Gradient { bucket: &bucket, at: 0, factor: 1.0 };
            ours = on_device(&rule, ours, gradient, &mut slots);
            let update = Update { learning_rate: rate, step, param: &mut theirs, grad: &grad };
            optimizer.update(update, &mut others);
        }
        for (a, b) in ours.into_data().iter::<f32>().zip(&theirs) {
            assert!((a - b).abs() < 1e-5 * (1.0 + b.abs()), "{optimizer:?}: {a} and {b}");
        }
    }

    #[test]
    fn the_formulas_are_those_of_the_host() {
        check(Optimizer::sgd(0.1).weight_decay(0.01));
        check(Optimizer::sgd(0.1).momentum(0.9).weight_decay(0.01));
        check(Optimizer::sgd(0.1).momentum(0.9).nesterov(true));
        check(Optimizer::adam(0.1).weight_decay(0.01));
        check(Optimizer::adamw(0.1).weight_decay(0.1));
    }

    #[test]
    fn the_others_have_none() {
        for optimizer in [
            Optimizer::adam(0.1).amsgrad(true).into(),
            Optimizer::adagrad(0.1).into(),
            Optimizer::rmsprop(0.1).into(),
            Optimizer::from(Optimizer::ftrl(0.1)),
        ] {
            assert_eq!(of(&optimizer, 0.1, 1), None, "{optimizer:?}");
        }
    }
}
