//! Ranges of numbers: every kind of them as a function of one number in `[0, 1)`.

use serde_json::{Number, Value as Json};

use super::MOST_POINTS;

/// A range of numbers to draw from.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberRange {
    /// The least value, or the least exponent.
    pub low: f64,
    /// The greatest value, or the greatest exponent.
    pub high: f64,
    /// What is drawn evenly.
    pub scale: RangeScale,
    /// Which values there are between the two.
    pub grain: Grain,
    /// Whether values are whole numbers.
    pub integer: bool,
    /// How many values a grid takes.
    pub count: Option<u64>,
}

/// What is drawn evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RangeScale {
    /// The value.
    Linear,
    /// Its logarithm.
    Log,
    /// The exponent of this base, as in Determined's `log`.
    Power(f64),
}

/// Which values there are between the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grain {
    /// All.
    Fine,
    /// Those that are whole steps from the least, each as likely as the others (Optuna's `step`). In logarithms any
    /// value is drawn and rounded down to one (Ray Tune's whole numbers).
    Step(f64),
    /// Those that are whole steps from the least: in logarithms any value is drawn, from half a step below the least to
    /// half a step above the greatest, and the nearest is taken (Optuna's whole numbers).
    Nearest(f64),
    /// Any value is drawn and rounded to multiples of this (Ray Tune's `q`).
    Round(f64),
}

impl NumberRange {
    /// The value at a place in `[0, 1)`.
    pub fn at(&self, place: f64) -> f64 {
        let value = match (self.grain, self.scale) {
            (Grain::Step(step), RangeScale::Linear) => {
                let steps = self.steps(step);
                let index = (place * steps).floor().min(steps - 1.0);
                return self.low + index * step;
            }
            (Grain::Step(step), _) => {
                let (low, high) = (libm::log(self.low), libm::log(self.high + step));
                let drawn = libm::exp(low + place * (high - low));
                self.low + ((drawn - self.low) / step).floor() * step
            }
            (Grain::Nearest(step), _) => {
                let (low, high) = self.half_a_step_wider(step);
                let drawn = libm::exp(libm::log(low) + place * (libm::log(high) - libm::log(low)));
                self.low + ((drawn - self.low) / step).round() * step
            }
            (_, RangeScale::Linear) => self.low + place * (self.high - self.low),
            (_, RangeScale::Log) => {
                let (low, high) = (libm::log(self.low), libm::log(self.high));
                libm::exp(low + place * (high - low))
            }
            (_, RangeScale::Power(base)) => {
                return libm::pow(base, self.low + place * (self.high - self.low));
            }
        };
        let value = match self.grain {
            Grain::Round(quantum) => (value / quantum).round() * quantum,
            _ => value,
        };
        // Rounding of the last bit must not leave the range.
        value.clamp(self.low, self.high)
    }

    /// The places that give the same value as this one, where there is more than one value per place.
    pub fn cell(&self, place: f64) -> Option<(f64, f64)> {
        let value = self.at(place);
        let (low, high) = match (self.grain, self.scale) {
            (Grain::Fine, _) => return None,
            (Grain::Step(step), RangeScale::Linear) => {
                let steps = self.steps(step);
                let index = ((value - self.low) / step).round();
                (index / steps, (index + 1.0) / steps)
            }
            (Grain::Step(step), _) => {
                let (low, high) = (libm::log(self.low), libm::log(self.high + step));
                let place = |value: f64| (libm::log(value) - low) / (high - low);
                (place(value), place(value + step))
            }
            (Grain::Round(width) | Grain::Nearest(width), _) => {
                (self.place(value - width / 2.0), self.place(value + width / 2.0))
            }
        };
        Some((low.clamp(0.0, 1.0), high.clamp(0.0, 1.0)))
    }

