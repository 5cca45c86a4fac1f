//! Pictures as PNG files in a folder per class.

use std::fs::{create_dir, create_dir_all, remove_dir_all, rename};
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, save_buffer};

use super::Sink;
use super::picture::Picture;
use crate::{Error, Row, Value};

/// A folder that is filled beside its place and renamed at the end.
pub(super) struct Images {
    path: PathBuf,
    temporary: PathBuf,
    records: u64,
    bytes: u64,
}

impl Images {
    pub(super) fn create(path: &Path) -> Result<Images, Error> {
        if path.exists() {
            let reason = "there already: give a folder that is not".to_owned();
            return Err(Error::Form { path: path.to_owned(), reason });
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        create_dir(&temporary).map_err(Error::io(&temporary))?;
        Ok(Images { path: path.to_owned(), temporary, records: 0, bytes: 0 })
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let Picture { width, height, channels, pixels } = Picture::of(row)?;
        let folder = self.temporary.join(class(row)?);
        create_dir_all(&folder).map_err(Error::io(&folder))?;
        let file = folder.join(format!("{:08}.png", self.records));
        let color = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
        save_buffer(&file, pixels, width, height, color)
            .map_err(|error| Error::Form { path: file.clone(), reason: error.to_string() })?;
        self.records += 1;
        self.bytes += file.metadata().map_or(0, |metadata| metadata.len());
        Ok(())
    }
}

impl Sink for Images {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let record = self.records;
        self.add(row).map_err(|error| error.at(&self.path, None, record))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        rename(&self.temporary, &self.path).map_err(Error::io(&self.path))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // After the end there is nothing to remove.
        let _ = remove_dir_all(&self.temporary);
    }
}

/// The folder of a row: its class by name, else by number, so padded that names sort as numbers do.
fn class(row: &Row<'_>) -> Result<String, Error> {
    let name = match (row.get("class"), row.get("label")) {
        (None, Some(Value::Ints(labels))) if labels.len() == 1 => format!("{:05}", labels[0]),
        (None, Some(_)) => row.text("label")?.to_owned(),
        _ => row.text("class")?.to_owned(),
    };
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        let reason = format!("{name:?} cannot be the name of a folder");
        return Err(Error::Column { column: "class".into(), reason });
    }
    Ok(name)
}
