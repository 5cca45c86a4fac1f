//! The pixels in a row, for formats that hold nothing else and for training on them.

use crate::{Error, Row};

/// Pixels of one or three bytes, row by row.
pub(crate) struct RowPicture<'a> {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Bytes of a pixel: 1 is grey, 3 is red, green and blue.
    pub(crate) channels: u32,
    pub(crate) pixels: &'a [u8],
}

impl<'a> RowPicture<'a> {
    /// From a column such as `image` with `height` and `width`, as image folders give them; without these a
    /// grey square.
    pub(crate) fn of(row: &Row<'a>, column: &str) -> Result<RowPicture<'a>, Error> {
        let pixels = row.bytes(column)?;
        let (height, width) = match (row.get("height"), row.get("width")) {
            (Some(_), Some(_)) => (side(row, "height")?, side(row, "width")?),
            _ => {
                let side = (pixels.len() as f64).sqrt() as u32;
                (side, side)
            }
        };
        let area = u64::from(height) * u64::from(width);
        let channels = match pixels.len() as u64 {
            bytes if area > 0 && bytes == area => 1,
            bytes if area > 0 && bytes == 3 * area => 3,
            bytes => {
                let reason =
                    format!("{bytes} bytes are no {height} x {width} pixels: add height and width");
                return Err(Error::column(column, reason));
            }
        };
        Ok(RowPicture { width, height, channels, pixels })
    }
}

fn side(row: &Row<'_>, column: &str) -> Result<u32, Error> {
    let found = match row.ints(column)? {
        [side] => u32::try_from(*side).ok(),
        _ => None,
    };
    found.ok_or_else(|| Error::column(column, "not the side of an image"))
}
