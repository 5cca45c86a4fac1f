//! The formulas of all optimizers, each once: plain loops over values, gradients and state.
//!
//! They are inlined into callers that `pulp` compiles for the widest instructions of the machine; a formula rounds in
//! the same places with all of them, so the same description gives the same trajectory everywhere.

use super::{Adagrad, Adam, AdamW, Ftrl, Optimizer, RmsProp, Sgd};

/// One move of some values.
#[derive(Debug)]
pub struct Move<'a, S> {
    /// The rate after the schedule.
    pub rate: f64,
    /// Adam's corrections for the number of this move.
    pub corrections: Corrections,
    /// What is added to a sum of squares before this move; nothing after the first one.
    pub start: f32,
    /// What the gradient is multiplied by.
    pub scale: f32,
    /// The values.
    pub values: &'a mut [f32],
    /// Their gradient.
    pub gradient: &'a [f32],
    /// The slots that [`Optimizer::slots`] names, each as long as the values.
    pub state: S,
}

/// Adam's corrections of a mean and of the root of a mean square that began at zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corrections {
    /// Of the mean.
    pub mean: f32,
    /// Of the root.
    pub root: f32,
}

impl Corrections {
    /// For optimizers that correct nothing.
    pub const NONE: Self = Self { mean: 1.0, root: 1.0 };
}

/// Adam's corrections at a step. The powers of the betas are taken in f64: in f32 the correction of late steps would
/// lose its digits.
#[inline(never)]
pub fn corrections(beta1: f64, beta2: f64, step: u64) -> Corrections {
    let power = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
    Corrections { mean: power(beta1) as f32, root: power(beta2).sqrt() as f32 }
}

/// Where the slots of some values lie.
pub trait Slots<'a> {
    /// The only slot.
    fn one(self) -> &'a mut [f32];
    /// Two slots of this length.
    fn two(self, len: usize) -> [&'a mut [f32]; 2];
    /// Three slots of this length.
    fn three(self, len: usize) -> [&'a mut [f32]; 3];
}

/// One after the other, as in a row of a table.
impl<'a> Slots<'a> for &'a mut [f32] {
    #[inline(always)]
    fn one(self) -> &'a mut [f32] {
        self
    }

    #[inline(always)]
    fn two(self, len: usize) -> [&'a mut [f32]; 2] {
        let (first, second) = self.split_at_mut(len);
        [first, second]
    }

    #[inline(always)]
    fn three(self, len: usize) -> [&'a mut [f32]; 3] {
        let (first, others) = self.split_at_mut(len);
        let (second, third) = others.split_at_mut(len);
        [first, second, third]
    }
}

/// Each in a place of its own.
impl<'a, 'b: 'a> Slots<'a> for &'a mut [&'b mut [f32]] {
    #[inline(always)]
    fn one(self) -> &'a mut [f32] {
        match self {
            [slot] => slot,
            slots => panic!("one slot is needed, not {}", slots.len()),
        }
    }

    #[inline(always)]
    fn two(self, _len: usize) -> [&'a mut [f32]; 2] {
        match self {
            [first, second] => [first, second],
            slots => panic!("two slots are needed, not {}", slots.len()),
        }
    }

    #[inline(always)]
    fn three(self, _len: usize) -> [&'a mut [f32]; 3] {
        match self {
            [first, second, third] => [first, second, third],
            slots => panic!("three slots are needed, not {}", slots.len()),
        }
    }
}

impl Optimizer {
    /// Moves values. Whoever calls it decides by which instructions: see [`Optimizer::update`].
    #[inline(always)]
    pub fn apply<'a, S: Slots<'a>>(&self, row: Move<'a, S>) {
        match self {
            Self::Sgd(o) if o.momentum == 0.0 => plain(o, row),
            // Two loops, so that neither asks for each value.
            Self::Sgd(o) if o.nesterov => sgd::<true, S>(o, row),
            Self::Sgd(o) => sgd::<false, S>(o, row),
            Self::Adagrad(o) => adagrad(o, row),
            Self::Adam(o) if o.amsgrad => amsgrad(o, row),
            Self::Adam(o) => adam(o, row),
            Self::AdamW(o) => adamw(o, row),
            Self::RmsProp(o) => rmsprop(o, row),
            Self::Ftrl(o) => ftrl(o, row),
        }
    }
}

