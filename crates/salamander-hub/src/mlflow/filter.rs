//! The filters and orders of MLflow's searches: comparisons joined by AND.

mod searched;
mod tokens;

use std::cmp::Ordering;

use super::refusal::MlflowRefusal;
pub(super) use searched::Searchable;
use tokens::{FilterToken, Tokens, unexpected};

/// The tag of prompts, which models have not: clients leave prompts out of every search for models by it.
const PROMPT: &str = "mlflow.prompt.is_prompt";

/// What a comparison looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Attribute,
    Metric,
    Param,
    Tag,
    Dataset,
}

/// A value of what is searched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    Text(String),
    Number(f64),
    /// Of several things of which one has to pass, such as the data sets of a run.
    Several(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
enum ComparedValue {
    Text(String),
    Number(f64),
    List(Vec<String>),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Like,
    Ilike,
    In,
    NotIn,
    IsNull,
    IsNotNull,
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    field: Field,
    key: String,
    comparator: Comparator,
    wanted: ComparedValue,
}

/// A filter; an empty one lets everything through.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter(Vec<Comparison>);

impl Filter {
    pub(super) fn parse(text: &str, searchable: &Searchable) -> Result<Self, MlflowRefusal> {
        let mut tokens = Tokens::of(text)?;
        let mut all = Vec::new();
        while !tokens.is_done() {
            if !all.is_empty() {
                tokens.expect_word("and")?;
            }
            let comparison = Comparison::parse(&mut tokens)?;
            searchable.check(&comparison)?;
            all.push(comparison);
        }
        Ok(Self(all))
    }

    /// Whether something passes, by its values; what has no value passes only where that is asked for.
    pub(super) fn matches(&self, value: impl Fn(Field, &str) -> Option<FieldValue>) -> bool {
        self.0.iter().all(|comparison| comparison.holds(value(comparison.field, &comparison.key)))
    }

    /// The same in the registry, where what is not said to be a prompt is none.
    pub(super) fn matches_model(&self, value: impl Fn(Field, &str) -> Option<FieldValue>) -> bool {
        self.matches(|field, key| {
            let is_none =
                || (field == Field::Tag && key == PROMPT).then(|| FieldValue::Text("false".into()));
            value(field, key).or_else(is_none)
        })
    }

    /// Whether a metric is compared.
    pub(super) fn has_metrics(&self) -> bool {
        self.0.iter().any(|comparison| comparison.field == Field::Metric)
    }
}

impl Comparison {
    fn parse(tokens: &mut Tokens) -> Result<Comparison, MlflowRefusal> {
        let (field, key) = tokens.identifier()?;
        let comparator = match tokens.required()? {
            FilterToken::Sign("=" | "==") => Comparator::Equal,
            FilterToken::Sign("!=") => Comparator::Unequal,
            FilterToken::Sign("<") => Comparator::Less,
            FilterToken::Sign("<=") => Comparator::AtMost,
            FilterToken::Sign(">") => Comparator::Greater,
            FilterToken::Sign(">=") => Comparator::AtLeast,
            FilterToken::Word(word) => match word.to_ascii_lowercase().as_str() {
                "like" => Comparator::Like,
                "ilike" => Comparator::Ilike,
                "in" => Comparator::In,
                "not" => {
                    tokens.expect_word("in")?;
                    Comparator::NotIn
                }
                "is" => {
                    let not = tokens.is_word("not");
                    if not {
                        tokens.next();
                    }
                    tokens.expect_word("null")?;
                    if not { Comparator::IsNotNull } else { Comparator::IsNull }
                }
                _ => return Err(unexpected(&FilterToken::Word(word))),
            },
            other => return Err(unexpected(&other)),
        };
        let wanted = match comparator {
            Comparator::IsNull | Comparator::IsNotNull => ComparedValue::Nothing,
            Comparator::In | Comparator::NotIn => ComparedValue::List(tokens.list()?),
            _ => match tokens.required()? {
                FilterToken::Text(text) | FilterToken::Quoted(text) => ComparedValue::Text(text),
                FilterToken::Number(number) => ComparedValue::Number(number),
                other => return Err(unexpected(&other)),
            },
        };
        Ok(Comparison { field, key, comparator, wanted })
    }

    fn holds(&self, found: Option<FieldValue>) -> bool {
        let found = match (self.comparator, found) {
            (Comparator::IsNull, found) => return found.is_none(),
            (Comparator::IsNotNull, found) => return found.is_some(),
            (_, None) => return false,
            (_, Some(FieldValue::Several(all))) => {
                return all.into_iter().any(|one| self.holds(Some(FieldValue::Text(one))));
            }
            (_, Some(found)) => found,
        };
        match (&self.wanted, found) {
            (ComparedValue::Number(wanted), FieldValue::Number(found)) => {
                self.orders(found.partial_cmp(wanted))
            }
            (ComparedValue::Text(wanted), FieldValue::Text(found)) => match self.comparator {
                Comparator::Like => is_like(&found, wanted),
                Comparator::Ilike => is_like(&found.to_lowercase(), &wanted.to_lowercase()),
                _ => self.orders(Some(found.as_str().cmp(wanted))),
            },
            // Clients write numbers such as that of a version as texts, too.
            (ComparedValue::Text(wanted), FieldValue::Number(found)) => {
                let wanted: Option<f64> = wanted.parse().ok();
                self.orders(wanted.and_then(|wanted| found.partial_cmp(&wanted)))
            }
            (ComparedValue::List(wanted), FieldValue::Text(found)) => {
                wanted.contains(&found) == (self.comparator == Comparator::In)
            }
            // No search lets such a comparison through.
            _ => false,
        }
    }

    fn orders(&self, order: Option<Ordering>) -> bool {
        match self.comparator {
            Comparator::Equal => order == Some(Ordering::Equal),
            Comparator::Unequal => order != Some(Ordering::Equal),
            Comparator::Less => order == Some(Ordering::Less),
            Comparator::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparator::Greater => order == Some(Ordering::Greater),
            Comparator::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            _ => false,
        }
    }
}

/// `%` stands for any text and `_` for one sign, as in SQL.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) =
        (text.chars().collect(), pattern.chars().collect());
    // Where the last `%` was, and how far the text was then: tried again one sign later.
    let (mut t, mut p, mut again) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('%') => {
                again = Some((p, t));
                p += 1;
            }
            Some(sign) if *sign == '_' || *sign == text[t] => (t, p) = (t + 1, p + 1),
            _ => match again {
                Some((place, from)) => {
                    again = Some((place, from + 1));
                    (p, t) = (place + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|sign| *sign == '%')
}

/// In which order things are listed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OrderBy {
    pub(super) field: Field,
    pub(super) key: String,
    pub(super) ascending: bool,
}

impl OrderBy {
    /// One of `order_by`: `metrics.loss DESC`.
    pub(super) fn parse(text: &str, searchable: &Searchable) -> Result<Self, MlflowRefusal> {
        let mut tokens = Tokens::of(text)?;
        let (field, key) = tokens.identifier()?;
        searchable.check_order(field, &key)?;
        let ascending = match tokens.next() {
            None => true,
            Some(FilterToken::Word(word)) if word.eq_ignore_ascii_case("asc") => true,
            Some(FilterToken::Word(word)) if word.eq_ignore_ascii_case("desc") => false,
            Some(other) => return Err(unexpected(&other)),
        };
        match tokens.next() {
            None => Ok(Self { field, key, ascending }),
            Some(other) => Err(unexpected(&other)),
        }
    }

    /// Compares by it; what is no number comes behind all numbers in either direction, and what has no value last.
    pub(super) fn compare(&self, one: Option<FieldValue>, other: Option<FieldValue>) -> Ordering {
        let behind = |found: &Option<FieldValue>| match found {
            None => 2,
            Some(FieldValue::Number(number)) if number.is_nan() => 1,
            Some(_) => 0,
        };
        let (first, second) = (behind(&one), behind(&other));
        if first > 0 || second > 0 {
            return first.cmp(&second);
        }
        let order = match (one, other) {
            (Some(FieldValue::Number(one)), Some(FieldValue::Number(other))) => {
                one.total_cmp(&other)
            }
            (Some(FieldValue::Text(one)), Some(FieldValue::Text(other))) => one.cmp(&other),
            (Some(FieldValue::Number(_)), Some(_)) => Ordering::Less,
            (Some(_), Some(FieldValue::Number(_))) => Ordering::Greater,
            _ => Ordering::Equal,
        };
        if self.ascending { order } else { order.reverse() }
    }
}

/// All that a list is ordered by, the first of them first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Orders(pub(super) Vec<OrderBy>);

impl Orders {
    pub(super) fn parse(texts: &[String], searchable: &Searchable) -> Result<Self, MlflowRefusal> {
        let parsed = texts.iter().map(|text| OrderBy::parse(text, searchable));
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Compares two by their values.
    pub(super) fn compare(
        &self,
        one: impl Fn(Field, &str) -> Option<FieldValue>,
        other: impl Fn(Field, &str) -> Option<FieldValue>,
    ) -> Ordering {
        let by = |order: &OrderBy| {
            order.compare(one(order.field, &order.key), other(order.field, &order.key))
        };
        self.0.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of a run: a loss of 0.5, a parameter "depth", a tag with a space and a name.
    fn value(field: Field, key: &str) -> Option<FieldValue> {
        let text = |text: &str| Some(FieldValue::Text(text.to_string()));
        match (field, key) {
            (Field::Metric, "loss") => Some(FieldValue::Number(0.5)),
            (Field::Metric, "val.loss") => Some(FieldValue::Number(f64::NAN)),
            (Field::Param, "depth") => text("12"),
            (Field::Tag, "a b") => text("x'y"),
            (Field::Attribute, "run_name") => text("Happy-Fox"),
            (Field::Attribute, "start_time") => Some(FieldValue::Number(1000.0)),
            (Field::Dataset, "name") => {
                Some(FieldValue::Several(vec!["one".to_string(), "two".to_string()]))
            }
            _ => None,
        }
    }

    #[test]
    fn filters_say_what_passes() {
        for (filter, passes) in [
            ("", true),
            ("metrics.loss < 1", true),
            ("metric.loss >= 0.5 AND params.depth = '12'", true),
            ("metrics.loss < 1 and params.depth != '12'", false),
            ("metrics.val.loss < 1", false),
            ("metrics.other > -1e9", false),
            ("tags.`a b` = 'x''y'", true),
            ("tags.\"a b\" = 'x\\'y'", true),
            ("tags.`a b` IS NOT NULL", true),
            ("tags.none is null and run_name like 'Happy%'", true),
            ("attributes.run_name ILIKE '%FOX'", true),
            ("run_name LIKE 'happy%'", false),
            ("run_name IN ('a', 'Happy-Fox')", true),
            ("run_name NOT IN ('a')", true),
            ("run_name IN ()", false),
            ("attribute.start_time > 999", true),
            ("params.depth LIKE '1_'", true),
            ("params.depth LIKE '1__'", false),
            ("metrics.loss > .25 and metrics.loss < 5e-1", false),
            ("datasets.name = 'two' and dataset.name LIKE 'on%'", true),
            ("dataset.digest = 'two'", false),
        ] {
            let parsed = Filter::parse(filter, &Searchable::RUNS);
            let parsed = parsed.unwrap_or_else(|error| panic!("{filter}: {error:?}"));
            assert_eq!(parsed.matches(value), passes, "{filter}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for filter in [
            "metrics.loss <",
            "metrics.loss < 'a'",
            "loss",
            "metrics.loss < 1 or metrics.loss > 2",
            "colours.loss = 1",
            "tags.a = 'open",
            "a = 1 b = 2",
            "= 1",
            "attributes.colour = 'red'",
            "colour = 'red'",
            "params.depth > '3'",
            "params.depth = 3",
            "tags.a IN ('x')",
            "metrics.loss LIKE '1%'",
            "metrics.loss IS NULL",
            "start_time = 'soon'",
            "start_time LIKE '1%'",
            "run_name > 'a'",
            "status IS NOT NULL",
            "dataset.colour = 'red'",
        ] {
            assert!(Filter::parse(filter, &Searchable::RUNS).is_err(), "{filter}");
        }
        for order in ["colour", "attributes.colour DESC", "datasets.name", "start_time SIDEWAYS"] {
            assert!(OrderBy::parse(order, &Searchable::RUNS).is_err(), "{order}");
        }
        assert!(Filter::parse("metrics.loss > 1", &Searchable::EXPERIMENTS).is_err());
        assert!(Filter::parse("run_id = 'a'", &Searchable::REGISTERED_MODELS).is_err());
    }

    #[test]
    fn what_is_not_said_to_be_a_prompt_is_a_model() {
        let check = |filter: &str, passes: bool| {
            let parsed = Filter::parse(filter, &Searchable::REGISTERED_MODELS).expect("right");
            assert_eq!(parsed.matches_model(|_, _| None), passes, "{filter}");
        };
        check("tags.`mlflow.prompt.is_prompt` != 'true'", true);
        check("tags.`mlflow.prompt.is_prompt` = 'false'", true);
        check("tags.`mlflow.prompt.is_prompt` = 'true'", false);
        check("tags.stage != 'old'", false);
    }

    #[test]
    fn what_has_no_value_comes_last_in_either_direction() {
        let number = |number: f64| Some(FieldValue::Number(number));
        for (text, first) in [("metrics.loss ASC", 1.0), ("metrics.loss DESC", 2.0)] {
            let order = OrderBy::parse(text, &Searchable::RUNS).expect("right");
            let mut all = [None, number(2.0), number(f64::NAN), number(1.0)];
            all.sort_by(|one, other| order.compare(one.clone(), other.clone()));
            assert_eq!(all[0], number(first), "{text}");
            assert!(matches!(&all[2], Some(FieldValue::Number(n)) if n.is_nan()), "{text}");
            assert_eq!(all[3], None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let parsed = Filter::parse(&text, &Searchable::RUNS);
            let _ = parsed.map(|filter| filter.matches(value));
            let _ = OrderBy::parse(&text, &Searchable::RUNS);
        }

        #[test]
        fn a_pattern_of_itself_fits(text in "[a-c%_]{0,12}") {
            prop_assert!(is_like(&text, &text));
            prop_assert!(is_like(&text, "%"));
        }
    }
}
