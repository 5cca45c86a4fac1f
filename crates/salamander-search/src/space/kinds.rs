//! The names that distributions go by: Determined's, Ray Tune's and Optuna's, each with its own meaning.

use salamander_core::yaml::{Error, Node, Value, from_node};

use super::distribution::Distribution;
use super::numbers::{Grain, NumberRange, RangeScale};

/// A kind of distribution: its name and its arguments, in the order of the library that it is from.
pub(crate) struct DistributionKind {
    pub(crate) name: &'static str,
    arguments: &'static [&'static str],
    make: Make,
}

type Make = fn(&Arguments<'_>) -> Result<Distribution, Error>;

const fn kind(
    name: &'static str,
    arguments: &'static [&'static str],
    make: Make,
) -> DistributionKind {
    DistributionKind { name, arguments, make }
}

/// Determined's, which are written `{type: NAME, ..}`.
pub(crate) const DETERMINED: [DistributionKind; 4] = [
    kind("int", &["minval", "maxval", "count"], determined_int),
    kind("double", &["minval", "maxval", "count"], determined_double),
    kind("log", &["minval", "maxval", "count", "base"], determined_log),
    kind("categorical", &["vals"], |all| all.choice("vals")),
];

/// Ray Tune's and Optuna's, which are written `{NAME: {..}}`, `{NAME: [..]}` or `{type: NAME, ..}`.
pub(crate) const OTHERS: [DistributionKind; 20] = [
    kind("choice", &["categories"], |all| all.choice("categories")),
    kind("grid_search", &["values"], |all| all.choice("values")),
    kind("uniform", &["lower", "upper", "count"], uniform),
    kind("quniform", &["lower", "upper", "q"], uniform),
    kind("loguniform", &["lower", "upper", "base", "count"], |all| {
        ray(all, RangeScale::Log, false)
    }),
    kind("qloguniform", &["lower", "upper", "q", "base"], |all| ray(all, RangeScale::Log, false)),
    kind("randint", &["lower", "upper", "count"], |all| ray(all, RangeScale::Linear, true)),
    kind("qrandint", &["lower", "upper", "q"], |all| ray(all, RangeScale::Linear, true)),
    kind("lograndint", &["lower", "upper", "base", "count"], |all| ray(all, RangeScale::Log, true)),
    kind("qlograndint", &["lower", "upper", "q", "base"], |all| ray(all, RangeScale::Log, true)),
    kind("randn", &["mean", "sd"], normal),
    kind("qrandn", &["mean", "sd", "q"], normal),
    kind("suggest_float", &["low", "high", "step", "log"], optuna_float),
    kind("float", &["low", "high", "step", "log"], optuna_float),
    kind("suggest_uniform", &["low", "high"], optuna_float),
    kind("suggest_loguniform", &["low", "high"], |all| all.optuna(true, false)),
    kind("suggest_discrete_uniform", &["low", "high", "q"], optuna_float),
    kind("suggest_int", &["low", "high", "step", "log"], optuna_int),
    kind("suggest_categorical", &["choices"], |all| all.choice("choices")),
    // Optuna's own `int`; Determined's has a `type`.
    kind("int", &["low", "high", "step", "log"], optuna_int),
];

impl DistributionKind {
    /// Reads the arguments: by name, in order, or the one list that is its own argument.
    pub(crate) fn read(&self, node: &Node, besides: &[&str]) -> Result<Distribution, Error> {
        let mut given: Vec<(&str, &Node)> = Vec::new();
        match &node.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let name = key.name.as_str();
                    if besides.contains(&name) {
                        continue;
                    }
                    let known = self.arguments.iter().find(|known| **known == name);
                    let known = known.ok_or_else(|| {
                        let names = self.arguments.iter().chain(besides).copied();
                        Error::unknown_field(name, names).or_at(&key.place)
                    })?;
                    given.push((known, value));
                }
            }
            Value::List(_) if self.arguments.len() == 1 => given.push((self.arguments[0], node)),
            Value::List(items) if items.len() <= self.arguments.len() => {
                given.extend(self.arguments.iter().copied().zip(items));
            }
            _ => {
                let message = format!("{} takes {}", self.name, self.arguments.join(", "));
                return Err(Error::at(&node.place, message));
            }
        }
        (self.make)(&Arguments { kind: self.name, node, given })
    }
}

/// The arguments of one distribution.
struct Arguments<'a> {
    kind: &'static str,
    node: &'a Node,
    given: Vec<(&'a str, &'a Node)>,
}

