//! A small forest of regression trees on the unit cube, and how much of its variance each axis explains by itself:
//! functional ANOVA (<https://proceedings.mlr.press/v32/hutter14.html>), exact on each tree.

use salamander_core::seed::{Rng, derive};

/// Trees of a forest: more change the third digit only.
const TREES: u64 = 64;
/// A node with fewer samples is not split.
const SPLIT_FROM: usize = 4;
/// Splits that are tried along an axis; of more samples only so many, evenly spaced.
const MOST_SPLITS: usize = 64;

/// What was measured at a point of the unit cube.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Vec<f64>,
    pub(crate) score: f64,
}

/// How much of the variance each axis explains alone, 0 to 1 each, averaged over the trees; what is missing from 1 in
/// all is explained by several together. `None` where all scores are equal.
pub(crate) fn explained(samples: &[Sample], axes: usize, seed: u64) -> Option<Vec<f64>> {
    let (mut sums, mut counted) = (vec![0.0; axes], 0.0);
    for number in 0..TREES {
        let mut rng = Rng::new(derive(seed, &[number, 0x666f_7265]));
        // Drawn with repetition, as in any random forest.
        let count = samples.len() as u64;
        let drawn: Vec<&Sample> = (0..count).map(|_| &samples[rng.below(count) as usize]).collect();
        let mut leaves = Vec::new();
        grow(drawn, vec![(0.0, 1.0); axes], &mut rng, &mut leaves);
        let mean: f64 = leaves.iter().map(|leaf| leaf.volume() * leaf.value).sum();
        let square = |value: f64| (value - mean) * (value - mean);
        let variance: f64 = leaves.iter().map(|leaf| leaf.volume() * square(leaf.value)).sum();
        if variance <= f64::MIN_POSITIVE {
            continue;
        }
        counted += 1.0;
        for (axis, sum) in sums.iter_mut().enumerate() {
            *sum += marginal_variance(&leaves, axis, mean) / variance;
        }
    }
    (counted > 0.0).then(|| sums.iter().map(|sum| sum / counted).collect())
}

/// A box of the cube and what the tree says there.
struct TreeLeaf {
    bounds: Vec<(f64, f64)>,
    value: f64,
}

impl TreeLeaf {
    fn volume(&self) -> f64 {
        self.bounds.iter().map(|(low, high)| high - low).product()
    }
}

fn grow(samples: Vec<&Sample>, bounds: Vec<(f64, f64)>, rng: &mut Rng, leaves: &mut Vec<TreeLeaf>) {
    let mean = samples.iter().map(|sample| sample.score).sum::<f64>() / samples.len() as f64;
    let split = match samples.len() < SPLIT_FROM {
        true => None,
        false => best_split(&samples, bounds.len(), rng),
    };
    let Some((axis, place)) = split else {
        return leaves.push(TreeLeaf { bounds, value: mean });
    };
    let (left, right): (Vec<_>, Vec<_>) =
        samples.into_iter().partition(|sample| sample.at[axis] < place);
    let (mut below, mut above) = (bounds.clone(), bounds);
    (below[axis].1, above[axis].0) = (place, place);
    grow(left, below, rng, leaves);
    grow(right, above, rng, leaves);
}

/// The split that leaves the least variance, along one of a random five sixths of the axes.
fn best_split(samples: &[&Sample], axes: usize, rng: &mut Rng) -> Option<(usize, f64)> {
    let mut order: Vec<usize> = (0..axes).collect();
    for index in (1..axes).rev() {
        order.swap(index, rng.below(index as u64 + 1) as usize);
    }
    let tried = (axes * 5).div_ceil(6).max(1);
    let total: f64 = samples.iter().map(|sample| sample.score).sum();
    let count = samples.len() as f64;
    let mut best: Option<(f64, usize, f64)> = None;
    for &axis in order.iter().take(tried) {
        let mut along: Vec<(f64, f64)> =
            samples.iter().map(|sample| (sample.at[axis], sample.score)).collect();
        along.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let stride = along.len().div_ceil(MOST_SPLITS);
        let mut sum = 0.0;
        for index in 1..along.len() {
            sum += along[index - 1].1;
            let (before, here) = (along[index - 1].0, along[index].0);
            if before == here || index % stride != 0 {
                continue;
            }
            // Of all splits the one with the least variance within has the most between.
            let left = index as f64;
            let rest = total - sum;
            let gain = sum * sum / left + rest * rest / (count - left) - total * total / count;
            if gain > best.map_or(1e-12 * total.abs().max(1e-12), |(most, ..)| most) {
                best = Some((gain, axis, (before + here) / 2.0));
            }
        }
    }
    best.map(|(_, axis, place)| (axis, place))
}

/// The variance of what the tree says along one axis, averaged over all others.
fn marginal_variance(leaves: &[TreeLeaf], axis: usize, mean: f64) -> f64 {
    let mut cuts: Vec<f64> = leaves.iter().map(|leaf| leaf.bounds[axis].0).collect();
    cuts.push(1.0);
    cuts.sort_unstable_by(f64::total_cmp);
    cuts.dedup();
    let pieces = cuts.windows(2).map(|cut| {
        let middle = (cut[0] + cut[1]) / 2.0;
        let here = leaves.iter().filter(|leaf| {
            let (low, high) = leaf.bounds[axis];
            low <= middle && middle < high
        });
        let marginal: f64 = here
            .map(|leaf| leaf.volume() / (leaf.bounds[axis].1 - leaf.bounds[axis].0) * leaf.value)
            .sum();
        (cut[1] - cut[0]) * (marginal - mean) * (marginal - mean)
    });
    pieces.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u64, score: impl Fn(&[f64]) -> f64) -> Vec<Sample> {
        let mut rng = Rng::new(5);
        let sample = |_| {
            let at: Vec<f64> = (0..3).map(|_| rng.uniform()).collect();
            Sample { score: score(&at), at }
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn axes_explain_what_they_decide() {
        let found = explained(&samples(200, |at| at[0] + 0.5 * at[1]), 3, 1).expect("variance");
        // The variances of the two are 4 to 1.
        assert!((found[0] - 0.8).abs() < 0.08, "{found:?}");
        assert!((found[1] - 0.2).abs() < 0.08, "{found:?}");
        assert!(found[2] < 0.03, "{found:?}");
    }

    #[test]
    fn what_two_axes_decide_together_is_of_neither() {
        let sign = |at: &[f64]| f64::from((at[0] < 0.5) == (at[1] < 0.5));
        let found = explained(&samples(300, sign), 3, 1).expect("variance");
        assert!(found.iter().sum::<f64>() < 0.3, "{found:?}");
        assert_eq!(explained(&samples(50, |_| 1.0), 3, 1), None);
    }
}
