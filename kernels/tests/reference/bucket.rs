//! The arithmetic of buckets in the plainest Rust: optimizers, the norm, bf16, rows.

use crate::ops::Rule;

/// Moves a parameter along its gradient, one value after the other.
pub(crate) fn step(rule: &Rule, param: &mut [f32], gradient: &[f32], slots: &mut [Vec<f32>]) {
    for (i, p) in param.iter_mut().enumerate() {
        let old = f64::from(*p);
        let slope = |decay: f32| f64::from(gradient[i]) + f64::from(decay) * old;
        let moved = match *rule {
            Rule::Sgd { rate, decay } => old - f64::from(rate) * slope(decay),
            Rule::Momentum { rate, decay, momentum, nesterov } => {
                let (slope, momentum) = (slope(decay), f64::from(momentum));
                let speed = momentum * f64::from(slots[0][i]) + slope;
                slots[0][i] = speed as f32;
                let along = if nesterov { slope + momentum * speed } else { speed };
                old - f64::from(rate) * along
            }
            Rule::Adam { rate, beta1, beta2, epsilon, decay, keep, root } => {
                let (slope, beta1, beta2) = (slope(decay), f64::from(beta1), f64::from(beta2));
                let mean = beta1 * f64::from(slots[0][i]) + (1.0 - beta1) * slope;
                let square = beta2 * f64::from(slots[1][i]) + (1.0 - beta2) * slope * slope;
                (slots[0][i], slots[1][i]) = (mean as f32, square as f32);
                let divisor = square.sqrt() / f64::from(root) + f64::from(epsilon);
                f64::from(keep) * old - f64::from(rate) * mean / divisor
            }
        };
        *p = moved as f32;
    }
}

/// The norm of all values together.
pub(crate) fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// To nearest, ties to even; what is not a number stays so.
pub(crate) fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// The rows of a table at some places.
pub(crate) fn gather(table: &[f32], places: &[i64], dim: usize) -> Vec<f32> {
    places.iter().flat_map(|place| table[*place as usize * dim..][..dim].to_vec()).collect()
}

/// The gradients of rows added up to those of their table.
pub(crate) fn scatter_add(gradient: &[f32], places: &[i64], rows: usize, dim: usize) -> Vec<f32> {
    let mut sums = vec![0.0; rows * dim];
    for (place, gradient) in places.iter().zip(gradient.chunks_exact(dim)) {
        let sums = &mut sums[*place as usize * dim..][..dim];
        sums.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
    }
    sums
}
