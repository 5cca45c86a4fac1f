//! Tables for a terminal: columns as wide as what is in them, long cells cut.

use salamander_hub::now;

/// The longest cell; what is cut is in `--json`.
const CELL: usize = 44;

/// A header and rows, as lines.
pub(super) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    let all: Vec<[String; N]> =
        std::iter::once(header.map(str::to_string)).chain(rows).map(|row| row.map(cut)).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    all.iter().map(line).collect()
}

fn cut(cell: String) -> String {
    let line = cell.lines().next().unwrap_or_default();
    match line.chars().count() > CELL {
        true => line.chars().take(CELL - 1).chain(['…']).collect(),
        false => line.to_string(),
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
        let lines = table(["id", "name"], rows);
        assert_eq!(lines[0], "id  name");
        assert_eq!(lines[1], format!("1   {}…", "x".repeat(43)));
        assert_eq!(lines[2], "20  y");
        assert_eq!((size(12), size(2_679_320)), ("12 B".to_string(), "2.7 MB".to_string()));
        assert_eq!(ago(Some(now() - 61_000)), "1 min ago");
    }
}
