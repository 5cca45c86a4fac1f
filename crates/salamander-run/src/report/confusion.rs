//! Draws which classes are taken for which, because a wrong pair stands out sooner in colour.

use std::fmt::Write;

use super::colors::{Color, INK, PAPER, color_of, ink_on};
use super::labels::{cut, shorten};

const PAD: usize = 16;
const GAP: usize = 8;
const BAR_WIDTH: usize = 16;
const TITLE: usize = 16;
/// Names beyond this many characters would push the matrix out of sight.
const NAME_LIMIT: usize = 16;
/// The share of a font's size that a digit is wide; browsers' sans-serif fonts are a little narrower.
const DIGIT: f64 = 0.6;

/// For zeros, which matter less than what they surround.
const FAINT: Color = Color([178, 190, 204]);
/// The lines around the cells.
const LINE: Color = Color([206, 214, 224]);

/// A heat map of row-major confusion counts, truth by prediction, as SVG.
///
/// A cell's colour is its share of its row, so that rare classes show as clearly as frequent ones;
/// its text is the count, shortened where needed (`12k`), and left out of cells too small for it.
///
/// # Panics
/// If `counts` does not hold one count per pair of names.
pub fn confusion_svg(names: &[String], counts: &[u64]) -> String {
    assert_eq!(counts.len(), names.len() * names.len(), "one count per pair of classes");
    let layout = Layout::new(names);
    let (width, height) = (layout.width(), layout.height());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n"
    );
    draw_cells(&mut svg, &layout, counts);
    draw_names(&mut svg, &layout);
    draw_titles(&mut svg, &layout);
    draw_bar(&mut svg, &layout);
    svg.push_str("</svg>\n");
    svg
}

/// Where things go; everything follows from the number of classes and the length of their names.
struct Layout {
    names: Vec<String>,
    /// The side of a cell.
    cell: usize,
    /// The size of names.
    font: usize,
    /// Every how many classes there is room for a name.
    name_step: usize,
    /// Whether the names below the columns have to be turned.
    turned: bool,
}

impl Layout {
    fn new(names: &[String]) -> Layout {
        let cell = (1280 / names.len().max(1)).clamp(6, 80);
        let font = if cell >= 20 { 14 } else { 9 };
        let names: Vec<String> = names.iter().map(|name| cut(name, NAME_LIMIT)).collect();
        let turned = names.iter().any(|name| text_width(name, font) + GAP > cell);
        Layout { names, cell, font, name_step: (font + 2).div_ceil(cell), turned }
    }

    fn side(&self) -> usize {
        self.cell * self.names.len()
    }

    fn longest_name(&self) -> usize {
        self.names.iter().map(|name| text_width(name, self.font)).max().unwrap_or(0)
    }

    /// The left edge of the matrix.
    fn left(&self) -> usize {
        PAD + TITLE + 2 * GAP + self.longest_name() + GAP
    }

    fn bar_left(&self) -> usize {
        self.left() + self.side() + 3 * GAP
    }

    fn bar_title_left(&self) -> usize {
        self.bar_left() + BAR_WIDTH + GAP + text_width("100%", self.font) + GAP
    }

    fn width(&self) -> usize {
        self.bar_title_left() + TITLE + PAD
    }

    fn bottom_title(&self) -> usize {
        let names = if self.turned { self.longest_name() } else { self.font };
        PAD + self.side() + GAP + names + 2 * GAP + TITLE
    }

    fn height(&self) -> usize {
        self.bottom_title() + PAD
    }
}

fn text_width(text: &str, font: usize) -> usize {
    (text.chars().count() as f64 * font as f64 * DIGIT).ceil() as usize
}

/// A text: where, how large, and how it lies there.
struct Text {
    x: usize,
    y: usize,
    font: usize,
    anchor: &'static str,
    upwards: bool,
    color: Color,
}

impl Text {
    fn draw(&self, svg: &mut String, text: &str) {
        let Text { x, y, font, anchor, color, .. } = self;
        let turn = if self.upwards {
            format!(" transform=\"rotate(-90 {x} {y})\"")
        } else {
            String::new()
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{font}\" text-anchor=\"{anchor}\" \
             dominant-baseline=\"central\" fill=\"{color}\"{turn}>{text}</text>"
        );
    }
}

/// A filled rectangle.
struct Rect {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    fill: Color,
}

impl Rect {
    fn draw(&self, svg: &mut String) {
        let Rect { x, y, width, height, fill } = self;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }
}

