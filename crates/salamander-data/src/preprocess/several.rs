//! Text and lists of any length as numbers, indices and ids: what multi-valued features need.

use std::str::FromStr;

use super::Error;

/// The number in a text, spaces around it aside; `default` where the text is empty.
///
/// ```
/// use salamander_data::preprocess::to_number;
///
/// assert_eq!(to_number(" 2.5", 0.0)?, 2.5);
/// assert_eq!(to_number("", -1)?, -1);
/// assert!(to_number("many", 0).is_err());
/// # Ok::<(), salamander_data::preprocess::Error>(())
/// ```
pub fn to_number<T: FromStr>(text: &str, default: T) -> Result<T, Error> {
    match text.trim() {
        "" => Ok(default),
        word => word.parse().map_err(|_| Error::NotANumber { text: text.to_owned() }),
    }
}

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

/// The values of a matrix that are there, and where they are, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse<T> {
    /// Row and column of each value.
    pub indices: Vec<[usize; 2]>,
    /// The values.
    pub values: Vec<T>,
    /// How many rows there are, and how many values the longest has.
    pub shape: [usize; 2],
}

/// Takes the values out of rows, leaving out the one that stands for nothing.
///
/// ```
/// use salamander_data::preprocess::to_sparse;
///
/// let rows: [&[i64]; 3] = [&[5, -1], &[], &[-1, 7, 8]];
/// let sparse = to_sparse(&rows, &-1);
/// assert_eq!(sparse.values, [5, 7, 8]);
/// assert_eq!(sparse.indices, [[0, 0], [2, 1], [2, 2]]);
/// assert_eq!(sparse.shape, [3, 3]);
/// ```
pub fn to_sparse<T: Clone + PartialEq>(rows: &[impl AsRef<[T]>], missing: &T) -> Sparse<T> {
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let mut longest = 0;
    for (row, cells) in rows.iter().map(AsRef::as_ref).enumerate() {
        longest = longest.max(cells.len());
        for (column, value) in cells.iter().enumerate().filter(|(_, value)| *value != missing) {
            indices.push([row, column]);
            values.push(value.clone());
        }
    }
    Sparse { indices, values, shape: [rows.len(), longest] }
}

/// Puts the ids of several columns into one row of ids, each column's moved past those of the columns
/// before it, so that all can share one embedding. A column is its ids and how many there can be.
///
/// ```
/// use salamander_data::preprocess::concatenate_with_offset;
///
/// let (city, genres) = (&[2][..], &[0, 1][..]);
/// assert_eq!(concatenate_with_offset(&[(city, 10), (genres, 5)])?, [2, 10, 11]);
/// assert!(concatenate_with_offset(&[(city, 2)]).is_err());
/// # Ok::<(), salamander_data::preprocess::Error>(())
/// ```
pub fn concatenate_with_offset(columns: &[(&[i64], i64)]) -> Result<Vec<i64>, Error> {
    let mut out = Vec::with_capacity(columns.iter().map(|(ids, _)| ids.len()).sum());
    let mut offset: i64 = 0;
    for (column, &(ids, size)) in columns.iter().enumerate() {
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
    fn numbers_are_read_or_named() {
        let check = |text: &str, expected: &str| {
            let found = to_number(text, 9i64).map(|number| number.to_string());
            assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected);
        };
        check("-3", "-3");
        check("  ", "9");
        check("1.5", "\"1.5\" is not a number: write a number, or nothing where it is missing");
    }

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
    fn nothing_is_sparse_too() {
        let none: [&[i64]; 0] = [];
        assert_eq!(to_sparse(&none, &0).shape, [0, 0]);
        assert_eq!(to_sparse(&[vec![""]], &"").values.len(), 0);
    }

    #[test]
    fn ids_past_their_size_name_the_column() {
        let check = |columns: &[(&[i64], i64)], expected: &str| {
            let found = concatenate_with_offset(columns).map(|ids| format!("{ids:?}"));
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
