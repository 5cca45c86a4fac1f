//! Texts of several values and columns that share their ids: what multi-valued features need.

use super::Error;

/// The values of a text that holds several; empty ones are left out, and an empty separator leaves the
/// text whole.
///
/// ```
/// use salamander_data::preprocess::to_ragged;
///
/// assert_eq!(to_ragged("jazz|soul||", "|"), ["jazz", "soul"]);
/// assert!(to_ragged("", "|").is_empty());
/// ```
pub fn to_ragged<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    if separator.is_empty() {
        return Some(text).into_iter().filter(|text| !text.is_empty()).collect();
    }
    text.split(separator).filter(|value| !value.is_empty()).collect()
}

/// The ids of one column, and how many there can be.
#[derive(Clone, Copy, Debug)]
pub struct IdColumn<'a> {
    /// The ids, from 0.
    pub ids: &'a [i64],
    /// How many different ids there can be.
    pub size: i64,
}

/// Puts the ids of several columns into one row of ids, each column's moved past those of the columns
/// before it, so that all can share one embedding.
///
/// ```
/// use salamander_data::preprocess::{IdColumn, concatenate_with_offset};
///
/// let city = IdColumn { ids: &[2], size: 10 };
/// let genres = IdColumn { ids: &[0, 1], size: 5 };
/// assert_eq!(concatenate_with_offset(&[city, genres])?, [2, 10, 11]);
/// assert!(concatenate_with_offset(&[IdColumn { size: 2, ..city }]).is_err());
/// # Ok::<(), salamander_data::preprocess::Error>(())
/// ```
pub fn concatenate_with_offset(columns: &[IdColumn<'_>]) -> Result<Vec<i64>, Error> {
    let mut out = Vec::with_capacity(columns.iter().map(|column| column.ids.len()).sum());
    let mut offset: i64 = 0;
    for (column, &IdColumn { ids, size }) in columns.iter().enumerate() {
        let end = offset.checked_add(size).ok_or(Error::Sizes { columns: columns.len() })?;
        for &id in ids {
            if !(0..size).contains(&id) {
                return Err(Error::Id { column, id, size });
            }
            out.push(offset + id);
        }
        offset = end;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_may_have_any_length() {
        let check = |text: &str, separator: &str, expected: &[&str]| {
            assert_eq!(to_ragged(text, separator), expected);
        };
        check("a, b, c", ", ", &["a", "b", "c"]);
        check("a", ",", &["a"]);
        check("ab", "", &["ab"]);
        check("", "", &[]);
        check(",", ",", &[]);
    }

    #[test]
    fn ids_past_their_size_name_the_column() {
        let check = |columns: &[(&'static [i64], i64)], expected: &str| {
            let column = |&(ids, size): &(&'static [i64], i64)| IdColumn { ids, size };
            let columns: Vec<IdColumn<'_>> = columns.iter().map(column).collect();
            let found = concatenate_with_offset(&columns).map(|ids| format!("{ids:?}"));
            assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected);
        };
        check(&[(&[], 3), (&[1], 2), (&[0], 1)], "[4, 5]");
        check(
            &[(&[0], 1), (&[-1], 2)],
            "column 1: id -1 is not below its size 2: give the size that the ids need",
        );
        check(
            &[(&[], i64::MAX), (&[], 1)],
            "the sizes of 2 columns add up to more than ids can be",
        );
        check(
            &[(&[0], -5)],
            "column 0: id 0 is not below its size -5: give the size that the ids need",
        );
    }
}