fn draw_cells(svg: &mut String, layout: &Layout, counts: &[u64]) {
    let (cell, classes) = (layout.cell, layout.names.len());
    // Lines between cells of a few pixels would outweigh the colours.
    let line = usize::from(cell >= 10);
    let (x, frame) = (layout.left() - 1, layout.side() + 2);
    Rect { x, y: PAD - 1, width: frame, height: frame, fill: LINE }.draw(svg);
    let font = (cell / 4).min(18);
    for (at, &count) in counts.iter().enumerate() {
        let (truth, predicted) = (at / classes, at % classes);
        let row: u64 = counts[truth * classes..][..classes].iter().sum();
        let fill = color_of(count as f64 / row.max(1) as f64);
        let (x, y) = (layout.left() + predicted * cell, PAD + truth * cell);
        Rect { x, y, width: cell - line, height: cell - line, fill }.draw(svg);
        // Smaller text could not be read.
        let shown = shorten(count, 4).filter(|_| font >= 7);
        let color = if count == 0 { FAINT } else { ink_on(fill) };
        let (x, y) = (x + cell / 2, y + cell / 2);
        let text = Text { x, y, font, anchor: "middle", upwards: false, color };
        shown.iter().for_each(|shown| text.draw(svg, shown));
    }
}

fn draw_names(svg: &mut String, layout: &Layout) {
    let (cell, font, upwards) = (layout.cell, layout.font, layout.turned);
    let below = PAD + layout.side() + GAP;
    for (class, name) in layout.names.iter().enumerate().step_by(layout.name_step) {
        let middle = class * cell + cell / 2;
        let (x, y) = (layout.left() - GAP, PAD + middle);
        Text { x, y, font, anchor: "end", upwards: false, color: INK }.draw(svg, name);
        let (anchor, y) = if upwards { ("end", below) } else { ("middle", below + font / 2) };
        Text { x: layout.left() + middle, y, font, anchor, upwards, color: INK }.draw(svg, name);
    }
}

fn draw_titles(svg: &mut String, layout: &Layout) {
    let middle = layout.side() / 2;
    let text = |x, y, upwards| Text { x, y, font: TITLE, anchor: "middle", upwards, color: INK };
    text(PAD + TITLE / 2, PAD + middle, true).draw(svg, "truth");
    text(layout.left() + middle, layout.bottom_title() - TITLE / 2, false).draw(svg, "predicted");
    text(layout.bar_title_left() + TITLE / 2, PAD + middle, true).draw(svg, "share of row");
}

/// The legend: which colour is which share of a row.
fn draw_bar(svg: &mut String, layout: &Layout) {
    const STEPS: usize = 32;
    let (left, side, font) = (layout.bar_left(), layout.side(), layout.font);
    let (width, height) = (BAR_WIDTH + 2, side + 2);
    Rect { x: left - 1, y: PAD - 1, width, height, fill: LINE }.draw(svg);
    for step in 0..STEPS {
        let (from, to) = (side * step / STEPS, side * (step + 1) / STEPS);
        let fill = color_of(1.0 - (step as f64 + 0.5) / STEPS as f64);
        Rect { x: left, y: PAD + from, width: BAR_WIDTH, height: to - from, fill }.draw(svg);
    }
    // The outer labels stay within the bar's height.
    let lowest = side.saturating_sub(font / 2).max(font / 2);
    for (text, row) in [("100%", font / 2), ("50%", side / 2), ("0%", lowest)] {
        let (x, y) = (left + BAR_WIDTH + GAP, PAD + row);
        Text { x, y, font, anchor: "start", upwards: false, color: INK }.draw(svg, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(classes: usize) -> Vec<String> {
        (0..classes).map(|class| format!("class {class}")).collect()
    }

    #[test]
    fn any_number_of_classes_gives_a_picture_of_sensible_size() {
        for classes in [0, 1, 2, 10, 40, 200] {
            let layout = Layout::new(&names(classes));
            let svg = confusion_svg(&names(classes), &vec![7; classes * classes]);
            assert!((100..1800).contains(&layout.width()), "{classes}: {}", layout.width());
            assert!((60..1800).contains(&layout.height()), "{classes}: {}", layout.height());
            assert_eq!(svg.matches("<rect").count(), classes * classes + 2 + 1 + 32);
        }
    }

    #[test]
    fn cells_are_coloured_by_their_share_of_the_row() {
        let names = ["a<b".to_string(), "c&d".to_string()];
        let svg = confusion_svg(&names, &[1_000_000, 0, 0, 1]);
        let layout = Layout::new(&names);
        let cell = |truth: usize, predicted: usize, share: f64| {
            let (x, y) = (layout.left() + predicted * layout.cell, PAD + truth * layout.cell);
            let side = layout.cell - 1;
            let fill = color_of(share);
            let cell = format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"{fill}\"/>"
            );
            assert!(svg.contains(&cell), "{cell} in {svg}");
        };
        cell(0, 0, 1.0);
        cell(1, 1, 1.0);
        cell(0, 1, 0.0);
        assert!(svg.contains(">1.0M<") && svg.contains(">a&lt;b<") && svg.contains(">c&amp;d<"));
    }

    #[test]
    fn small_cells_have_no_text() {
        let svg = confusion_svg(&names(200), &vec![7; 200 * 200]);
        assert!(!svg.contains(">7<"));
    }
}