#[inline(always)]
fn plain<S>(o: &Sgd, row: Move<'_, S>) {
    let (rate, decay, scale) = (row.rate as f32, o.weight_decay as f32, row.scale);
    for (p, g) in row.values.iter_mut().zip(row.gradient) {
        *p -= rate * (g * scale + decay * *p);
    }
}

#[inline(always)]
fn sgd<'a, const NESTEROV: bool, S: Slots<'a>>(o: &Sgd, row: Move<'a, S>) {
    let (rate, mu, decay) = (row.rate as f32, o.momentum as f32, o.weight_decay as f32);
    let scale = row.scale;
    for ((p, g), m) in row.values.iter_mut().zip(row.gradient).zip(row.state.one()) {
        let g = g * scale + decay * *p;
        *m = mu * *m + g;
        *p -= rate * if NESTEROV { g + mu * *m } else { *m };
    }
}

#[inline(always)]
fn adagrad<'a, S: Slots<'a>>(o: &Adagrad, row: Move<'a, S>) {
    let (decay, epsilon) = (o.weight_decay as f32, o.epsilon as f32);
    let (rate, scale, start) = (row.rate as f32, row.scale, row.start);
    for ((p, g), s) in row.values.iter_mut().zip(row.gradient).zip(row.state.one()) {
        let g = g * scale + decay * *p;
        *s += start + g * g;
        *p -= rate * g / (s.sqrt() + epsilon);
    }
}

/// What Adam and its kin have in common.
#[derive(Clone, Copy)]
struct Moments {
    b1: f32,
    b2: f32,
    epsilon: f32,
    rate: f32,
    root: f32,
}

impl Moments {
    #[inline(always)]
    fn new<S>(betas: [f64; 2], epsilon: f64, row: &Move<'_, S>) -> Self {
        let Corrections { mean, root } = row.corrections;
        let [b1, b2] = betas.map(|beta| beta as f32);
        Self { b1, b2, epsilon: epsilon as f32, rate: row.rate as f32 / mean, root }
    }

    /// Takes a gradient into the mean and the mean square.
    #[inline(always)]
    fn take(self, g: f32, mean: &mut f32, square: &mut f32) {
        *mean = self.b1 * *mean + (1.0 - self.b1) * g;
        *square = self.b2 * *square + (1.0 - self.b2) * g * g;
    }

    /// How far a value moves.
    #[inline(always)]
    fn step(self, mean: f32, square: f32) -> f32 {
        self.rate * mean / (square.sqrt() / self.root + self.epsilon)
    }
}

#[inline(always)]
fn adam<'a, S: Slots<'a>>(o: &Adam, row: Move<'a, S>) {
    let moments = Moments::new([o.beta1, o.beta2], o.epsilon, &row);
    let (decay, scale) = (o.weight_decay as f32, row.scale);
    let [mean, square] = row.state.two(row.values.len());
    let state = mean.iter_mut().zip(square);
    for ((p, g), (m, v)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        moments.take(g * scale + decay * *p, m, v);
        *p -= moments.step(*m, *v);
    }
}

#[inline(always)]
fn amsgrad<'a, S: Slots<'a>>(o: &Adam, row: Move<'a, S>) {
    let moments = Moments::new([o.beta1, o.beta2], o.epsilon, &row);
    let (decay, scale) = (o.weight_decay as f32, row.scale);
    let [mean, square, greatest] = row.state.three(row.values.len());
    let state = mean.iter_mut().zip(square).zip(greatest);
    for ((p, g), ((m, v), max)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        moments.take(g * scale + decay * *p, m, v);
        *max = max.max(*v);
        *p -= moments.step(*m, *max);
    }
}

#[inline(always)]
fn adamw<'a, S: Slots<'a>>(o: &AdamW, row: Move<'a, S>) {
    let moments = Moments::new([o.beta1, o.beta2], o.epsilon, &row);
    let keep = (1.0 - row.rate * o.weight_decay) as f32;
    let scale = row.scale;
    let [mean, square] = row.state.two(row.values.len());
    let state = mean.iter_mut().zip(square);
    for ((p, g), (m, v)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        moments.take(g * scale, m, v);
        *p = *p * keep - moments.step(*m, *v);
    }
}

