//! Draws which classes are taken for which, because a wrong pair stands out sooner in colour.

use std::io::Write;

use super::canvas::{Canvas, Color, Pen};
use super::colors::{INK, PAPER, color_of, ink_on};
use super::font;
use super::labels::{cut, shorten};

const PAD: usize = 16;
const GAP: usize = 8;
const BAR_WIDTH: usize = 16;
/// Names beyond this many characters would push the matrix out of sight.
const NAME_LIMIT: usize = 16;

/// For zeros, which matter less than what they surround.
const FAINT: Color = [178, 190, 204];
/// The lines between the cells and around them.
const LINE: Color = [206, 214, 224];

/// Writes a heat map of row-major confusion counts, truth by prediction, as PNG.
///
/// A cell's colour is its share of its row, so that rare classes show as clearly as frequent ones;
/// its text is the count, shortened where needed (`12k`), and left out of cells too small for it.
///
/// # Panics
/// If `counts` does not hold one count per pair of names.
pub fn confusion_png(
    names: &[String],
    counts: &[u64],
    out: &mut impl Write,
) -> Result<(), png::EncodingError> {
    assert_eq!(counts.len(), names.len() * names.len(), "one count per pair of classes");
    let layout = Layout::new(names);
    let mut canvas = Canvas::new(layout.width(), layout.height(), PAPER);
    draw_cells(&mut canvas, &layout, counts);
    draw_names(&mut canvas, &layout);
    draw_titles(&mut canvas, &layout);
    draw_bar(&mut canvas, &layout);
    canvas.write_png(out)
}

/// Where things go; everything follows from the number of classes and the length of their names.
struct Layout {
    names: Vec<String>,
    /// The side of a cell, in pixels.
    cell: usize,
    title: Pen,
    label: Pen,
    /// Every how many classes there is room for a name.
    name_step: usize,
    /// Whether the names below the columns have to be turned.
    turned: bool,
}

impl Layout {
    fn new(names: &[String]) -> Layout {
        let cell = (1280 / names.len().max(1)).clamp(6, 80);
        let label = Pen::new(INK, if cell >= 20 { 2 } else { 1 });
        let names: Vec<String> = names.iter().map(|name| cut(name, NAME_LIMIT)).collect();
        let turned = names.iter().any(|name| label.width(name) + GAP > cell);
        let name_step = (label.height() + 2).div_ceil(cell);
        Layout { names, cell, title: Pen::new(INK, 2), label, name_step, turned }
    }

    fn side(&self) -> usize {
        self.cell * self.names.len()
    }

    /// The left edge of the matrix.
    fn left(&self) -> usize {
        PAD + self.title.height() + 2 * GAP + self.longest_name() + GAP
    }

    /// The upper edge of the matrix.
    fn top(&self) -> usize {
        PAD
    }

    fn bar_left(&self) -> usize {
        self.left() + self.side() + 3 * GAP
    }

    fn bar_title_left(&self) -> usize {
        self.bar_left() + BAR_WIDTH + GAP + self.label.width("100%") + GAP
    }

    fn width(&self) -> usize {
        self.bar_title_left() + self.title.height() + PAD
    }

    fn bottom_title_top(&self) -> usize {
        let names = if self.turned { self.longest_name() } else { self.label.height() };
        self.top() + self.side() + GAP + names + 2 * GAP
    }

    fn height(&self) -> usize {
        self.bottom_title_top() + self.title.height() + PAD
    }

    fn longest_name(&self) -> usize {
        self.names.iter().map(|name| self.label.width(name)).max().unwrap_or(0)
    }
}

fn draw_cells(canvas: &mut Canvas, layout: &Layout, counts: &[u64]) {
    let (cell, classes) = (layout.cell, layout.names.len());
    // Lines between cells of a few pixels would outweigh the colours.
    let line = usize::from(cell >= 10);
    let frame = layout.side() + 2;
    canvas.rect((layout.left() - 1, layout.top() - 1), (frame, frame), LINE);
    let scale = text_scale(counts, cell);
    for (at, &count) in counts.iter().enumerate() {
        let (truth, predicted) = (at / classes, at % classes);
        let row: u64 = counts[truth * classes..][..classes].iter().sum();
        let fill = color_of(count as f64 / row.max(1) as f64);
        let (x, y) = (layout.left() + predicted * cell, layout.top() + truth * cell);
        canvas.rect((x, y), (cell - line, cell - line), fill);
        // Faint text of the smallest size is unreadable, so small zeros are left out.
        let Some(scale) = scale.filter(|&scale| count > 0 || scale > 1) else {
            continue;
        };
        let pen = Pen::new(if count == 0 { FAINT } else { ink_on(fill) }, scale);
        if let Some(text) = shorten(count, glyphs_within(cell, scale)) {
            let x = centred(x, cell, pen.width(&text));
            canvas.text((x, centred(y, cell, pen.height())), &text, pen);
        }
    }
}

