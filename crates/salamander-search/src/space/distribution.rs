//! One hyperparameter's values: a range of numbers, a bell curve, or a list.

use salamander_core::seed::Rng;
use serde_json::Value as Json;

use super::numbers::{NumberRange, RangeScale};

/// What a hyperparameter is drawn from.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// A range of numbers.
    NumberRange(NumberRange),
    /// A normal distribution, rounded to multiples if asked for.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        deviation: f64,
        /// What is rounded to.
        round: Option<f64>,
    },
    /// Any of these, each as likely as the others.
    Choice(Vec<Json>),
}

impl Distribution {
    /// The value at a place in `[0, 1)`.
    pub fn at(&self, place: f64) -> Json {
        match self {
            Self::NumberRange(numbers) => numbers.json(numbers.at(place)),
            Self::Normal { mean, deviation, round } => {
                let value = mean + deviation * normal_quantile(place);
                let value = round.map_or(value, |quantum| (value / quantum).round() * quantum);
                Json::from(value)
            }
            Self::Choice(values) => values[self.index(place).unwrap_or(0)].clone(),
        }
    }

    /// The place in `[0, 1)` that gives a value, in the middle of those that do; `None` for one that none gives.
    pub fn place(&self, value: &Json) -> Option<f64> {
        let place = match self {
            Self::NumberRange(range) => {
                let place = range.place(value.as_f64()?);
                // Rounded from within the range, so that what lies at its ends is still in it.
                let near = place.clamp(0.0, BELOW_ONE);
                range.cell(near).map_or(near, |(low, high)| (low + high) / 2.0)
            }
            Self::Normal { mean, deviation, .. } => {
                let away = (value.as_f64()? - mean) / deviation;
                0.5 * libm::erfc(-away / std::f64::consts::SQRT_2)
            }
            Self::Choice(values) => {
                let index = values.iter().position(|known| known == value)?;
                (index as f64 + 0.5) / values.len() as f64
            }
        };
        Some(place.clamp(0.0, BELOW_ONE))
    }

    /// Which of a list's values is at a place.
    pub fn index(&self, place: f64) -> Option<usize> {
        match self {
            Self::Choice(values) => {
                Some(((place * values.len() as f64) as usize).min(values.len() - 1))
            }
            _ => None,
        }
    }

    /// How many values a list has.
    pub fn choices(&self) -> Option<usize> {
        match self {
            Self::Choice(values) => Some(values.len()),
            _ => None,
        }
    }

    /// The places that give the same value as this one; `None` where each has its own.
    pub fn cell(&self, place: f64) -> Option<(f64, f64)> {
        match self {
            Self::NumberRange(numbers) => numbers.cell(place),
            Self::Normal { .. } => None,
            Self::Choice(values) => {
                let (index, all) = (self.index(place)? as f64, values.len() as f64);
                Some((index / all, (index + 1.0) / all))
            }
        }
    }

    /// The values of a grid.
    pub fn grid(&self) -> Result<Vec<Json>, String> {
        match self {
            Self::NumberRange(numbers) => numbers.grid(),
            Self::Normal { .. } => Err("a normal distribution has no grid".to_string()),
            Self::Choice(values) => Ok(values.clone()),
        }
    }

    /// A place not far from this one, as population based training explores: numbers by a fifth of their value (or of
    /// their range, where they are drawn evenly from zero), lists by one to either side.
    pub fn perturbed(&self, place: f64, rng: &mut Rng) -> f64 {
        let up = rng.below(2) == 1;
        let moved = match self {
            Self::Choice(values) => {
                let step = 1.0 / values.len() as f64;
                place + if up { step } else { -step }
            }
            Self::NumberRange(NumberRange { low, high, scale, .. }) => {
                let factor = if up { 1.2 } else { 0.8 };
                match scale {
                    RangeScale::Linear => {
                        let value = low + place * (high - low);
                        (value * factor - low) / (high - low)
                    }
                    RangeScale::Log => {
                        place + libm::log(factor) / (libm::log(*high) - libm::log(*low))
                    }
                    RangeScale::Power(base) => {
                        place + libm::log(factor) / (libm::log(*base) * (high - low))
                    }
                }
            }
            Self::Normal { .. } => place + if up { 0.1 } else { -0.1 },
        };
        let moved = if moved.is_finite() { moved } else { place };
        let moved = moved.clamp(0.0, BELOW_ONE);
        // A step that is smaller than the grain would change nothing, ever.
        match self.cell(place).filter(|(low, high)| (*low..*high).contains(&moved)) {
            Some((_, high)) if up && high < 1.0 => high,
            Some((low, _)) if !up && low > 0.0 => (low - 1e-9).max(0.0),
            _ => moved,
        }
    }

