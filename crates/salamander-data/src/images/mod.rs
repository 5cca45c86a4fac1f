//! Folders of JPEG and PNG files whose subfolders are classes, and the usual transforms of image training.
//!
//! [`ImageFolder`] reads the records; [`Image`] is a decoded picture, and `transform` holds what can be done
//! to it.

mod folder;
mod transform;

use image::{ImageReader, Limits};

pub use folder::ImageFolder;

use crate::guard::guard;

/// Width or height of an image, at most.
const MAX_SIDE: u32 = 1 << 16;
/// Memory for decoding one image, at most.
const MAX_BYTES: u64 = 1 << 30;

/// A picture with 8 bits for each of red, green and blue, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The red, green and blue of a pixel.
    ///
    /// # Panics
    ///
    /// When the pixel is outside.
    pub fn pixel(&self, x: u32, y: u32) -> [u8; 3] {
        assert!(x < self.width && y < self.height, "pixel {x}, {y} of {self:?}");
        let at = 3 * (y as usize * self.width as usize + x as usize);
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}