fn draw_names(canvas: &mut Canvas, layout: &Layout) {
    let (cell, label) = (layout.cell, layout.label);
    let below = layout.top() + layout.side() + GAP;
    for (class, name) in layout.names.iter().enumerate().step_by(layout.name_step) {
        let y = centred(layout.top() + class * cell, cell, label.height());
        canvas.text((layout.left() - GAP - label.width(name), y), name, label);
        let column = layout.left() + class * cell;
        if layout.turned {
            canvas.text_upwards((centred(column, cell, label.height()), below), name, label);
        } else {
            canvas.text((centred(column, cell, label.width(name)), below), name, label);
        }
    }
}

fn draw_titles(canvas: &mut Canvas, layout: &Layout) {
    let (title, side) = (layout.title, layout.side());
    let y = centred(layout.top(), side, title.width("truth"));
    canvas.text_upwards((PAD, y), "truth", title);
    let x = centred(layout.left(), side, title.width("predicted"));
    canvas.text((x, layout.bottom_title_top()), "predicted", title);
}

/// The legend: which colour is which share of a row.
fn draw_bar(canvas: &mut Canvas, layout: &Layout) {
    let (left, top, side) = (layout.bar_left(), layout.top(), layout.side());
    canvas.rect((left - 1, top - 1), (BAR_WIDTH + 2, side + 2), LINE);
    for row in 0..side {
        let share = 1.0 - row as f64 / side as f64;
        canvas.rect((left, top + row), (BAR_WIDTH, 1), color_of(share));
    }
    let label = layout.label;
    for (text, row) in [("100%", 0), ("50%", side / 2), ("0%", side)] {
        // The outer labels stay within the bar's height.
        let y = centred(top + row, 0, label.height());
        let y = y.clamp(top, (top + side).saturating_sub(label.height()).max(top));
        canvas.text((left + BAR_WIDTH + GAP, y), text, label);
    }
    let y = centred(top, side, layout.title.width("share of row"));
    canvas.text_upwards((layout.bar_title_left(), y), "share of row", layout.title);
}

/// The largest scale at which the counts can be written, if there is one. Four characters tell a
/// count well enough; only the smallest scale may have to do with less.
fn text_scale(counts: &[u64], cell: usize) -> Option<usize> {
    let fits = |&scale: &usize| {
        let room = glyphs_within(cell, scale);
        let wanted = if scale == 1 { room } else { 4 };
        counts.iter().all(|&count| shorten(count, wanted).is_some_and(|text| text.len() <= room))
    };
    (1..=3).rev().find(fits)
}

/// How many glyphs fit side by side into a cell, with some air around them.
fn glyphs_within(cell: usize, scale: usize) -> usize {
    let inner = cell.saturating_sub(2 + 4 * scale);
    let tall = font::HEIGHT * scale > inner;
    if tall { 0 } else { (inner + scale) / (font::ADVANCE * scale) }
}

/// Where something of `size` starts, to sit in the middle of `extent` pixels after `start`.
fn centred(start: usize, extent: usize, size: usize) -> usize {
    (start + extent / 2).saturating_sub(size / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(classes: usize) -> Vec<String> {
        (0..classes).map(|class| format!("class {class}")).collect()
    }

    fn draw(names: &[String], counts: &[u64]) -> (png::OutputInfo, Vec<u8>) {
        let mut file = Vec::new();
        confusion_png(names, counts, &mut file).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        (reader.next_frame(&mut pixels).unwrap(), pixels)
    }

    #[test]
    fn any_number_of_classes_gives_a_picture_of_sensible_size() {
        for classes in [0, 1, 2, 10, 40, 200] {
            let (info, _) = draw(&names(classes), &vec![7; classes * classes]);
            assert!((100..1800).contains(&info.width), "{classes}: {}", info.width);
            assert!((60..1800).contains(&info.height), "{classes}: {}", info.height);
        }
    }

    #[test]
    fn cells_are_coloured_by_their_share_of_the_row() {
        let names = names(2);
        let (info, pixels) = draw(&names, &[1_000_000, 0, 0, 1]);
        let layout = Layout::new(&names);
        let corner = |truth, predicted| {
            let (x, y) =
                (layout.left() + predicted * layout.cell, layout.top() + truth * layout.cell);
            let at = y * info.line_size + x * 3;
            [pixels[at], pixels[at + 1], pixels[at + 2]]
        };
        assert_eq!(corner(0, 0), color_of(1.0));
        assert_eq!(corner(1, 1), color_of(1.0));
        assert_eq!(corner(0, 1), color_of(0.0));
    }

    #[test]
    fn small_cells_have_no_text() {
        assert_eq!(text_scale(&[1], 6), None);
        assert_eq!(text_scale(&[999], 32), Some(1));
        assert_eq!(text_scale(&[999], 80), Some(3));
        assert_eq!(text_scale(&[1_000], 80), Some(2), "rather smaller than shortened");
    }
}
