//! The confusion matrix as a picture: PNG, which is what TensorBoard shows.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::about::Confusion;

/// The side of the picture that is aimed at, in pixels.
const SIDE: usize = 512;

/// A picture of red, green and blue bytes.
pub struct RgbPicture {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    pixels: Vec<u8>,
}

impl RgbPicture {
    /// Rows are the truth, columns what was predicted; the darker, the greater the share of the row.
    pub fn of_confusion(confusion: &Confusion) -> Self {
        let classes = confusion.names.len();
        let cell = (SIDE / classes.max(1)).clamp(2, 64);
        let side = cell * classes;
        let mut picture = Self { width: side, height: side, pixels: vec![255; side * side * 3] };
        for (truth, row) in confusion.counts.iter().enumerate() {
            let total: u64 = row.iter().sum();
            for (predicted, count) in row.iter().enumerate() {
                let share = if total == 0 { 0.0 } else { *count as f64 / total as f64 };
                picture.fill((predicted * cell, truth * cell), cell, shade(share));
            }
        }
        picture
    }

    /// A PNG file.
    pub fn to_png(&self) -> io::Result<Vec<u8>> {
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut header = Vec::new();
        header.extend((self.width as u32).to_be_bytes());
        header.extend((self.height as u32).to_be_bytes());
        // Eight bits of red, green and blue; no interlacing.
        header.extend([8, 2, 0, 0, 0]);
        chunk(&mut png, *b"IHDR", &header);
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.pixels.chunks_exact(self.width * 3) {
            packed.write_all(&[0])?;
            packed.write_all(row)?;
        }
        chunk(&mut png, *b"IDAT", &packed.finish()?);
        chunk(&mut png, *b"IEND", &[]);
        Ok(png)
    }

    fn fill(&mut self, (left, top): (usize, usize), cell: usize, color: [u8; 3]) {
        for y in top..top + cell {
            for x in left..left + cell {
                // One pixel of white between large cells.
                let gap = cell > 8 && (x == left || y == top);
                self.set(x, y, if gap { [255; 3] } else { color });
            }
        }
    }

    fn set(&mut self, x: usize, y: usize, color: [u8; 3]) {
        let at = (y * self.width + x) * 3;
        self.pixels[at..at + 3].copy_from_slice(&color);
    }
}

/// From almost white to dark blue.
fn shade(share: f64) -> [u8; 3] {
    let between = |from: f64, to: f64| (from + (to - from) * share.clamp(0.0, 1.0)) as u8;
    [between(239.0, 8.0), between(244.0, 64.0), between(250.0, 129.0)]
}

fn chunk(png: &mut Vec<u8>, kind: [u8; 4], bytes: &[u8]) {
    png.extend((bytes.len() as u32).to_be_bytes());
    png.extend(kind);
    png.extend(bytes);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&kind);
    checksum.update(bytes);
    png.extend(checksum.finalize().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(classes: usize) -> RgbPicture {
        let counts =
            |truth: usize| (0..classes).map(|other| if other == truth { 90 } else { 10 }).collect();
        RgbPicture::of_confusion(&Confusion {
            names: (0..classes).map(|class| class.to_string()).collect(),
            counts: (0..classes).map(counts).collect(),
        })
    }

    #[test]
    fn any_number_of_classes_has_a_picture() {
        for classes in [1, 2, 10, 100, 600] {
            let picture = picture(classes);
            assert_eq!(picture.pixels.len(), picture.width * picture.height * 3);
            let png = picture.to_png().expect("memory");
            assert!(png.starts_with(b"\x89PNG") && png.ends_with(b"IEND\xae\x42\x60\x82"));
        }
    }

    #[test]
    fn the_diagonal_of_a_good_classifier_is_darker() {
        let picture = picture(100);
        let cell = picture.width / 100;
        let at = |x: usize, y: usize| {
            picture.pixels[((y * cell + 1) * picture.width + x * cell + 1) * 3]
        };
        assert!(at(3, 3) < at(3, 4));
    }
}
