//! Rows for elsewhere: one safetensors file per shard of a table, with `ids` and `rows`.

use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use salamander_ps::TableSpec;
use salamander_ps::checkpoint::{describe, for_each_row};

use crate::Error;
use crate::checkpoint::{from_safetensors, write_safetensors};

/// Floats of a shard at the most, so that a table of any size is written in bounded memory.
const SHARD: usize = 1 << 26;

/// Writes the rows of a checkpoint's files as `NAME-00000.safetensors` and so on.
pub(crate) fn export(files: &[PathBuf], folder: &Path) -> Result<(), Error> {
    if files.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    for spec in describe(files)?.tables {
        let mut shard =
            ExportedShard { spec: &spec, folder, number: 0, ids: Vec::new(), rows: Vec::new() };
        let mut failed = Ok(());
        for_each_row(files, &spec.name, |id, row| {
            shard.ids.push(id);
            shard.rows.extend_from_slice(row);
            if shard.rows.len() >= SHARD && failed.is_ok() {
                failed = shard.write();
            }
        })?;
        failed?;
        if !shard.ids.is_empty() || shard.number == 0 {
            shard.write()?;
        }
    }
    Ok(())
}

/// Hands over the rows of an exported table, shard by shard.
pub(crate) fn import(
    folder: &Path,
    spec: &TableSpec,
    mut each: impl FnMut(&[u64], &[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    for number in 0.. {
        let path = path(folder, &spec.name, number);
        if number > 0 && !path.exists() {
            break;
        }
        let unfit = |reason: String| Error::Invalid(format!("rows {}: {reason}", path.display()));
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        let (mut ids, mut rows) = (None, None);
        for (name, data) in from_safetensors(&bytes).map_err(unfit)? {
            match name.as_str() {
                "ids" => ids = data.try_into_vec::<u64>().ok(),
                "rows" => rows = data.try_into_vec::<f32>().ok(),
                _ => {}
            }
        }
        let (Some(ids), Some(rows)) = (ids, rows) else {
            return Err(unfit("it has no ids of u64 and rows of f32".to_string()));
        };
        if rows.len() != ids.len() * spec.dim {
            let dim = spec.dim;
            return Err(unfit(format!("its rows are not those of {} ids of {dim}", ids.len())));
        }
        each(&ids, &rows)?;
    }
    Ok(())
}

struct ExportedShard<'a> {
    spec: &'a TableSpec,
    folder: &'a Path,
    number: usize,
    ids: Vec<u64>,
    rows: Vec<f32>,
}

impl ExportedShard<'_> {
    fn write(&mut self) -> Result<(), Error> {
        let (ids, rows) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.rows));
        let count = ids.len();
        let tensors = [
            ("ids".to_string(), TensorData::new(ids, [count])),
            ("rows".to_string(), TensorData::new(rows, [count, self.spec.dim])),
        ];
        let path = path(self.folder, &self.spec.name, self.number);
        self.number += 1;
        write_safetensors(&path, &tensors)
    }
}

/// A table's name may have characters that a file's cannot.
fn path(folder: &Path, table: &str, shard: usize) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = table.chars().map(plain).collect();
    folder.join(format!("{name}-{shard:05}.safetensors"))
}
