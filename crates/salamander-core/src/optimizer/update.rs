//! Moves of whole parameters: one pass over a parameter, its gradient and its state, with the widest instructions
//! that the machine has.

use pulp::{Arch, NullaryFnOnce};

use super::Optimizer;
use super::formula::{Corrections, Move, corrections};

/// One move of one parameter.
#[derive(Debug)]
pub struct Update<'a> {
    /// The rate after the schedule.
    pub learning_rate: f64,
    /// How often this parameter has been moved, this time included: a parameter that no record used
    /// is left alone, and its bias correction must not run ahead.
    pub step: u64,
    /// The parameter.
    pub param: &'a mut [f32],
    /// Its gradient.
    pub grad: &'a [f32],
}

impl Optimizer {
    /// Moves a parameter, or a piece of one. `slots` are those that [`slots`](Optimizer::slots) names, each as long as
    /// the parameter and zero at first.
    pub fn update<S: AsMut<[f32]>>(&self, update: Update<'_>, slots: &mut [S]) {
        let len = update.param.len();
        assert_eq!(len, update.grad.len(), "a gradient has the shape of its parameter");
        let mut views: [&mut [f32]; 3] = Default::default();
        let count = slots.len();
        assert!(count <= views.len(), "no optimizer has {count} slots");
        for (view, slot) in views.iter_mut().zip(slots) {
            *view = slot.as_mut();
        }
        let slots = &mut views[..count];
        assert!(slots.iter().all(|slot| slot.len() == len), "so has the state");
        Arch::new().dispatch(WideUpdate { optimizer: self, update, slots });
    }

    /// The decay of Adam's means, where corrections depend on the number of moves.
    pub fn betas(&self) -> Option<[f64; 2]> {
        match self {
            Self::Adam(o) => Some([o.beta1, o.beta2]),
            Self::AdamW(o) => Some([o.beta1, o.beta2]),
            _ => None,
        }
    }

    /// What a sum of squares starts with.
    pub fn initial_accumulator(&self) -> f32 {
        match self {
            Self::Adagrad(o) => o.initial_accumulator as f32,
            Self::Ftrl(o) => o.initial_accumulator as f32,
            _ => 0.0,
        }
    }
}

/// A struct and not a closure, because a closure may be called through a function without wide instructions.
struct WideUpdate<'a, 'b> {
    optimizer: &'a Optimizer,
    update: Update<'a>,
    slots: &'a mut [&'b mut [f32]],
}

