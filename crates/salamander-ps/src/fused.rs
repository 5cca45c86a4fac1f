//! Optimizers over one row: values, gradient and state in one pass.
//!
//! The formulas are those of [`salamander_core::optimizer::Optimizer::update`], which tests compare
//! them with, on state that lies beside the row instead of in a vector per slot. They are plain
//! loops, inlined into callers that `pulp` compiles for the widest instructions of the CPU.

use salamander_core::optimizer::{Adagrad, Adam, AdamW, Ftrl, Optimizer, RmsProp, Sgd};

/// Steps whose bias corrections are computed once; rows move thousands of times, and two powers
/// take as long as the rest of a row.
const KNOWN_STEPS: usize = 4096;

/// An optimizer ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Fused {
    optimizer: Optimizer,
    corrections: Vec<(f32, f32)>,
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
        let betas = match &optimizer {
            Optimizer::Adam(o) => Some((o.beta1, o.beta2)),
            Optimizer::AdamW(o) => Some((o.beta1, o.beta2)),
            _ => None,
        };
        let known = |(beta1, beta2)| {
            (0..KNOWN_STEPS as u64).map(|step| corrections(beta1, beta2, step)).collect()
        };
        Self { optimizer, corrections: betas.map_or_else(Vec::new, known) }
    }

    /// Whether it asks how often a row has been moved.
    pub(crate) fn counts_steps(&self) -> bool {
        matches!(self.optimizer, Optimizer::Adam(_) | Optimizer::AdamW(_))
    }

    /// The state of a row that was never moved.
    pub(crate) fn begin(&self, state: &mut [f32]) {
        state.fill(0.0);
        let first = match &self.optimizer {
            Optimizer::Adagrad(o) => o.initial_accumulator,
            Optimizer::Ftrl(o) => o.initial_accumulator,
            _ => return,
        };
        // The first slot of either is the sum of squares.
        let slots = self.optimizer.slots().len();
        let dim = state.len() / slots;
        state[..dim].fill(first as f32);
    }

    #[inline(always)]
    pub(crate) fn apply(&self, row: Move<'_>) {
        match &self.optimizer {
            Optimizer::Sgd(o) if o.momentum == 0.0 => plain(o, row),
            Optimizer::Sgd(o) => sgd(o, row),
            Optimizer::Adagrad(o) => adagrad(o, row),
            Optimizer::Adam(o) if o.amsgrad => {
                amsgrad(o, self.correction(o.beta1, o.beta2, row.step), row);
            }
            Optimizer::Adam(o) => adam(o, self.correction(o.beta1, o.beta2, row.step), row),
            Optimizer::AdamW(o) => adamw(o, self.correction(o.beta1, o.beta2, row.step), row),
            Optimizer::RmsProp(o) => rmsprop(o, row),
            Optimizer::Ftrl(o) => ftrl(o, row),
        }
    }

    #[inline(always)]
    fn correction(&self, beta1: f64, beta2: f64, step: u64) -> (f32, f32) {
        match self.corrections.get(step as usize) {
            Some(known) => *known,
            None => corrections(beta1, beta2, step),
        }
    }
}

/// Powers of the betas in f64: in f32 the correction of late steps would lose its digits.
#[inline(never)]
fn corrections(beta1: f64, beta2: f64, step: u64) -> (f32, f32) {
    let power = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
    (power(beta1) as f32, power(beta2).sqrt() as f32)
}

#[inline(always)]
fn plain(o: &Sgd, row: Move<'_>) {
    let (rate, decay, scale) = (row.rate as f32, o.weight_decay as f32, row.scale);
    for (p, g) in row.values.iter_mut().zip(row.gradient) {
        *p -= rate * (g * scale + decay * *p);
    }
}

#[inline(always)]
fn sgd(o: &Sgd, row: Move<'_>) {
    let (rate, mu, decay) = (row.rate as f32, o.momentum as f32, o.weight_decay as f32);
    let scale = row.scale;
    // Two loops, so that neither asks for each element.
    if o.nesterov {
        for ((p, g), m) in row.values.iter_mut().zip(row.gradient).zip(row.state) {
            let g = g * scale + decay * *p;
            *m = mu * *m + g;
            *p -= rate * (g + mu * *m);
        }
    } else {
        for ((p, g), m) in row.values.iter_mut().zip(row.gradient).zip(row.state) {
            let g = g * scale + decay * *p;
            *m = mu * *m + g;
            *p -= rate * *m;
        }
    }
}

