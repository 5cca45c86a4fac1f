//! Draws which classes are taken for which, because a wrong pair stands out sooner in colour.

use std::fmt::Write;

use super::labels::{cut, shorten};

/// The side of a cell, the size of text, and the room between things.
const CELL: usize = 40;
const FONT: usize = 14;
const GAP: usize = 8;
/// Pictures of many classes are shown smaller than this, and can be zoomed.
const WIDEST: usize = 1280;
/// Names beyond this many characters would push the matrix out of sight.
const NAME_LIMIT: usize = 16;
/// Names of up to so many characters stand upright below the matrix; longer ones would touch each other.
const UPRIGHT: usize = 3;
/// The share of a font's size that a digit is wide; browsers' sans-serif fonts are a little narrower.
const DIGIT: f64 = 0.6;

/// A heat map of row-major confusion counts, truth by prediction, as SVG.
///
/// A cell's colour is its share of its row, so that rare classes show as clearly as frequent ones; its text is the
/// count, shortened where needed (`12k`), and pointing at it shows both in full. Cells without counts stay empty.
///
/// # Panics
/// If `counts` does not hold one count per pair of names.
pub fn confusion_svg(names: &[String], counts: &[u64]) -> String {
    let classes = names.len();
    assert_eq!(counts.len(), classes * classes, "one count per pair of classes");
    let short: Vec<String> = names.iter().map(|name| escape(&cut(name, NAME_LIMIT))).collect();
    let longest = names.iter().map(|name| name.chars().count().min(NAME_LIMIT)).max().unwrap_or(0);
    // Titles on the left and below, then names, then the matrix.
    let margin = FONT + 3 * GAP + (longest as f64 * FONT as f64 * DIGIT) as usize;
    let side = classes * CELL;
    let size = GAP + side + margin;
    let shown = size.min(WIDEST);
    let view = format!("-{margin} -{GAP} {size} {size}");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{shown}\" height=\"{shown}\" viewBox=\"{view}\" \
         font-family=\"sans-serif\" font-size=\"{FONT}\" fill=\"#26262e\" text-anchor=\"middle\">\n\
         <style>text {{ dominant-baseline: central }}</style>\n\
         <rect x=\"-{margin}\" y=\"-{GAP}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <path d=\"{}\" stroke=\"#ced6e0\"/>\n",
        grid(classes)
    );
    for (at, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (truth, predicted) = (at / classes, at % classes);
        let row: u64 = counts[truth * classes..][..classes].iter().sum();
        let share = count as f64 / row as f64;
        let told = format!("{} as {}: {count}", escape(&names[truth]), escape(&names[predicted]));
        draw_cell(&mut svg, &Cell { x: predicted * CELL, y: truth * CELL, count, share, told });
    }
    for (class, name) in short.iter().enumerate() {
        let (middle, below) = (class * CELL + CELL / 2, side + GAP);
        // Writing to a string cannot fail.
        let _ =
            writeln!(svg, "<text x=\"-{GAP}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>");
        let _ = match longest <= UPRIGHT {
            true => writeln!(svg, "<text x=\"{middle}\" y=\"{}\">{name}</text>", below + FONT / 2),
            false => writeln!(
                svg,
                "<text text-anchor=\"end\" transform=\"translate({middle} {below}) rotate(-90)\">{name}</text>"
            ),
        };
    }
    let (middle, edge) = (side / 2, margin - GAP - FONT / 2);
    let _ = writeln!(
        svg,
        "<text transform=\"translate(-{edge} {middle}) rotate(-90)\">truth</text>\n\
         <text x=\"{middle}\" y=\"{}\">predicted</text>\n</svg>",
        side + edge
    );
    svg
}

/// The lines between cells, and around them: cells without counts draw nothing.
fn grid(classes: usize) -> String {
    let side = classes * CELL;
    let lines = (0..=classes).map(|line| line * CELL);
    lines.map(|at| format!("M0 {at}h{side}M{at} 0v{side}")).collect()
}

/// How many samples of one class were taken for another.
struct Cell {
    x: usize,
    y: usize,
    count: u64,
    share: f64,
    told: String,
}

fn draw_cell(svg: &mut String, cell: &Cell) {
    let Cell { x, y, count, share, told } = cell;
    let (fill, ink) = (color_of(*share), if depth(*share) > 0.5 { "#fff" } else { "#26262e" });
    let shown = shorten(*count, 4).unwrap_or_default();
    let (middle, percent) = (CELL / 2, 100.0 * share);
    let _ = writeln!(
        svg,
        "<g transform=\"translate({x} {y})\"><title>{told} ({percent:.2} %)</title>\
         <rect width=\"{CELL}\" height=\"{CELL}\" fill=\"{fill}\" stroke=\"#ced6e0\"/>\
         <text x=\"{middle}\" y=\"{middle}\" fill=\"{ink}\">{shown}</text></g>"
    );
}

/// How dark a share between 0 and 1 is. Errors are a few percent of a row; if this were linear, all of them would look
/// like zero.
fn depth(share: f64) -> f64 {
    share.clamp(0.0, 1.0).powf(0.6)
}

/// From paper to a dark blue, so that it survives a grey print.
fn color_of(share: f64) -> String {
    let mix = |dark: f64| (255.0 - depth(share) * (255.0 - dark)) as u8;
    let [red, green, blue] = [8.0, 48.0, 107.0].map(mix);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
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
            let svg = confusion_svg(&names(classes), &vec![7; classes * classes]);
            let width = svg.split("width=\"").nth(1).and_then(|rest| rest.split('"').next());
            let width: usize = width.expect("there").parse().expect("a number");
            assert!((40..=WIDEST).contains(&width), "{classes}: {width}");
            assert_eq!(svg.matches("<rect").count(), classes * classes + 1);
            assert_eq!(svg.matches("<text").count(), classes * classes + 2 * classes + 2);
        }
    }

    #[test]
    fn cells_are_coloured_by_their_share_of_the_row() {
        let names = ["a<b".to_string(), "c&d".to_string()];
        let svg = confusion_svg(&names, &[750_000, 250_000, 0, 1]);
        for (told, share) in [
            ("a&lt;b as a&lt;b: 750000 (75.00 %)", 0.75),
            ("a&lt;b as c&amp;d: 250000 (25.00 %)", 0.25),
            ("c&amp;d as c&amp;d: 1 (100.00 %)", 1.0),
        ] {
            let cell = svg.lines().find(|line| line.contains(told)).expect("drawn");
            assert!(cell.contains(&color_of(share)), "{cell}");
        }
        assert!(svg.contains(">750k<") && svg.contains(">a&lt;b<"), "{svg}");
        assert!(!svg.contains("c&amp;d as a&lt;b"), "there are none: {svg}");
    }

    #[test]
    fn short_names_stand_upright_and_every_cell_has_an_edge() {
        let rotated = |names: [&str; 2]| {
            let svg = confusion_svg(&names.map(str::to_owned), &[1, 0, 0, 1]);
            assert!(svg.contains(&grid(2)), "{svg}");
            svg.matches("rotate(-90)").count()
        };
        assert_eq!(rotated(["0", "yes"]), 1, "the title alone");
        assert_eq!(rotated(["0", "maybe"]), 3);
    }

    #[test]
    fn larger_shares_are_darker() {
        assert_eq!((color_of(0.0).as_str(), color_of(1.0).as_str()), ("#ffffff", "#08306b"));
        let darkness = |percent: i32| depth(f64::from(percent) / 100.0);
        assert!((0..100).all(|percent| darkness(percent) < darkness(percent + 1)));
    }
}
