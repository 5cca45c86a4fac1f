//! Folders of JPEG and PNG files whose subfolders are classes, and the usual transforms of image training.
//!
//! `folder` reads the records; [`Image`] is a decoded picture, and `transform` holds what can be done to it.

#[cfg(feature = "images")]
mod folder;
#[cfg(feature = "images")]
mod picture;
#[cfg(feature = "images")]
mod transform;

#[cfg(feature = "images")]
pub use picture::Image;

use crate::format::Definition;

pub(crate) static FORMAT: Definition = Definition {
    #[cfg(feature = "images")]
    is_folder: Some(folder::looks_like),
    #[cfg(not(feature = "images"))]
    is_folder: Some(|_| false),
    #[cfg(feature = "images")]
    open: Some(folder::open),
    #[cfg(feature = "images")]
    create: Some(crate::sink::images::create),
    ..Definition::named("images")
};