impl Arguments<'_> {
    fn get(&self, name: &str) -> Option<&Node> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, node)| *node)
    }

    fn optional<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let read = |node: &Node| from_node(node).map_err(|error| error.within(name));
        self.get(name).map(read).transpose()
    }

    fn number(&self, name: &str) -> Result<f64, Error> {
        let number: f64 = self.optional(name)?.ok_or_else(|| {
            Error::at(&self.node.place, format!("{} needs \"{name}\"", self.kind))
        })?;
        match number.is_finite() {
            true => Ok(number),
            false => Err(self.wrong(name, "must be a finite number")),
        }
    }

    fn whole(&self, name: &str) -> Result<f64, Error> {
        let number = self.number(name)?;
        // Beyond this not every whole number is a double.
        match number.fract() == 0.0 && number.abs() <= 9e15 {
            true => Ok(number),
            false => Err(self.wrong(name, "must be a whole number")),
        }
    }

    fn wrong(&self, name: &str, message: &str) -> Error {
        let place = &self.get(name).unwrap_or(self.node).place;
        Error::at(place, message).within(name)
    }

    fn choice(&self, name: &str) -> Result<Distribution, Error> {
        match self.get(name).map(|node| &node.value) {
            Some(Value::List(items)) if !items.is_empty() => {
                Ok(Distribution::Choice(items.iter().map(Node::to_json).collect()))
            }
            _ => Err(self.wrong(name, "write a list of the values to try")),
        }
    }

    /// A step or a quantum, which is above zero.
    fn grain(&self, name: &str) -> Result<Option<f64>, Error> {
        match self.optional::<f64>(name)? {
            Some(grain) if !(grain > 0.0 && grain.is_finite()) => {
                Err(self.wrong(name, "must be above 0"))
            }
            grain => Ok(grain),
        }
    }

    fn numbers(&self, names: [&str; 2], numbers: NumberRange) -> Result<Distribution, Error> {
        let [low_name, high_name] = names;
        let numbers = NumberRange { count: self.optional("count")?, ..numbers };
        if numbers.low > numbers.high {
            let message = format!("{} is above {high_name} {}", numbers.low, numbers.high);
            return Err(self.wrong(low_name, &message));
        }
        if numbers.scale == RangeScale::Log && numbers.low <= 0.0 {
            return Err(self.wrong(low_name, "a logarithmic range begins above 0"));
        }
        Ok(Distribution::NumberRange(numbers))
    }

    fn optuna(&self, log: bool, integer: bool) -> Result<Distribution, Error> {
        let log = self.optional("log")?.unwrap_or(log);
        let step = self.grain("step")?.or(self.grain("q")?);
        if log && step.is_some_and(|step| !integer || step != 1.0) {
            return Err(self.wrong("step", "with log there is no step"));
        }
        let ends = |name| if integer { self.whole(name) } else { self.number(name) };
        let grain = match step.or(integer.then_some(1.0)) {
            Some(step) if log => Grain::Nearest(step),
            Some(step) => Grain::Step(step),
            None => Grain::Fine,
        };
        let scale = if log { RangeScale::Log } else { RangeScale::Linear };
        let (low, high) = (ends("low")?, ends("high")?);
        let numbers = NumberRange { low, high, scale, grain, integer, count: None };
        self.numbers(["low", "high"], numbers)
    }
}

fn determined_int(all: &Arguments<'_>) -> Result<Distribution, Error> {
    let (low, high) = (all.whole("minval")?, all.whole("maxval")?);
    let (scale, grain) = (RangeScale::Linear, Grain::Step(1.0));
    let numbers = NumberRange { low, high, scale, grain, integer: true, count: None };
    all.numbers(["minval", "maxval"], numbers)
}

fn determined_double(all: &Arguments<'_>) -> Result<Distribution, Error> {
    let (low, high) = (all.number("minval")?, all.number("maxval")?);
    let (scale, grain) = (RangeScale::Linear, Grain::Fine);
    let numbers = NumberRange { low, high, scale, grain, integer: false, count: None };
    all.numbers(["minval", "maxval"], numbers)
}

fn determined_log(all: &Arguments<'_>) -> Result<Distribution, Error> {
    let base = all.optional("base")?.unwrap_or(10.0);
    if !(base > 0.0 && base != 1.0 && f64::is_finite(base)) {
        return Err(all.wrong("base", "must be above 0 and not 1"));
    }
    let (low, high) = (all.number("minval")?, all.number("maxval")?);
    let (scale, grain) = (RangeScale::Power(base), Grain::Fine);
    let numbers = NumberRange { low, high, scale, grain, integer: false, count: None };
    all.numbers(["minval", "maxval"], numbers)
}

fn uniform(all: &Arguments<'_>) -> Result<Distribution, Error> {
    ray(all, RangeScale::Linear, false)
}

/// Ray Tune's ranges: the upper end of whole numbers is not in them, unless they are rounded.
fn ray(all: &Arguments<'_>, scale: RangeScale, integer: bool) -> Result<Distribution, Error> {
    let quantum = all.grain("q")?;
    let (low, high) = match integer {
        false => (all.number("lower")?, all.number("upper")?),
        true => {
            let upper = all.whole("upper")?;
            (all.whole("lower")?, if quantum.is_some() { upper } else { upper - 1.0 })
        }
    };
    if let Some(quantum) = quantum {
        // Rounding would leave the range, and with it what the model takes; Ray refuses it as well.
        let is_multiple = |end: f64| (end / quantum - (end / quantum).round()).abs() <= 1e-9;
        for (name, end) in [("lower", low), ("upper", high)] {
            if !is_multiple(end) {
                return Err(all.wrong(name, &format!("{end} is no multiple of q {quantum}")));
            }
        }
    }
    let grain = match (quantum, integer) {
        (Some(quantum), _) => Grain::Round(quantum),
        (None, true) => Grain::Step(1.0),
        (None, false) => Grain::Fine,
    };
    all.numbers(["lower", "upper"], NumberRange { low, high, scale, grain, integer, count: None })
}

fn normal(all: &Arguments<'_>) -> Result<Distribution, Error> {
    let mean = all.optional("mean")?.unwrap_or(0.0);
    let deviation = all.optional("sd")?.unwrap_or(1.0);
    match f64::is_finite(mean) && deviation > 0.0 && f64::is_finite(deviation) {
        true => Ok(Distribution::Normal { mean, deviation, round: all.grain("q")? }),
        false => Err(all.wrong("sd", "must be above 0")),
    }
}

fn optuna_float(all: &Arguments<'_>) -> Result<Distribution, Error> {
    all.optuna(false, false)
}

fn optuna_int(all: &Arguments<'_>) -> Result<Distribution, Error> {
    all.optuna(false, true)
}