    /// The values of a grid: Determined's, with both ends; without a count all that there are.
    pub fn grid(&self) -> Result<Vec<Json>, String> {
        let count = match (self.count, self.grain) {
            (Some(0), _) => return Err("a count of 0 leaves nothing to try".to_string()),
            (Some(count), _) if self.integer => count.min(self.steps(1.0) as u64),
            (Some(count), _) => count,
            (None, Grain::Step(step) | Grain::Nearest(step) | Grain::Round(step)) => {
                self.steps(step) as u64
            }
            (None, Grain::Fine) => {
                return Err("a grid needs a \"count\" of the values to try".to_string());
            }
        };
        if count > MOST_POINTS as u64 {
            return Err(format!("the grid has more than {MOST_POINTS} points here"));
        }
        let between = |low: f64, high: f64, index: u64| match count {
            1 => (low + high) / 2.0,
            _ => low + index as f64 * (high - low) / (count - 1) as f64,
        };
        let value = |index: u64| match (self.scale, self.grain) {
            (_, Grain::Step(step) | Grain::Nearest(step)) if self.count.is_none() => {
                self.low + index as f64 * step
            }
            (_, Grain::Round(quantum)) => {
                // As they are drawn.
                let value = ((self.low / quantum).round() + index as f64) * quantum;
                value.clamp(self.low, self.high)
            }
            (RangeScale::Power(base), _) => libm::pow(base, between(self.low, self.high, index)),
            // Logarithms would not give the ends back.
            (RangeScale::Log, _) if count > 1 && index == 0 => self.low,
            (RangeScale::Log, _) if count > 1 && index == count - 1 => self.high,
            (RangeScale::Log, _) => {
                libm::exp(between(libm::log(self.low), libm::log(self.high), index))
            }
            (RangeScale::Linear, _) => between(self.low, self.high, index),
        };
        Ok((0..count).map(|index| self.json(value(index))).collect())
    }

    /// The least and the greatest value that can be drawn.
    pub fn bounds(&self) -> (f64, f64) {
        match self.scale {
            RangeScale::Power(base) => (libm::pow(base, self.low), libm::pow(base, self.high)),
            _ => (self.low, self.high),
        }
    }

    /// A value as it is written.
    pub fn json(&self, value: f64) -> Json {
        match self.integer {
            true => Json::from(value.round() as i64),
            false => Number::from_f64(value).map_or(Json::Null, Json::Number),
        }
    }

    /// How many steps there are; the ends belong to them in spite of rounding.
    fn steps(&self, step: f64) -> f64 {
        ((self.high - self.low) / step + 1e-9).floor() + 1.0
    }

    /// What whole numbers are the nearest of.
    fn half_a_step_wider(&self, step: f64) -> (f64, f64) {
        (self.low - step / 2.0, self.high + step / 2.0)
    }

