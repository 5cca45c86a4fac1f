//! Optimizers over one row: values, gradient and state in one pass.
//!
//! The formulas are those of [`salamander_core::optimizer`], on state that lies beside the row instead of in a vector
//! per slot, inlined into callers that `pulp` compiles for the widest instructions of the CPU.

use salamander_core::optimizer::{self, Corrections, Optimizer, corrections};

/// Steps whose bias corrections are computed once; rows move thousands of times, and two powers
/// take as long as the rest of a row.
const KNOWN_STEPS: usize = 4096;

/// An optimizer ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Fused {
    optimizer: Optimizer,
    /// Nothing for an optimizer that does not ask how often a row has been moved.
    betas: Option<[f64; 2]>,
    known: Vec<Corrections>,
}

/// One move of one row.
#[derive(Debug)]
pub(crate) struct Move<'a> {
    /// The rate after the schedule.
    pub(crate) rate: f64,
    /// How often the row has been moved, this time included; any number for an optimizer that does not
    /// ask.
    pub(crate) step: u64,
    /// What the gradient is multiplied by.
    pub(crate) scale: f32,
    pub(crate) values: &'a mut [f32],
    pub(crate) gradient: &'a [f32],
    /// One slot after the other, each as long as the row.
    pub(crate) state: &'a mut [f32],
}

impl Fused {
    pub(crate) fn new(optimizer: Optimizer) -> Self {
        let betas = optimizer.betas();
        let known = |[beta1, beta2]: [f64; 2]| {
            (0..KNOWN_STEPS as u64).map(|step| corrections(beta1, beta2, step)).collect()
        };
        Self { optimizer, betas, known: betas.map_or_else(Vec::new, known) }
    }

    /// Whether it asks how often a row has been moved.
    pub(crate) fn counts_steps(&self) -> bool {
        self.betas.is_some()
    }

    /// The state of a row that was never moved. The sum of squares, where there is one, is its first slot.
    pub(crate) fn begin(&self, state: &mut [f32]) {
        state.fill(0.0);
        let first = self.optimizer.initial_accumulator();
        if first != 0.0 {
            let dim = state.len() / self.optimizer.slots().len();
            state[..dim].fill(first);
        }
    }

    #[inline(always)]
    pub(crate) fn apply(&self, row: Move<'_>) {
        let Move { rate, step, scale, values, gradient, state } = row;
        let corrections = self.corrections(step);
        // The state began with the sum's first value.
        let start = 0.0;
        let row = optimizer::Move { rate, corrections, start, scale, values, gradient, state };
        self.optimizer.apply(row);
    }

    #[inline(always)]
    fn corrections(&self, step: u64) -> Corrections {
        match self.betas {
            None => Corrections::NONE,
            Some([beta1, beta2]) => match self.known.get(step as usize) {
                Some(known) => *known,
                None => corrections(beta1, beta2, step),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;
    use salamander_core::optimizer::Update;
    use salamander_core::seed::Rng;

    use super::*;

    fn check(optimizer: impl Into<Optimizer>, dim: usize) {
        let optimizer = optimizer.into();
        let fused = Fused::new(optimizer);
        let mut rng = Rng::new(dim as u64);
        let mut draw = |scale: f64| (rng.normal() * scale) as f32;
        let mut expected: Vec<f32> = (0..dim).map(|_| draw(1.0)).collect();
        let mut slots = vec![vec![0.0; dim]; optimizer.slots().len()];
        let mut values = expected.clone();
        let mut state = vec![0.0; dim * slots.len()];
        fused.begin(&mut state);
        for step in 1..=40u64 {
            let rate = optimizer.learning_rate() * if step == 3 { 0.0 } else { 0.9 };
            let sum: Vec<f32> = (0..dim).map(|_| draw(8.0)).collect();
            let grad: Vec<f32> = sum.iter().map(|sum| sum * 0.125).collect();
            let update = Update { learning_rate: rate, step, param: &mut expected, grad: &grad };
            optimizer.update(update, &mut slots);
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    let (values, state) = (&mut values[..], &mut state[..]);
                    fused.apply(Move { rate, step, scale: 0.125, values, gradient: &sum, state });
                },
            );
            let pairs = expected.iter().chain(slots.iter().flatten());
            for (expected, got) in pairs.zip(values.iter().chain(&state)) {
                assert!(
                    (expected - got).abs() <= 1e-6 * (1.0 + expected.abs()),
                    "{optimizer:?}, step {step}: {got}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn rows_move_like_the_reference() {
        for dim in [1, 3, 16, 37] {
            check(Optimizer::sgd(0.1).weight_decay(0.01), dim);
            check(Optimizer::sgd(0.1).momentum(0.9).weight_decay(0.01), dim);
            check(Optimizer::sgd(0.1).momentum(0.9).nesterov(true), dim);
            check(Optimizer::adagrad(0.1).initial_accumulator(0.1).weight_decay(0.01), dim);
            check(Optimizer::adam(0.1).weight_decay(0.01), dim);
            check(Optimizer::adam(0.1).amsgrad(true), dim);
            check(Optimizer::adamw(0.1).weight_decay(0.1), dim);
            check(Optimizer::rmsprop(0.1).weight_decay(0.01), dim);
            check(Optimizer::rmsprop(0.1).momentum(0.9), dim);
            check(Optimizer::rmsprop(0.1).centered(true), dim);
            check(Optimizer::rmsprop(0.1).momentum(0.9).centered(true), dim);
            check(Optimizer::ftrl(0.1).l1(0.01).l2(0.02).beta(0.5), dim);
            check(Optimizer::ftrl(0.1).learning_rate_power(-0.7), dim);
        }
    }

    #[test]
    fn late_steps_have_the_corrections_of_the_formula() {
        let fused = Fused::new(Optimizer::adam(0.1).into());
        for step in [1, 4095, 4096, 1 << 40] {
            assert_eq!(fused.corrections(step), corrections(0.9, 0.999, step));
        }
    }
}
