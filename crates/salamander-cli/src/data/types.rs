//! Types for text: a CSV file holds only text, but the formats it is converted to hold numbers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use salamander_data::{Dataset, Format, Row, Value};

use super::in_blocks;

/// What all values of a text column can be read as; each kind includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextKind {
    Int,
    Float,
    Text,
}

/// The kinds of the text columns of a dataset.
#[derive(Debug, Default)]
pub(super) struct Types(BTreeMap<String, TextKind>);

impl Types {
    /// Reads everything once: a word in the last row makes its column text. Formats that hold text keep it as it is,
    /// and with it the empty cells of the first row, which has every column.
    pub(super) fn infer(dataset: &Dataset, to: Format) -> Result<Self> {
        if to.is_text() {
            return Ok(Self::default());
        }
        let mut kinds = BTreeMap::<String, TextKind>::new();
        in_blocks(dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| {
                for (name, value) in row.columns() {
                    let Value::Text(text) = value else { continue };
                    let kind = kind(text);
                    match kinds.get_mut(name) {
                        Some(known) => *known = (*known).max(kind),
                        None => {
                            kinds.insert(name.to_string(), kind);
                        }
                    }
                }
                Ok(())
            })?)
        })?;
        Ok(Self(kinds))
    }

    /// The row with its text as numbers where the whole column is numbers; an empty cell of such a
    /// column is left out.
    pub(super) fn apply<'a>(&self, row: &'a Row<'a>) -> Row<'a> {
        let typed = row.columns().filter_map(|(name, value)| {
            let value = match (value, self.0.get(name)) {
                (Value::Text(text), Some(TextKind::Int)) => {
                    Value::Ints(Cow::Owned(vec![text.parse().ok()?]))
                }
                (Value::Text(text), Some(TextKind::Float)) => {
                    Value::Floats(Cow::Owned(vec![text.parse().ok()?]))
                }
                _ => value.clone(),
            };
            Some((Cow::Borrowed(name), value))
        });
        Row::new(typed.collect())
    }
}

fn kind(text: &str) -> TextKind {
    match text.parse::<i64>() {
        _ if text.is_empty() => TextKind::Int,
        // 00501 is a code, not a number: it would come back as 501.
        Ok(number) if number.to_string() == text => TextKind::Int,
        Ok(_) => TextKind::Text,
        Err(_) if text.parse::<f64>().is_ok_and(f64::is_finite) => TextKind::Float,
        Err(_) => TextKind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_numbers() {
        let check = |text: &str, expected: TextKind| assert_eq!(kind(text), expected, "{text:?}");
        check("12", TextKind::Int);
        check("-7", TextKind::Int);
        check("", TextKind::Int);
        check("1.5", TextKind::Float);
        check("1e-3", TextKind::Float);
        check("00501", TextKind::Text);
        check("NaN", TextKind::Text);
        check("lima", TextKind::Text);
    }
}