    /// The least and the greatest number, if all values are numbers.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        match self {
            Self::NumberRange(numbers) => Some(numbers.bounds()),
            Self::Normal { .. } => None,
            Self::Choice(values) => {
                let numbers: Option<Vec<f64>> = values.iter().map(Json::as_f64).collect();
                let numbers = numbers?;
                let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                Some((least, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)))
            }
        }
    }

    /// Whether all values are whole numbers.
    pub fn is_integer(&self) -> bool {
        match self {
            Self::NumberRange(numbers) => numbers.integer,
            Self::Normal { .. } => false,
            Self::Choice(values) => values.iter().all(|value| value.is_i64() || value.is_u64()),
        }
    }
}

/// The greatest place.
pub(crate) const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// Where the standard normal distribution has so much of its mass below.
fn normal_quantile(mass: f64) -> f64 {
    let mass = mass.clamp(1e-12, 1.0 - 1e-12);
    let below = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let (mut low, mut high) = (-8.0, 8.0);
    // Bisection: slow and exact, and drawn once per trial.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match below(middle) < mass {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::numbers::Grain;
    use super::*;

    #[test]
    fn a_bell_curve_has_its_quantiles() {
        let check = |mass: f64, expected: f64| {
            assert!((normal_quantile(mass) - expected).abs() < 1e-6, "{mass}");
        };
        check(0.5, 0.0);
        check(0.975, 1.959_963_985);
        check(0.158_655_254, -1.0);
    }

    proptest::proptest! {
        #[test]
        fn a_value_is_found_at_its_place(place in 0.0f64..1.0) {
            let range = |low, high, scale, grain| {
                let integer = matches!(grain, Grain::Step(step) if step == 1.0);
                Distribution::NumberRange(NumberRange { low, high, scale, grain, integer, count: None })
            };
            for distribution in [
                range(-1.0, 3.0, RangeScale::Linear, Grain::Fine),
                range(1e-5, 1e-1, RangeScale::Log, Grain::Fine),
                range(-5.0, -1.0, RangeScale::Power(10.0), Grain::Fine),
                range(1.0, 64.0, RangeScale::Linear, Grain::Step(1.0)),
                range(1.0, 64.0, RangeScale::Log, Grain::Step(1.0)),
                range(1.0, 64.0, RangeScale::Log, Grain::Nearest(1.0)),
                range(0.0, 1.0, RangeScale::Linear, Grain::Round(0.25)),
                Distribution::Normal { mean: 2.0, deviation: 3.0, round: None },
                Distribution::Choice(vec!["a".into(), 2.into()]),
            ] {
                let value = distribution.at(place);
                let again = distribution.at(distribution.place(&value).expect("it was drawn"));
                let near = |a: &Json, b: &Json| match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs().max(1e-6),
                    _ => a == b,
                };
                proptest::prop_assert!(near(&again, &value), "{again} {value} {distribution:?}");
            }
        }
    }

    #[test]
    fn lists_and_small_ranges_always_move_when_perturbed() {
        let numbers = NumberRange {
            low: 1.0,
            high: 4.0,
            scale: RangeScale::Linear,
            grain: Grain::Step(1.0),
            integer: true,
            count: None,
        };
        let choice = Distribution::Choice(vec!["a".into(), "b".into(), "c".into()]);
        for distribution in [Distribution::NumberRange(numbers), choice] {
            let middle = 0.49;
            for seed in 0..20 {
                let moved = distribution.perturbed(middle, &mut Rng::new(seed));
                assert_ne!(distribution.at(moved), distribution.at(middle), "{distribution:?}");
            }
        }
    }
}
