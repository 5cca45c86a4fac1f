//! A space against what the model says of its hyperparameters: before the first trial, not in the hundredth.

use salamander_core::hparams::{AllowedRange, HparamInfo};
use salamander_core::yaml::Error;
use serde_json::Value as Json;

use super::{Distribution, LeafKind, Space};

/// Names that belong to the framework.
const OWN: [&str; 1] = ["global_batch_size"];

impl Space {
    /// Checks names and ranges against those of the model.
    pub fn check(&self, known: &[HparamInfo]) -> Result<(), Error> {
        for (index, leaf) in self.leaves.iter().enumerate() {
            let name = leaf.path[0].as_str();
            if OWN.contains(&name) {
                self.check_batch(index)?;
                continue;
            }
            let Some(info) = known.iter().find(|info| info.name == name) else {
                let names = known.iter().map(|info| info.name).chain(OWN);
                let error = Error::unknown_field(name, names).or_at(&leaf.place);
                return Err(error.within("hyperparameters"));
            };
            let LeafKind::Drawn(distribution) = &leaf.kind else { continue };
            if let Some(value) = unfit(distribution, info.kind) {
                let kind = info.kind;
                return Err(
                    self.wrong(index, format!("it may be {value}, and the model takes {kind}"))
                );
            }
            let Some((low, high)) = distribution.bounds() else { continue };
            let AllowedRange { min: least, max: most } = info.range;
            if least.is_some_and(|least| low < least) || most.is_some_and(|most| high > most) {
                let bound = |b: Option<f64>| b.map_or("any".to_string(), |b| b.to_string());
                return Err(self.wrong(
                    index,
                    format!(
                        "{low} to {high} is not within what the model takes, {} to {}",
                        bound(least),
                        bound(most)
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_batch(&self, leaf: usize) -> Result<(), Error> {
        let LeafKind::Drawn(distribution) = &self.leaves[leaf].kind else { return Ok(()) };
        let whole = distribution.is_integer();
        match distribution.bounds() {
            Some((low, _)) if whole && low >= 1.0 => Ok(()),
            _ => Err(self.wrong(leaf, "a batch is a whole number of at least one record")),
        }
    }
}

/// A value that may be drawn and that the model's field cannot hold.
fn unfit(distribution: &Distribution, kind: &str) -> Option<Json> {
    let values = match distribution {
        Distribution::Choice(values) => values.clone(),
        // The least says whether there are negative ones.
        range => vec![range.at(0.0), range.at(0.5)],
    };
    values.into_iter().find(|value| !can_hold(kind, value))
}

/// Whether a field of a type can hold a value. Of a type that is not known here it is found out by the trial.
fn can_hold(kind: &str, value: &Json) -> bool {
    if let Some(within) = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')) {
        return value.is_null() || can_hold(within, value);
    }
    match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => value.is_u64(),
        "i8" | "i16" | "i32" | "i64" | "isize" => value.is_i64(),
        "f32" | "f64" => value.is_number(),
        "bool" => value.is_boolean(),
        "String" => value.is_string(),
        _ => true,
    }
}
