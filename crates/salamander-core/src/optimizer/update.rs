//! The formulas: one pass over a parameter, its gradient and its state.
//!
//! Plain loops over slices of equal length, which the compiler turns into the machine's widest SIMD; every strategy
//! runs
//! this code, so the same description gives the same trajectory everywhere.

use pulp::{Arch, NullaryFnOnce};

use super::{Adagrad, Adam, AdamW, Ftrl, Optimizer, RmsProp, Sgd};

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
        let views = &mut views[..count];
        assert!(views.iter().all(|slot| slot.len() == len), "so has the state");
        self.update_wide(update, views);
    }

    /// With the widest instructions that the machine has; a formula rounds in the same places with all of them.
    fn update_wide(&self, update: Update<'_>, slots: &mut [&mut [f32]]) {
        Arch::new().dispatch(Formula { optimizer: self, update, slots });
    }
}

/// A struct and not a closure, because a closure may be called through a function without wide instructions.
struct Formula<'a, 'b> {
    optimizer: &'a Optimizer,
    update: Update<'a>,
    slots: &'a mut [&'b mut [f32]],
}

impl NullaryFnOnce for Formula<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { optimizer, update, slots } = self;
        match (optimizer, slots) {
            (Optimizer::Sgd(o), []) => plain(o, update),
            (Optimizer::Sgd(o), [momentum]) => sgd(o, update, momentum),
            (Optimizer::Adagrad(o), [sum]) => adagrad(o, update, sum),
            (Optimizer::Adam(o), [m, v]) => adam(o, update, m, v),
            (Optimizer::Adam(o), [m, v, max]) => amsgrad(o, update, [m, v, max]),
            (Optimizer::AdamW(o), [m, v]) => adamw(o, update, m, v),
            (Optimizer::Ftrl(o), [sum, linear]) => ftrl(o, update, sum, linear),
            (Optimizer::RmsProp(o), slots) => rmsprop(o, update, slots),
            (other, slots) => panic!("{other:?} does not have {} slots", slots.len()),
        }
    }
}

#[inline(always)]
fn plain(o: &Sgd, update: Update<'_>) {
    let (rate, decay) = (update.learning_rate as f32, o.weight_decay as f32);
    for (p, g) in update.param.iter_mut().zip(update.grad) {
        *p -= rate * (g + decay * *p);
    }
}

#[inline(always)]
fn sgd(o: &Sgd, update: Update<'_>, momentum: &mut [f32]) {
    let (rate, mu, decay) = (update.learning_rate as f32, o.momentum as f32, o.weight_decay as f32);
    for ((p, g), m) in update.param.iter_mut().zip(update.grad).zip(momentum) {
        let g = g + decay * *p;
        *m = mu * *m + g;
        let direction = if o.nesterov { g + mu * *m } else { *m };
        *p -= rate * direction;
    }
}

#[inline(always)]
fn adagrad(o: &Adagrad, update: Update<'_>, sum: &mut [f32]) {
    let (decay, epsilon) = (o.weight_decay as f32, o.epsilon as f32);
    let rate = update.learning_rate as f32;
    // State starts at zero everywhere; the initial value is added at the first step instead.
    let start = if update.step == 1 { o.initial_accumulator as f32 } else { 0.0 };
    for ((p, g), s) in update.param.iter_mut().zip(update.grad).zip(sum) {
        let g = g + decay * *p;
        *s += start + g * g;
        *p -= rate * g / (s.sqrt() + epsilon);
    }
}

/// Adam's corrections of a mean and of the root of a mean square that began at zero. The powers of the betas are taken
/// in f64: in f32 the correction of late steps would lose its digits.
pub fn corrections(beta1: f64, beta2: f64, step: u64) -> (f32, f32) {
    let power = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
    (power(beta1) as f32, power(beta2).sqrt() as f32)
}