impl NullaryFnOnce for WideUpdate<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { optimizer, update, slots: state } = self;
        let Update { learning_rate: rate, step, param: values, grad: gradient } = update;
        let corrections =
            optimizer.betas().map_or(Corrections::NONE, |[b1, b2]| corrections(b1, b2, step));
        // State starts at zero everywhere; the initial value is added at the first step instead.
        let start = if step == 1 { optimizer.initial_accumulator() } else { 0.0 };
        optimizer.apply(Move { rate, corrections, start, scale: 1.0, values, gradient, state });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs ten steps on one weight with gradients 0.3, 0.6, ... and returns the weight.
    fn run(optimizer: impl Into<Optimizer>) -> f32 {
        let optimizer = optimizer.into();
        let mut slots = vec![vec![0.0]; optimizer.slots().len()];
        let mut param = [1.0f32];
        for step in 1..=10u64 {
            let grad = [(0.3 * step as f32).sin()];
            let learning_rate = optimizer.learning_rate();
            let update = Update { learning_rate, step, param: &mut param, grad: &grad };
            optimizer.update(update, &mut slots);
        }
        param[0]
    }

    fn check(optimizer: impl Into<Optimizer>, expected: f32) {
        let optimizer = optimizer.into();
        let got = run(optimizer);
        assert!(
            (got - expected).abs() < 1e-5 * (1.0 + expected.abs()),
            "{optimizer:?}: {got}, expected {expected}"
        );
    }

    /// The expected values were printed by PyTorch 2.15 (`benches/peers/optimizers.py`).
    #[test]
    fn trajectories_equal_pytorch() {
        check(Optimizer::sgd(0.1), TORCH[0]);
        check(Optimizer::sgd(0.1).momentum(0.9).weight_decay(0.01), TORCH[1]);
        check(Optimizer::sgd(0.1).momentum(0.9).nesterov(true), TORCH[2]);
        check(Optimizer::adagrad(0.1).initial_accumulator(0.1), TORCH[3]);
        check(Optimizer::adam(0.1).weight_decay(0.01), TORCH[4]);
        check(Optimizer::adam(0.1).amsgrad(true), TORCH[5]);
        check(Optimizer::adamw(0.1).weight_decay(0.1), TORCH[6]);
        check(Optimizer::rmsprop(0.1), TORCH[7]);
        check(Optimizer::rmsprop(0.1).momentum(0.9).centered(true), TORCH[8]);
    }

    const TORCH: [f32; 9] = [
        0.334_595_6,
        -1.930_626_7,
        -2.286_342,
        0.510_998_2,
        0.025_498_226,
        0.026_219_629,
        -0.026_265_115,
        -4.405_317,
        -26.825_363,
    ];

    /// Without regularisation and from zero, FTRL-Proximal is Adagrad (section 3 of the paper).
    #[test]
    fn ftrl_from_zero_is_adagrad() {
        let from_zero = |optimizer: Optimizer| {
            let mut slots = vec![vec![0.0]; optimizer.slots().len()];
            let mut param = [0.0f32];
            for step in 1..=20u64 {
                let grad = [(0.3 * step as f32).sin()];
                let update = Update { learning_rate: 0.1, step, param: &mut param, grad: &grad };
                optimizer.update(update, &mut slots);
            }
            param[0]
        };
        let ftrl = from_zero(Optimizer::ftrl(0.1).into());
        let adagrad = Optimizer::adagrad(0.1).initial_accumulator(0.1).epsilon(0.0);
        let adagrad = from_zero(adagrad.into());
        assert!((ftrl - adagrad).abs() < 1e-5, "{ftrl} and {adagrad}");
    }

    /// The definition: the new weight minimises `g.w + l1 |w| + (l2 + beta / (2 rate)) w^2 +
    /// initial root / (2 rate) w^2 + sum of sigma / 2 (w - w_s)^2`, here in f64 and by ternary search.
    #[test]
    fn ftrl_minimises_its_objective() {
        let (rate, l1, l2, beta) = (0.2, 0.3, 0.05, 0.7);
        let optimizer = Optimizer::from(Optimizer::ftrl(rate).l1(l1).l2(l2).beta(beta));
        let mut slots = vec![vec![0.0]; 2];
        let mut param = [0.5f32];
        let (mut gradients, mut sum, mut past) = (0.0, 0.1f64, Vec::new());
        for step in 1..=20u64 {
            let grad = [(0.7 * step as f32).sin() + 0.2];
            let g = f64::from(grad[0]);
            let before = sum;
            sum += g * g;
            gradients += g;
            past.push(((sum.sqrt() - before.sqrt()) / rate, f64::from(param[0])));
            let objective = |w: f64| {
                let near: f64 = past.iter().map(|(sigma, at)| sigma / 2.0 * (w - at).powi(2)).sum();
                let ridge = l2 + (beta + 0.1f64.sqrt()) / (2.0 * rate);
                gradients * w + l1 * w.abs() + ridge * w * w + near
            };
            let update = Update { learning_rate: rate, step, param: &mut param, grad: &grad };
            optimizer.update(update, &mut slots);
            let (mut low, mut high) = (-10.0, 10.0);
            for _ in 0..200 {
                let (left, right) = ((2.0 * low + high) / 3.0, (low + 2.0 * high) / 3.0);
                if objective(left) < objective(right) { high = right } else { low = left }
            }
            assert!((f64::from(param[0]) - low).abs() < 1e-5, "step {step}: {} {low}", param[0]);
        }
    }

    #[test]
    fn slots_fit_the_formula() {
        for (optimizer, slots) in [
            (Optimizer::from(Optimizer::sgd(1.0)), 0),
            (Optimizer::sgd(1.0).momentum(0.5).into(), 1),
            (Optimizer::adam(1.0).amsgrad(true).into(), 3),
            (Optimizer::rmsprop(1.0).momentum(0.1).centered(true).into(), 3),
        ] {
            assert_eq!(optimizer.slots().len(), slots, "{optimizer:?}");
        }
    }

    #[test]
    fn wrong_numbers_are_named() {
        let wrong = Optimizer::from(Optimizer::sgd(0.1).nesterov(true)).validate();
        assert_eq!(wrong, Err("nesterov needs a momentum above 0".to_string()));
        assert!(Optimizer::from(Optimizer::adam(f64::NAN)).validate().is_err());
        assert!(Optimizer::from(Optimizer::ftrl(0.0)).validate().is_err());
        assert!(Optimizer::from(Optimizer::ftrl(0.1).l1(-1.0)).validate().is_err());
    }
}
