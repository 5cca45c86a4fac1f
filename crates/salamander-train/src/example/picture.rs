//! Pictures of any size as inputs: the bytes of a JPEG or PNG file, or the pixels that image folders give.

use std::borrow::Cow;

use salamander_data::Row;
use salamander_data::images::Image;

use super::kind::Float;
use super::{Column, DecodeError};

impl Column for Image {
    type Kind = Float;
    type Item = u8;

    fn read(row: &Row<'_>, columns: &[&str]) -> Result<Self, DecodeError> {
        let [column] = columns else {
            let reason = "a picture has one column: write column = \"x\"";
            return Err(DecodeError::new(columns.join(", "), reason));
        };
        Image::of_row(row, column).map_err(|error| DecodeError::of(column, error))
    }

    fn items(&self) -> impl Iterator<Item = u8> {
        self.planes()
    }

    // Never inlined, as with numbers: compiled with this crate, at its level of optimisation.
    #[inline(never)]
    fn floats(&self, out: &mut Vec<f32>) {
        out.extend(self.planes().map(f32::from));
    }

    #[inline(never)]
    fn ints(&self, out: &mut Vec<i64>) {
        out.extend(self.planes().map(i64::from));
    }

    fn zeros(len: usize) -> Self {
        let side = ((len / 3) as f64).sqrt() as u32;
        Image { width: side, height: side, pixels: vec![0; len] }
    }

    fn len(&self) -> usize {
        self.pixels.len()
    }
}

/// Pictures in the size that a model takes: those that training has not cut to it are resized and cut to their middle.
pub fn fitted<'a>(
    images: impl Iterator<Item = &'a Image>,
    [_, height, width]: [usize; 3],
) -> Vec<Cow<'a, Image>> {
    images.map(|image| image.fit(width as u32, height as u32)).collect()
}
