//! Pictures as PNG files in a folder per class.

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, save_buffer};
use salamander_files::{Durability, PendingFolder};

use super::Sink;
use crate::row_picture::RowPicture;
use crate::{Error, Row, Value};

/// A folder that is filled beside its place and renamed at the end.
struct Images {
    path: PathBuf,
    pending: PendingFolder,
    records: u64,
    bytes: u64,
}

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    if path.exists() {
        return Err(Error::form(path, "there already: give a folder that is not"));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let pending = PendingFolder::create(temporary).map_err(Error::io(path))?;
    Ok(Box::new(Images { path: path.to_owned(), pending, records: 0, bytes: 0 }))
}

impl Sink for Images {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let RowPicture { width, height, channels, pixels } = RowPicture::of(row, "image")?;
        let folder = self.pending.path().join(class(row)?);
        create_dir_all(&folder).map_err(Error::io(&folder))?;
        let file = folder.join(format!("{:08}.png", self.records));
        let color = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
        save_buffer(&file, pixels, width, height, color)
            .map_err(|error| Error::form(&file, error))?;
        self.records += 1;
        self.bytes += file.metadata().map_or(0, |metadata| metadata.len());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.pending.commit(&self.path, Durability::Unsynced).map_err(Error::io(&self.path))
    }

    fn bytes(&self) -> u64 {
        self.bytes
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
        return Err(Error::column("class", format!("{name:?} cannot be the name of a folder")));
    }
    Ok(name)
}
