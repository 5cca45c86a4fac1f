//! A decoded picture.

use image::{ImageReader, Limits};

use crate::guard::guard;
use crate::row_picture::RowPicture;
use crate::{Error, Row};

/// What JPEG and PNG files begin with.
const SIGNATURES: [&[u8]; 2] = [&[0xff, 0xd8, 0xff], b"\x89PNG\r\n\x1a\n"];

/// Width or height of an image, at most.
const MAX_SIDE: u32 = 1 << 16;
/// Memory for decoding one image, at most.
const MAX_BYTES: u64 = 1 << 30;

/// A picture with 8 bits for each of red, green and blue, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
    /// Three bytes per pixel: height, width, channel.
    pub pixels: Vec<u8>,
}

impl Image {
    /// Decodes a JPEG or PNG file's bytes, whichever they are; the message says why not.
    pub fn decode(bytes: &[u8]) -> Result<Image, String> {
        let decode = || {
            let mut limits = Limits::default();
            limits.max_image_width = Some(MAX_SIDE);
            limits.max_image_height = Some(MAX_SIDE);
            limits.max_alloc = Some(MAX_BYTES);
            let mut reader = ImageReader::new(std::io::Cursor::new(bytes))
                .with_guessed_format()
                .map_err(|error| error.to_string())?;
            reader.limits(limits);
            let decoded = reader.decode().map_err(|error| error.to_string())?.into_rgb8();
            let (width, height) = decoded.dimensions();
            Ok(Image { width, height, pixels: decoded.into_raw() })
        };
        guard(decode)?
    }

    /// The picture in a column of a row: the bytes of a JPEG or PNG file, or pixels with the columns `height` and
    /// `width` as image folders give them, or those of a grey square. Grey pixels become equal reds, greens and blues.
    pub fn of_row(row: &Row<'_>, column: &str) -> Result<Image, Error> {
        let bytes = row.bytes(column)?;
        if SIGNATURES.iter().any(|signature| bytes.starts_with(signature)) {
            return Image::decode(bytes).map_err(|reason| Error::column(column, reason));
        }
        let RowPicture { width, height, channels, pixels } = RowPicture::of(row, column)?;
        let repeated = if channels == 1 { 3 } else { 1 };
        let pixels = pixels.iter().flat_map(|&value| std::iter::repeat_n(value, repeated));
        Ok(Image { width, height, pixels: pixels.collect() })
    }

    /// All reds, then all greens, then all blues, as convolutions take them.
    pub fn planes(&self) -> impl Iterator<Item = u8> {
        (0..3).flat_map(|channel| self.pixels.iter().skip(channel).step_by(3).copied())
    }
}