#[inline(always)]
fn adam(o: &Adam, update: Update<'_>, mean: &mut [f32], square: &mut [f32]) {
    let (first, second) = corrections(o.beta1, o.beta2, update.step);
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let (decay, epsilon) = (o.weight_decay as f32, o.epsilon as f32);
    let rate = update.learning_rate as f32 / first;
    for (((p, g), m), v) in update.param.iter_mut().zip(update.grad).zip(mean).zip(square) {
        let g = g + decay * *p;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *p -= rate * *m / (v.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn amsgrad(o: &Adam, update: Update<'_>, [mean, square, greatest]: [&mut [f32]; 3]) {
    let (first, second) = corrections(o.beta1, o.beta2, update.step);
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let (decay, epsilon) = (o.weight_decay as f32, o.epsilon as f32);
    let rate = update.learning_rate as f32 / first;
    let state = mean.iter_mut().zip(square.iter_mut()).zip(greatest.iter_mut());
    for ((p, g), ((m, v), max)) in update.param.iter_mut().zip(update.grad).zip(state) {
        let g = g + decay * *p;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *max = max.max(*v);
        *p -= rate * *m / (max.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn adamw(o: &AdamW, update: Update<'_>, mean: &mut [f32], square: &mut [f32]) {
    let (first, second) = corrections(o.beta1, o.beta2, update.step);
    let (b1, b2) = (o.beta1 as f32, o.beta2 as f32);
    let epsilon = o.epsilon as f32;
    let keep = (1.0 - update.learning_rate * o.weight_decay) as f32;
    let rate = update.learning_rate as f32 / first;
    for (((p, g), m), v) in update.param.iter_mut().zip(update.grad).zip(mean).zip(square) {
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *p = *p * keep - rate * *m / (v.sqrt() / second + epsilon);
    }
}

#[inline(always)]
fn rmsprop(o: &RmsProp, update: Update<'_>, slots: &mut [&mut [f32]]) {
    let Update { param, grad, .. } = update;
    let (alpha, epsilon) = (o.alpha as f32, o.epsilon as f32);
    let (rate, decay, mu) = (update.learning_rate as f32, o.weight_decay as f32, o.momentum as f32);
    let mean_at = if o.momentum != 0.0 { 2 } else { 1 };
    for i in 0..param.len() {
        let g = grad[i] + decay * param[i];
        let square = alpha * slots[0][i] + (1.0 - alpha) * g * g;
        slots[0][i] = square;
        let mut variance = square;
        if o.centered {
            let mean = alpha * slots[mean_at][i] + (1.0 - alpha) * g;
            slots[mean_at][i] = mean;
            variance -= mean * mean;
        }
        let mut step = g / (variance.max(0.0).sqrt() + epsilon);
        if o.momentum != 0.0 {
            step += mu * slots[1][i];
            slots[1][i] = step;
        }
        param[i] -= rate * step;
    }
}

#[inline(always)]
fn ftrl(o: &Ftrl, update: Update<'_>, sum: &mut [f32], linear: &mut [f32]) {
    let (rate, beta) = (update.learning_rate as f32, o.beta as f32);
    let (l1, l2) = (o.l1 as f32, o.l2 as f32);
    // A schedule may begin or end at zero, where nothing moves and nothing can be divided by.
    if rate == 0.0 {
        return;
    }
    let start = if update.step == 1 { o.initial_accumulator as f32 } else { 0.0 };
    let root = |sum: f32| match o.learning_rate_power {
        -0.5 => sum.sqrt(),
        power => sum.powf(-power as f32),
    };
    let state = sum.iter_mut().zip(linear);
    for ((p, g), (s, z)) in update.param.iter_mut().zip(update.grad).zip(state) {
        let before = *s + start;
        *s = before + g * g;
        let now = root(*s);
        *z += g - (now - root(before)) / rate * *p;
        let curvature = (now + beta) / rate + 2.0 * l2;
        *p = if z.abs() > l1 { (l1.copysign(*z) - *z) / curvature } else { 0.0 };
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
