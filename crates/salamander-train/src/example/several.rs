//! Inputs of several ids: any number per record, or those of several columns that share one embedding.

use burn::tensor::{Device, Int, Tensor};
use salamander_data::Row;
use salamander_data::preprocess::{IdColumn, concatenate_with_offset, to_ragged};

use super::buckets::is_missing;
use super::{Column, DecodeError, Target};

/// Ids of several records, any number of each: what embeddings are looked up by and summed.
#[derive(Clone, Debug)]
pub struct Ragged {
    /// All ids, record after record.
    pub values: Tensor<1, Int>,
    /// The record of each id, from 0.
    pub rows: Tensor<1, Int>,
    records: usize,
}

impl Ragged {
    /// How many records there are, also those without ids.
    pub fn records(&self) -> usize {
        self.records
    }

    fn new(name: &str, records: &[Vec<i64>], device: &Device) -> Result<Self, DecodeError> {
        let tensor = |ids: Vec<i64>| Target { name, shape: [ids.len()], device }.ints(ids);
        let rows = records.iter().zip(0..).flat_map(|(ids, row)| ids.iter().map(move |_| row));
        Ok(Self {
            values: tensor(records.concat())?,
            rows: tensor(rows.collect())?,
            records: records.len(),
        })
    }
}

/// Reads a feature of any number of values: none where the column is absent or empty.
pub fn ragged_feature<C: Column>(row: &Row<'_>, columns: &[&str]) -> Result<C, DecodeError> {
    match columns.iter().all(|column| is_missing(row, column)) {
        true => Ok(C::zeros(0)),
        false => C::read(row, columns),
    }
}

/// Ids of numbers; the ignored one stands for nothing and is left out.
pub fn ragged_ints<'a, C: Column + 'a>(
    name: &str,
    columns: impl Iterator<Item = &'a C>,
    ignored: Option<i64>,
    bucket: impl Fn(i64) -> i64,
    device: &Device,
) -> Result<Ragged, DecodeError> {
    let ids = |column: &C| {
        let mut values = Vec::new();
        column.ints(&mut values);
        values.into_iter().filter(|id| Some(*id) != ignored).map(&bucket).collect()
    };
    Ragged::new(name, &columns.map(ids).collect::<Vec<_>>(), device)
}

/// Where the words of a text end, and the one among them that stands for nothing.
#[derive(Clone, Copy, Debug)]
pub struct WordList {
    /// Stands between two words.
    pub separator: &'static str,
    /// Is left out.
    pub ignored: Option<&'static str>,
}

impl WordList {
    /// The words of a text.
    pub fn words<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut words = to_ragged(text, self.separator);
        words.retain(|word| Some(*word) != self.ignored);
        words
    }
}

/// Ids of the words of texts.
pub fn ragged_texts<'a>(
    name: &str,
    texts: impl Iterator<Item = &'a String>,
    list: WordList,
    bucket: impl Fn(&str) -> Result<i64, DecodeError>,
    device: &Device,
) -> Result<Ragged, DecodeError> {
    let ids = |text: &String| list.words(text).into_iter().map(&bucket).collect();
    Ragged::new(name, &texts.map(ids).collect::<Result<Vec<_>, _>>()?, device)
}

/// A tensor of ids, those of each column moved past those of the columns before it.
pub fn concatenated<'a, const D: usize, C: Column + 'a>(
    target: Target<'_, D>,
    columns: impl Iterator<Item = &'a C>,
    sizes: &[i64],
) -> Result<Tensor<D, Int>, DecodeError> {
    let mut values = Vec::with_capacity(target.shape.iter().product());
    for column in columns {
        target.check_len(column)?;
        values.extend(shifted(target.name, column, sizes)?);
    }
    target.ints(values)
}

/// The ids of one record; each of the columns has an equal share of them.
pub fn shifted(name: &str, ids: &impl Column, sizes: &[i64]) -> Result<Vec<i64>, DecodeError> {
    let mut values = Vec::with_capacity(ids.len());
    ids.ints(&mut values);
    let each = (values.len() / sizes.len().max(1)).max(1);
    let parts = values.chunks(each).zip(sizes).map(|(ids, &size)| IdColumn { ids, size });
    let parts: Vec<IdColumn<'_>> = parts.collect();
    concatenate_with_offset(&parts).map_err(|error| DecodeError::new(name, error.to_string()))
}