#[inline(always)]
fn adagrad(o: &Adagrad, row: Move<'_>) {
    let (decay, epsilon) = (o.weight_decay as f32, o.epsilon as f32);
    let (rate, scale) = (row.rate as f32, row.scale);
    for ((p, g), s) in row.values.iter_mut().zip(row.gradient).zip(row.state) {
        let g = g * scale + decay * *p;
        *s += g * g;
        *p -= rate * g / (s.sqrt() + epsilon);
    }
}

#[inline(always)]
fn adam(o: &Adam, (first, second): (f32, f32), row: Move<'_>) {
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let (decay, epsilon, scale) = (o.weight_decay as f32, o.epsilon as f32, row.scale);
    let rate = row.rate as f32 / first;
    let (mean, square) = row.state.split_at_mut(row.values.len());
    let state = mean.iter_mut().zip(square);
    for ((p, g), (m, v)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        let g = g * scale + decay * *p;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *p -= rate * *m / (v.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn amsgrad(o: &Adam, (first, second): (f32, f32), row: Move<'_>) {
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let (decay, epsilon, scale) = (o.weight_decay as f32, o.epsilon as f32, row.scale);
    let rate = row.rate as f32 / first;
    let (mean, others) = row.state.split_at_mut(row.values.len());
    let (square, greatest) = others.split_at_mut(row.values.len());
    let state = mean.iter_mut().zip(square).zip(greatest);
    for ((p, g), ((m, v), max)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        let g = g * scale + decay * *p;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *max = max.max(*v);
        *p -= rate * *m / (max.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn adamw(o: &AdamW, (first, second): (f32, f32), row: Move<'_>) {
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let (epsilon, scale) = (o.epsilon as f32, row.scale);
    let keep = (1.0 - row.rate * o.weight_decay) as f32;
    let rate = row.rate as f32 / first;
    let (mean, square) = row.state.split_at_mut(row.values.len());
    let state = mean.iter_mut().zip(square);
    for ((p, g), (m, v)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        let g = g * scale;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *p = *p * keep - rate * *m / (v.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn rmsprop(o: &RmsProp, row: Move<'_>) {
    let Move { values, gradient, state, scale, .. } = row;
    let (alpha, epsilon) = (o.alpha as f32, o.epsilon as f32);
    let (rate, decay, mu) = (row.rate as f32, o.weight_decay as f32, o.momentum as f32);
    let dim = values.len();
    let mean_at = if o.momentum != 0.0 { 2 * dim } else { dim };
    for i in 0..dim {
        let g = gradient[i] * scale + decay * values[i];
        let square = alpha * state[i] + (1.0 - alpha) * g * g;
        state[i] = square;
        let mut variance = square;
        if o.centered {
            let mean = alpha * state[mean_at + i] + (1.0 - alpha) * g;
            state[mean_at + i] = mean;
            variance -= mean * mean;
        }
        let mut step = g / (variance.max(0.0).sqrt() + epsilon);
        if o.momentum != 0.0 {
            step += mu * state[dim + i];
            state[dim + i] = step;
        }
        values[i] -= rate * step;
    }
}

#[inline(always)]
fn ftrl(o: &Ftrl, row: Move<'_>) {
    let (rate, beta, scale) = (row.rate as f32, o.beta as f32, row.scale);
    let (l1, l2) = (o.l1 as f32, o.l2 as f32);
    // A schedule may begin or end at zero, where nothing moves and nothing can be divided by.
    if rate == 0.0 {
        return;
    }
    let power = o.learning_rate_power;
    let root = |sum: f32| if power == -0.5 { sum.sqrt() } else { sum.powf(-power as f32) };
    let (sum, linear) = row.state.split_at_mut(row.values.len());
    let state = sum.iter_mut().zip(linear);
    for ((p, g), (s, z)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        let g = g * scale;
        let before = *s;
        *s = before + g * g;
        let now = root(*s);
        *z += g - (now - root(before)) / rate * *p;
        let curvature = (now + beta) / rate + 2.0 * l2;
        *p = if z.abs() > l1 { (l1.copysign(*z) - *z) / curvature } else { 0.0 };
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
            assert_eq!(fused.correction(0.9, 0.999, step), corrections(0.9, 0.999, step));
        }
    }
}
