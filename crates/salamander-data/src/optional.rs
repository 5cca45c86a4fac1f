//! The formats that a small program can be built without; one that is missing says so when it is asked for.

use std::path::Path;

use crate::{Error, Reader};

/// Decoded blocks of all Parquet files of one reader.
#[derive(Default)]
pub(crate) struct Shared {
    #[cfg(feature = "parquet")]
    blocks: std::sync::Arc<crate::parquet::Cache>,
}

impl Shared {
    #[cfg(feature = "parquet")]
    pub(crate) fn parquet(&self, file: &Path) -> Result<Box<dyn Reader>, Error> {
        let blocks = std::sync::Arc::clone(&self.blocks);
        Ok(Box::new(crate::parquet::ParquetFile::open_with(file, None, blocks)?))
    }

    #[cfg(not(feature = "parquet"))]
    pub(crate) fn parquet(&self, file: &Path) -> Result<Box<dyn Reader>, Error> {
        Err(missing(file, "parquet"))
    }
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite(file: &Path) -> Result<Box<dyn Reader>, Error> {
    Ok(Box::new(crate::sqlite::SqliteTable::open(file)?))
}

#[cfg(not(feature = "sqlite"))]
pub(crate) fn sqlite(file: &Path) -> Result<Box<dyn Reader>, Error> {
    Err(missing(file, "sqlite"))
}

#[cfg(feature = "images")]
pub(crate) fn images(folder: &Path) -> Result<Box<dyn Reader>, Error> {
    Ok(Box::new(crate::images::ImageFolder::open(folder)?))
}

#[cfg(not(feature = "images"))]
pub(crate) fn images(folder: &Path) -> Result<Box<dyn Reader>, Error> {
    Err(missing(folder, "images"))
}

/// True for a folder whose subfolders are classes of images.
pub(crate) fn has_classes(folder: &Path) -> bool {
    #[cfg(feature = "images")]
    return crate::images::ImageFolder::looks_like(folder);
    #[cfg(not(feature = "images"))]
    {
        let _ = folder;
        false
    }
}

#[cfg(not(all(feature = "parquet", feature = "sqlite", feature = "images")))]
fn missing(path: &Path, feature: &str) -> Error {
    let reason = format!("this program was built without {feature}: build it with that feature");
    Error::Form { path: path.to_owned(), reason }
}
