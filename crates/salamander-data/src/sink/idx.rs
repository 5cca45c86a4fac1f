//! Images and labels as the two idx files of MNIST.

use std::path::{Path, PathBuf};

use super::Sink;
use super::pending::Pending;
use crate::idx::{IMAGES_MAGIC, LABELS_MAGIC, labels_beside};
use crate::row_picture::RowPicture;
use crate::{Error, Row};

/// An images file and, when the rows have labels, the labels file beside it.
struct Idx {
    path: PathBuf,
    images: Pending,
    labels: Option<Pending>,
    /// Height and width of every image, from the first.
    shape: Option<(u32, u32)>,
    records: u32,
}

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    let mut images = Pending::create(path)?;
    // What is not known yet is written at the end.
    header(&mut images, &[IMAGES_MAGIC, 0, 0, 0])?;
    Ok(Box::new(Idx { path: path.to_owned(), images, labels: None, shape: None, records: 0 }))
}

impl Idx {
    fn create_labels(&self) -> Result<Pending, Error> {
        let path = labels_beside(&self.path).ok_or_else(|| {
            let reason = "labels go into a file beside it: name it like train-images-idx3-ubyte";
            Error::form(&self.path, reason)
        })?;
        let mut labels = Pending::create(&path)?;
        header(&mut labels, &[LABELS_MAGIC, 0])?;
        Ok(labels)
    }
}

impl Sink for Idx {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let RowPicture { width, height, channels, pixels } = RowPicture::of(row, "image")?;
        if channels != 1 {
            return Err(Error::Rejected(format!("{channels} colours, but idx has grey images")));
        }
        let (rows, columns) = *self.shape.get_or_insert((height, width));
        if (rows, columns) != (height, width) {
            let reason = format!("{height} x {width}, but the first image has {rows} x {columns}");
            return Err(Error::Rejected(reason));
        }
        let label = match row.get("label") {
            Some(_) => Some(label(row)?),
            None => None,
        };
        if self.records == 0 && label.is_some() {
            self.labels = Some(self.create_labels()?);
        }
        match (&mut self.labels, label) {
            (Some(file), Some(label)) => file.append(&[label])?,
            (None, None) => {}
            _ => {
                return Err(Error::Rejected("some records have a label and some have none".into()));
            }
        }
        self.images.append(pixels)?;
        let more = self.records.checked_add(1);
        self.records =
            more.ok_or_else(|| Error::Rejected("more records than idx counts".into()))?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        let (rows, columns) = self.shape.unwrap_or_default();
        let counts = [self.records, rows, columns].map(u32::to_be_bytes);
        self.images.write_over(counts.as_flattened(), 4)?;
        if let Some(mut labels) = self.labels {
            labels.write_over(&self.records.to_be_bytes(), 4)?;
            labels.commit()?;
        }
        self.images.commit()
    }

    fn bytes(&self) -> u64 {
        self.images.count().get()
    }
}

fn label(row: &Row<'_>) -> Result<u8, Error> {
    let wrong = || Error::column("label", "idx has one whole number from 0 to 255");
    match row.ints("label")? {
        [label] => u8::try_from(*label).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn header(out: &mut Pending, numbers: &[u32]) -> Result<(), Error> {
    numbers.iter().try_for_each(|number| out.append(&number.to_be_bytes()))
}