    /// Where a value lies, not bounded to the range: for steps in the middle of those places that give it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let logs = |value: f64, low: f64, high: f64| {
            (libm::log(value.max(low)) - libm::log(low)) / (libm::log(high) - libm::log(low))
        };
        match (self.grain, self.scale) {
            (Grain::Step(step), RangeScale::Linear) => {
                (value - self.low + step / 2.0) / (self.steps(step) * step)
            }
            (Grain::Step(step), _) => logs(value + step / 2.0, self.low, self.high + step),
            (Grain::Nearest(step), _) => {
                let (low, high) = self.half_a_step_wider(step);
                logs(value, low, high)
            }
            _ if self.low == self.high => 0.0,
            (_, RangeScale::Linear) => (value - self.low) / (self.high - self.low),
            (_, RangeScale::Log) => logs(value, self.low, self.high),
            (_, RangeScale::Power(base)) => {
                (libm::log(value) / libm::log(base) - self.low) / (self.high - self.low)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(low: f64, high: f64, scale: RangeScale, grain: Grain) -> NumberRange {
        let integer = matches!(grain, Grain::Step(step) if step == 1.0);
        NumberRange { low, high, scale, grain, integer, count: None }
    }

    fn kinds() -> Vec<NumberRange> {
        vec![
            numbers(-1.0, 3.0, RangeScale::Linear, Grain::Fine),
            numbers(1e-5, 1e-1, RangeScale::Log, Grain::Fine),
            numbers(-5.0, -1.0, RangeScale::Power(10.0), Grain::Fine),
            numbers(1.0, 64.0, RangeScale::Linear, Grain::Step(1.0)),
            numbers(1.0, 64.0, RangeScale::Log, Grain::Step(1.0)),
            numbers(1.0, 64.0, RangeScale::Log, Grain::Nearest(1.0)),
            numbers(0.0, 1.0, RangeScale::Linear, Grain::Step(0.1)),
            numbers(0.0, 1.0, RangeScale::Linear, Grain::Round(0.25)),
            numbers(1.0, 100.0, RangeScale::Log, Grain::Round(1.0)),
        ]
    }

    proptest! {
        #[test]
        fn values_are_in_range_and_cells_hold_their_places(place in 0.0f64..1.0) {
            for numbers in kinds() {
                let value = numbers.at(place);
                let (low, high) = numbers.bounds();
                prop_assert!((low..=high).contains(&value), "{value} of {numbers:?}");
                if let Some((from, to)) = numbers.cell(place) {
                    let near = 1e-9;
                    prop_assert!(from - near <= place && place <= to + near, "{numbers:?}");
                    let middle = numbers.at((from + to) / 2.0);
                    prop_assert!((middle - value).abs() < 1e-9, "{numbers:?}");
                }
            }
        }
    }

    #[test]
    fn steps_are_equally_likely_and_rounding_halves_the_ends() {
        let shares = |numbers: &NumberRange| {
            let mut counts = std::collections::BTreeMap::<String, u32>::new();
            for index in 0..1000 {
                let value = numbers.at((f64::from(index) + 0.5) / 1000.0);
                *counts.entry(format!("{value:.2}")).or_default() += 1;
            }
            counts.into_values().collect::<Vec<u32>>()
        };
        assert_eq!(shares(&numbers(0.0, 1.0, RangeScale::Linear, Grain::Step(0.25))), [200; 5]);
        let rounded = numbers(0.0, 1.0, RangeScale::Linear, Grain::Round(0.25));
        assert_eq!(shares(&rounded), [125, 250, 250, 250, 125]);
        // Of [log 1, log 5) 1 has log 2 of log 5, and of [log 0.5, log 4.5) log 3 of log 9.
        assert_eq!(shares(&numbers(1.0, 4.0, RangeScale::Log, Grain::Step(1.0)))[0], 431);
        assert_eq!(shares(&numbers(1.0, 4.0, RangeScale::Log, Grain::Nearest(1.0)))[0], 500);
    }

    #[test]
    fn a_grid_is_determineds() {
        let check = |numbers: NumberRange, count: Option<u64>, expected: &str| {
            let grid = NumberRange { count, ..numbers }.grid();
            assert_eq!(format!("{:?}", grid.map(Json::from)), expected);
        };
        let int = |low, high| numbers(low, high, RangeScale::Linear, Grain::Step(1.0));
        check(int(1.0, 10.0), Some(1), "Ok(Array [Number(6)])");
        check(int(1.0, 10.0), Some(3), "Ok(Array [Number(1), Number(6), Number(10)])");
        check(int(1.0, 3.0), Some(9), "Ok(Array [Number(1), Number(2), Number(3)])");
        check(int(1.0, 2.0), None, "Ok(Array [Number(1), Number(2)])");
        let double = numbers(0.0, 1.0, RangeScale::Linear, Grain::Fine);
        check(double.clone(), Some(3), "Ok(Array [Number(0.0), Number(0.5), Number(1.0)])");
        check(double, None, "Err(\"a grid needs a \\\"count\\\" of the values to try\")");
        let log = numbers(-3.0, -1.0, RangeScale::Power(10.0), Grain::Fine);
        check(log, Some(1), "Ok(Array [Number(0.01)])");
        let many = Err("the grid has more than 100000 points here".to_string());
        for count in [100_001, u64::MAX] {
            let grid = numbers(0.0, 1.0, RangeScale::Linear, Grain::Fine);
            assert_eq!(NumberRange { count: Some(count), ..grid }.grid(), many);
        }
        assert_eq!(int(-9e15, 9e15).grid(), many);
    }

    #[test]
    fn a_grid_of_logarithms_is_even_in_them_and_one_of_multiples_has_them_all() {
        let check = |numbers: NumberRange, count: Option<u64>, expected: &[f64]| {
            let grid = NumberRange { count, ..numbers }.grid().expect("a grid");
            let values: Vec<f64> = grid.iter().filter_map(Json::as_f64).collect();
            let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b.abs();
            assert!(values.len() == expected.len(), "{values:?}");
            assert!(values.iter().zip(expected).all(is_near), "{values:?}");
        };
        let log = numbers(1e-4, 1e-1, RangeScale::Log, Grain::Fine);
        check(log.clone(), Some(4), &[1e-4, 1e-3, 1e-2, 1e-1]);
        check(NumberRange { high: 1e-2, ..log }, Some(1), &[1e-3]);
        let whole = numbers(1.0, 100.0, RangeScale::Log, Grain::Step(1.0));
        check(whole, Some(3), &[1.0, 10.0, 100.0]);
        check(numbers(1.0, 3.0, RangeScale::Log, Grain::Nearest(1.0)), None, &[1.0, 2.0, 3.0]);
        let multiples = numbers(0.1, 0.4, RangeScale::Linear, Grain::Round(0.1));
        check(multiples, None, &[0.1, 0.2, 0.3, 0.4]);
        let multiples = numbers(0.5, 2.0, RangeScale::Log, Grain::Round(0.5));
        check(multiples, None, &[0.5, 1.0, 1.5, 2.0]);
    }
}
