//! Pictures as a binary file of CIFAR-10.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Sink;
use super::pending::Pending;
use crate::cifar::{PICTURE_BYTES, check_class};
use crate::{Error, Row};

/// A file of records: class, red plane, green plane, blue plane.
struct Cifar {
    path: PathBuf,
    file: Pending,
    records: u64,
}

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    Ok(Box::new(Cifar { path: path.to_owned(), file: Pending::create(path)?, records: 0 }))
}

impl Cifar {
    fn add(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let image = row.bytes("image")?;
        if image.len() != PICTURE_BYTES {
            let found = image.len();
            let reason = format!("an image of {found} bytes, but CIFAR-10 has {PICTURE_BYTES}");
            return Err(Error::Rejected(reason));
        }
        let labels = row.ints("label")?;
        let [class] = labels else {
            return Err(Error::Rejected(format!("{} labels instead of one", labels.len())));
        };
        let class = check_class(*class)?;
        let written = self.file.write_all(&[class]).and_then(|()| self.file.write_all(image));
        written.map_err(Error::io(&self.path))
    }
}

impl Sink for Cifar {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        self.add(row).map_err(|error| error.at(&self.path, None, self.records))?;
        self.records += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.file.commit()
    }

    fn bytes(&self) -> u64 {
        self.file.count().get()
    }
}
