//! Groups of parameters that follow their gradients in their own way: without weight decay, or more slowly.

use salamander_core::optimizer::Optimizer;

/// Parameters, by their paths, for which an optimizer has other numbers.
///
/// ```
/// use salamander::prelude::*;
///
/// let plain = ParamGroup::of(["*.bias", "*.norm.*"]).weight_decay(0.0);
/// let slow = ParamGroup::of(["encoder.*"]).rate(0.1);
/// let pass = Pass::new("train", Optimizer::adamw(0.01)).group(plain).group(slow);
/// let (optimizer, rate) = pass.optimizer_of("encoder.norm.gamma");
/// assert_eq!(rate, 0.1);
/// assert_eq!(optimizer, Optimizer::adamw(0.01).weight_decay(0.0).into());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    paths: Vec<String>,
    rate: f64,
    weight_decay: Option<f64>,
}

impl ParamGroup {
    /// The parameters of these paths, in which `*` stands for anything: `*.bias`.
    pub fn of<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        let paths = paths.into_iter().map(Into::into).collect();
        Self { paths, rate: 1.0, weight_decay: None }
    }

    /// Multiplies the learning rate.
    #[must_use]
    pub fn rate(mut self, factor: f64) -> Self {
        self.rate = factor;
        self
    }

    /// Takes the place of the optimizer's weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }

    /// Whether a parameter belongs to it.
    pub fn covers(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| matches(pattern, path))
    }
}

/// An optimizer as it is for one parameter, and what its rate is multiplied by: every group that covers the parameter
/// has its say, the last one the last word about weight decay.
pub(crate) fn optimizer_of(
    optimizer: Optimizer,
    groups: &[ParamGroup],
    path: &str,
) -> (Optimizer, f64) {
    let own = groups.iter().filter(|group| group.covers(path));
    own.fold((optimizer, 1.0), |(optimizer, rate), group| {
        let optimizer = match group.weight_decay {
            Some(weight_decay) => optimizer.with_weight_decay(weight_decay),
            None => optimizer,
        };
        (optimizer, rate * group.rate)
    })
}

/// Whether a path is as a pattern says.
fn matches(pattern: &str, path: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(left) = path.strip_prefix(first) else { return false };
    // The star takes as little as possible first.
    (0..=left.len()).any(|at| left.get(at..).is_some_and(|left| matches(rest, left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        let check = |pattern: &str, path: &str, expected: bool| {
            assert_eq!(ParamGroup::of([pattern]).covers(path), expected, "{pattern} and {path}");
        };
        check("*.bias", "encoder.layer.0.bias", true);
        check("*.bias", "bias", false);
        check("fc.weight", "fc.weight", true);
        check("fc.weight", "fc.weights", false);
        check("encoder.*.norm.*", "encoder.layer.3.norm.gamma", true);
        check("encoder.layer.1.*", "encoder.layer.11.norm.gamma", false);
        check("*", "", true);
    }

    #[test]
    fn all_groups_of_a_parameter_count() {
        let groups = [
            ParamGroup::of(["a.*"]).rate(0.5),
            ParamGroup::of(["*.bias"]).weight_decay(0.0).rate(0.5),
        ];
        let adam = Optimizer::from(Optimizer::adamw(0.1).weight_decay(0.2));
        assert_eq!(optimizer_of(adam, &groups, "b.weight"), (adam, 1.0));
        assert_eq!(optimizer_of(adam, &groups, "a.weight"), (adam, 0.5));
        let plain = Optimizer::from(Optimizer::adamw(0.1).weight_decay(0.0));
        assert_eq!(optimizer_of(adam, &groups, "a.bias"), (plain, 0.25));
    }
}