/// The coefficients of RMSprop.
#[derive(Clone, Copy)]
struct Rms {
    alpha: f32,
    epsilon: f32,
    decay: f32,
    mu: f32,
    rate: f32,
    scale: f32,
}

/// The state of a value under RMSprop.
struct RmsState<'a> {
    square: &'a mut f32,
    /// With momentum.
    momentum: Option<&'a mut f32>,
    /// Where it is centered.
    mean: Option<&'a mut f32>,
}

impl Rms {
    #[inline(always)]
    fn apply(self, p: &mut f32, g: f32, state: RmsState<'_>) {
        let RmsState { square, momentum, mean } = state;
        let g = g * self.scale + self.decay * *p;
        *square = self.alpha * *square + (1.0 - self.alpha) * g * g;
        let mut variance = *square;
        if let Some(mean) = mean {
            *mean = self.alpha * *mean + (1.0 - self.alpha) * g;
            variance -= *mean * *mean;
        }
        let mut step = g / (variance.max(0.0).sqrt() + self.epsilon);
        if let Some(momentum) = momentum {
            step += self.mu * *momentum;
            *momentum = step;
        }
        *p -= self.rate * step;
    }
}

#[inline(always)]
fn rmsprop<'a, S: Slots<'a>>(o: &RmsProp, row: Move<'a, S>) {
    let rms = Rms {
        alpha: o.alpha as f32,
        epsilon: o.epsilon as f32,
        decay: o.weight_decay as f32,
        mu: o.momentum as f32,
        rate: row.rate as f32,
        scale: row.scale,
    };
    let len = row.values.len();
    let values = row.values.iter_mut().zip(row.gradient);
    match (o.momentum != 0.0, o.centered) {
        (false, false) => {
            for ((p, g), square) in values.zip(row.state.one()) {
                rms.apply(p, *g, RmsState { square, momentum: None, mean: None });
            }
        }
        (true, false) => {
            let [squares, momenta] = row.state.two(len);
            for ((p, g), (square, b)) in values.zip(squares.iter_mut().zip(momenta)) {
                rms.apply(p, *g, RmsState { square, momentum: Some(b), mean: None });
            }
        }
        (false, true) => {
            let [squares, means] = row.state.two(len);
            for ((p, g), (square, m)) in values.zip(squares.iter_mut().zip(means)) {
                rms.apply(p, *g, RmsState { square, momentum: None, mean: Some(m) });
            }
        }
        (true, true) => {
            let [squares, momenta, means] = row.state.three(len);
            let state = squares.iter_mut().zip(momenta).zip(means);
            for ((p, g), ((square, b), m)) in values.zip(state) {
                rms.apply(p, *g, RmsState { square, momentum: Some(b), mean: Some(m) });
            }
        }
    }
}

#[inline(always)]
fn ftrl<'a, S: Slots<'a>>(o: &Ftrl, row: Move<'a, S>) {
    let (rate, beta) = (row.rate as f32, o.beta as f32);
    let (l1, l2, scale, start) = (o.l1 as f32, o.l2 as f32, row.scale, row.start);
    // A schedule may begin or end at zero, where nothing moves and nothing can be divided by.
    if rate == 0.0 {
        return;
    }
    let power = o.learning_rate_power;
    let root = |sum: f32| if power == -0.5 { sum.sqrt() } else { sum.powf(-power as f32) };
    let [sum, linear] = row.state.two(row.values.len());
    let state = sum.iter_mut().zip(linear);
    for ((p, g), (s, z)) in row.values.iter_mut().zip(row.gradient).zip(state) {
        let g = g * scale;
        let before = *s + start;
        *s = before + g * g;
        let now = root(*s);
        *z += g - (now - root(before)) / rate * *p;
        let curvature = (now + beta) / rate + 2.0 * l2;
        *p = if z.abs() > l1 { (l1.copysign(*z) - *z) / curvature } else { 0.0 };
    }
}
