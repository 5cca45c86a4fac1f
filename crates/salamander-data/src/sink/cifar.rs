//! Pictures as a binary file of CIFAR-10.

use std::path::Path;

use super::Sink;
use super::pending::Pending;
use crate::cifar::{PICTURE_BYTES, check_class};
use crate::{Error, Row};

/// A file of records: class, red plane, green plane, blue plane.
struct Cifar(Pending);

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    Ok(Box::new(Cifar(Pending::create(path)?)))
}

impl Sink for Cifar {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
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
        self.0.append(&[check_class(*class)?])?;
        self.0.append(image)
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.0.commit()
    }

    fn bytes(&self) -> u64 {
        self.0.count().get()
    }
}
