//! What each search may look at: a filter or an order by something else is a mistake, and clients are told so.

use super::{Comparator, ComparedValue, Comparison, Field};
use crate::mlflow::refusal::MlflowRefusal;

/// The attributes of what is searched, by what they are, and the kinds of keys that it has.
#[derive(Clone, Copy, Debug)]
pub(in crate::mlflow) struct Searchable {
    texts: &'static [&'static str],
    numbers: &'static [&'static str],
    keyed: &'static [Field],
}

/// What a data set is found by.
const OF_DATASETS: [&str; 3] = ["name", "digest", "context"];

impl Searchable {
    pub(in crate::mlflow) const RUNS: Self = Self {
        texts: &[
            "run_id",
            "run_name",
            "run name",
            "Run name",
            "Run Name",
            "status",
            "user_id",
            "artifact_uri",
            "experiment_id",
            "lifecycle_stage",
        ],
        numbers: &["start_time", "created", "Created", "end_time"],
        keyed: &[Field::Metric, Field::Param, Field::Tag, Field::Dataset],
    };
    pub(in crate::mlflow) const EXPERIMENTS: Self = Self {
        texts: &["name", "experiment_id"],
        numbers: &["creation_time", "last_update_time"],
        keyed: &[Field::Tag],
    };
    pub(in crate::mlflow) const LOGGED_MODELS: Self = Self {
        texts: &[
            "name",
            "model_name",
            "model_id",
            "model_type",
            "status",
            "source_run_id",
            "experiment_id",
        ],
        numbers: &[
            "creation_time",
            "creation_timestamp",
            "creation_timestamp_ms",
            "last_updated_time",
            "last_updated_timestamp",
            "last_updated_timestamp_ms",
        ],
        keyed: &[Field::Metric, Field::Param, Field::Tag],
    };
    pub(in crate::mlflow) const REGISTERED_MODELS: Self = Self {
        texts: &["name"],
        numbers: &["timestamp", "creation_timestamp", "last_updated_timestamp"],
        keyed: &[Field::Tag],
    };
    pub(in crate::mlflow) const MODEL_VERSIONS: Self = Self {
        texts: &["name", "run_id", "source", "source_path", "model_id"],
        numbers: &["version", "version_number", "creation_timestamp", "last_updated_timestamp"],
        keyed: &[Field::Tag],
    };

    /// Refuses a comparison that this search cannot make.
    pub(super) fn check(&self, comparison: &Comparison) -> Result<(), MlflowRefusal> {
        let Comparison { field, key, comparator, wanted } = comparison;
        let is_number = self.is_number(*field, key)?;
        let equals = matches!(comparator, Comparator::Equal | Comparator::Unequal);
        let is_like = matches!(comparator, Comparator::Like | Comparator::Ilike);
        let is_known = matches!(comparator, Comparator::IsNull | Comparator::IsNotNull);
        let is_listed = matches!(comparator, Comparator::In | Comparator::NotIn);
        let may = match field {
            _ if is_number => !(is_like || is_known || is_listed),
            Field::Param | Field::Tag => equals || is_like || is_known,
            _ => equals || is_like || is_listed,
        };
        if !may {
            let reason = format!("Invalid comparator {comparator:?} for {field:?} {key:?}");
            return Err(MlflowRefusal::invalid(reason));
        }
        let fits = match wanted {
            ComparedValue::Nothing | ComparedValue::List(_) => true,
            ComparedValue::Number(_) => is_number,
            // Versions are numbers, and clients write them as texts, too.
            ComparedValue::Text(text) => {
                !is_number || (*field == Field::Attribute && text.parse::<f64>().is_ok())
            }
        };
        let kind = if is_number { "a number" } else { "a quoted text" };
        let wrong = || MlflowRefusal::invalid(format!("{field:?} {key:?} is compared with {kind}"));
        fits.then_some(()).ok_or_else(wrong)
    }

    /// Refuses an order that this search has not.
    pub(super) fn check_order(&self, field: Field, key: &str) -> Result<(), MlflowRefusal> {
        if field == Field::Dataset {
            return Err(MlflowRefusal::invalid("a list is not ordered by data sets"));
        }
        self.is_number(field, key).map(drop)
    }

    /// Whether something is a number; refuses what there is not.
    fn is_number(&self, field: Field, key: &str) -> Result<bool, MlflowRefusal> {
        let is_there = match field {
            Field::Attribute => self.texts.contains(&key) || self.numbers.contains(&key),
            Field::Dataset => self.keyed.contains(&field) && OF_DATASETS.contains(&key),
            _ => self.keyed.contains(&field),
        };
        if is_there {
            return Ok(
                field == Field::Metric || self.numbers.contains(&key) && field == Field::Attribute
            );
        }
        let known: Vec<&str> = self.texts.iter().chain(self.numbers).copied().collect();
        let reason =
            format!("Invalid {field:?} key {key:?} specified. Valid attributes are {known:?}");
        Err(MlflowRefusal::invalid(reason))
    }
}
