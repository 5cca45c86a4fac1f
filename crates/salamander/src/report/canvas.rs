//! Just enough drawing for a report: rectangles and text on pixels, written as PNG.

use std::io::Write;

use super::font;

/// Red, green, blue.
pub(super) type Color = [u8; 3];

/// A pixel position, from the top left.
pub(super) type Point = (usize, usize);

/// An image being drawn. Whatever falls outside of it is cut off, so callers need no checks.
pub(super) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// How a line of text looks.
#[derive(Clone, Copy)]
pub(super) struct Pen {
    color: Color,
    /// Pixels per point of the font.
    scale: usize,
}

impl Pen {
    pub(super) fn new(color: Color, scale: usize) -> Pen {
        Pen { color, scale }
    }

    /// The width of `text` in pixels.
    pub(super) fn width(self, text: &str) -> usize {
        font::text_width(text) * self.scale
    }

    /// The height of a line in pixels.
    pub(super) fn height(self) -> usize {
        font::HEIGHT * self.scale
    }
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize, background: Color) -> Canvas {
        Canvas { width, height, pixels: background.repeat(width * height) }
    }

    pub(super) fn rect(&mut self, (x, y): Point, (width, height): (usize, usize), color: Color) {
        let columns = x.min(self.width)..(x + width).min(self.width);
        for row in y.min(self.height)..(y + height).min(self.height) {
            let start = row * self.width;
            self.pixels[(start + columns.start) * 3..(start + columns.end) * 3]
                .as_chunks_mut::<3>()
                .0
                .fill(color);
        }
    }

    /// Draws from left to right; `at` is the top left of the text.
    pub(super) fn text(&mut self, (x, y): Point, text: &str, pen: Pen) {
        for (column, row) in points(text) {
            self.point((x + column * pen.scale, y + row * pen.scale), pen);
        }
    }

    /// Draws from bottom to top; `at` is the top left of the turned text, where its last glyph is.
    pub(super) fn text_upwards(&mut self, (x, y): Point, text: &str, pen: Pen) {
        let last = font::text_width(text).saturating_sub(1);
        for (column, row) in points(text) {
            self.point((x + row * pen.scale, y + (last - column) * pen.scale), pen);
        }
    }

    pub(super) fn write_png(&self, out: &mut impl Write) -> Result<(), png::EncodingError> {
        // A canvas of more than 4 billion pixels a side cannot be allocated.
        let mut encoder = png::Encoder::new(out, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()
    }

    fn point(&mut self, at: Point, pen: Pen) {
        self.rect(at, (pen.scale, pen.scale), pen.color);
    }
}

/// The points that are set in a line of text, in the font's units.
fn points(text: &str) -> impl Iterator<Item = Point> {
    text.chars().enumerate().flat_map(|(index, character)| {
        let columns = font::glyph(character);
        (0..font::WIDTH * font::FULL_HEIGHT)
            .map(|at| (at % font::WIDTH, at / font::WIDTH))
            .filter(move |&(column, row)| columns[column] >> row & 1 == 1)
            .map(move |(column, row)| (index * font::ADVANCE + column, row))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Color = [255; 3];
    const PEN: Pen = Pen { color: [0; 3], scale: 1 };

    fn art(canvas: &Canvas) -> Vec<String> {
        let character = |&red: &u8| if red == 0 { '#' } else { '.' };
        let rows = canvas.pixels.chunks(canvas.width * 3);
        rows.map(|row| row.iter().step_by(3).map(character).collect()).collect()
    }

    #[test]
    fn text_reads_from_left_to_right() {
        let mut canvas = Canvas::new(6, 7, WHITE);
        canvas.text((0, 0), "L", PEN);
        assert_eq!(art(&canvas)[0], "#.....");
        assert_eq!(art(&canvas)[6], "#####.");
    }

    #[test]
    fn turned_text_reads_from_bottom_to_top() {
        let mut canvas = Canvas::new(7, 5, WHITE);
        canvas.text_upwards((0, 0), "L", PEN);
        assert_eq!(art(&canvas)[0], "......#");
        assert_eq!(art(&canvas)[4], "#######");
    }

    #[test]
    fn drawing_outside_is_cut_off() {
        let mut canvas = Canvas::new(3, 2, WHITE);
        canvas.rect((2, 1), (9, 9), [0; 3]);
        canvas.rect((7, 7), (1, 1), [0; 3]);
        assert_eq!(art(&canvas), ["...", "..#"]);
    }
}
