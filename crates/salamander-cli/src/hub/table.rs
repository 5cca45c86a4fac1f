//! Tables for a terminal: columns as wide as what is in them, long cells cut so that a row is one line.

use std::io::IsTerminal;

use salamander_hub::now;

/// The longest cell; what is cut is in `--json`.
const CELL: usize = 44;
/// No column is made narrower than this, however small the terminal is.
const NARROW: usize = 8;
/// Columns of a terminal that does not know how many it has.
const COLUMNS: usize = 80;

/// A header and rows, as lines: on a terminal, as wide as that is.
pub(super) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    fitted(header, rows, columns())
}

fn fitted<const N: usize>(
    header: [&str; N],
    rows: Vec<[String; N]>,
    columns: Option<usize>,
) -> Vec<String> {
    let first_line = |cell: String| cell.lines().next().unwrap_or_default().to_string();
    let all: Vec<[String; N]> = std::iter::once(header.map(str::to_string))
        .chain(rows)
        .map(|row| row.map(first_line))
        .collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0).min(CELL));
    let widths = columns.map_or(widths, |columns| narrowed(widths, columns));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, &width)| format!("{:<width$}", cut(cell, width)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    all.iter().map(line).collect()
}

/// The widest columns give way, until a line fits.
fn narrowed<const N: usize>(mut widths: [usize; N], columns: usize) -> [usize; N] {
    let room = columns.saturating_sub(2 * N.saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROW => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// Columns of the terminal that is written to; none: whoever reads it takes lines of any length.
fn columns() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let known = rustix::termios::tcgetwinsize(out).map_or(0, |size| usize::from(size.ws_col));
    Some(if known == 0 { COLUMNS } else { known })
}

fn cut(cell: &str, width: usize) -> String {
    match cell.chars().count() > width {
        true => cell.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => cell.to_string(),
    }
}

/// A number, or a dash.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), |value| format!("{value:.6}"))
}

/// How long ago a time in milliseconds was.
pub(super) fn ago(time: Option<i64>) -> String {
    let Some(time) = time else { return "-".to_string() };
    let seconds = (now() - time).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// A size for people.
pub(super) fn size(bytes: i64) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes < 1e3 => format!("{bytes} B"),
        _ if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        _ if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_long_cells_are_cut() {
        let rows = vec![["1".to_string(), "x".repeat(60)], ["20".to_string(), "y\nz".to_string()]];
        let lines = fitted(["id", "name"], rows, None);
        assert_eq!(lines[0], "id  name");
        assert_eq!(lines[1], format!("1   {}…", "x".repeat(43)));
        assert_eq!(lines[2], "20  y");
        let rows = vec![["1".to_string(), "x".repeat(60)]];
        let lines = fitted(["id", "name"], rows, Some(20));
        assert_eq!(lines, ["id  name".to_string(), format!("1   {}…", "x".repeat(15))]);
        let row = [(); 8].map(|()| "y".repeat(60));
        let lines = fitted([""; 8], vec![row.clone()], Some(100));
        assert!((93..=100).contains(&lines[1].chars().count()), "{lines:?}");
        let narrow = fitted([""; 8], vec![row], Some(10));
        assert_eq!(narrow[1].chars().count(), 8 * NARROW + 14, "it is read all the same");
        assert_eq!((size(12), size(2_679_320)), ("12 B".to_string(), "2.7 MB".to_string()));
        assert_eq!(ago(Some(now() - 61_000)), "1 min ago");
    }
}
