//! Small public tables of the zoo: irises, hearts, and the apps of Frappe, from their published files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use salamander_data::{Format, Row, Value, sink};

use crate::fetch::read_all;

/// Every so many records one is kept to validate on.
const HELD_BACK: usize = 5;
/// No file of these is larger.
const LARGEST: u64 = 64 << 20;

/// A table that is published as one file.
pub(crate) struct PublishedTable {
    /// Names of its file, as different places have it.
    files: &'static [&'static str],
    /// Where it is on the web.
    address: &'static str,
    columns: &'static [&'static str],
    /// The cells of a record; nothing for a line that is none, such as a heading.
    read: fn(&[&str]) -> Result<Option<Vec<String>>>,
}

pub(crate) const IRIS: PublishedTable = PublishedTable {
    files: &["iris.data", "iris.dat", "iris.csv"],
    address: "https://archive.ics.uci.edu/ml/machine-learning-databases/iris/iris.data",
    columns: &["sepal_length", "sepal_width", "petal_length", "petal_width", "species"],
    read: iris,
};

pub(crate) const HEART: PublishedTable = PublishedTable {
    files: &["heart.csv", "heart.dat"],
    address: "https://storage.googleapis.com/download.tensorflow.org/data/heart.csv",
    columns: &[
        "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
        "slope", "ca", "thal", "target",
    ],
    read: heart,
};

/// Writes `train.csv` and `valid.csv` into `out` and returns their paths. `source` is the file, or a folder that has
/// it; without it, it is fetched.
pub(crate) fn fetch(
    table: &PublishedTable,
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let place = match source {
        Some(source) => in_folder(source, table.files)?,
        None => table.address.to_string(),
    };
    let rows = records(table, &text(&place)?).with_context(|| place.clone())?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for (name, held_back) in [("train.csv", false), ("valid.csv", true)] {
        let own = rows.iter().enumerate().filter(|(at, _)| (at % HELD_BACK == 0) == held_back);
        let own: Vec<&Vec<String>> = own.map(|(_, row)| row).collect();
        paths.push(write(table.columns, &own, &out.join(name), progress)?);
    }
    Ok(paths)
}

/// The file itself, or the first of the names that a folder has.
fn in_folder(source: &str, names: &[&str]) -> Result<String> {
    let folder = Path::new(source);
    if !folder.is_dir() {
        return Ok(source.to_string());
    }
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let found = found.with_context(|| format!("{source}: has none of {}", names.join(", ")))?;
    Ok(found.display().to_string())
}

fn text(place: &str) -> Result<String> {
    let bytes = read_all(place, LARGEST)?;
    let bytes = bytes.with_context(|| format!("{place}: there is no such file"))?;
    String::from_utf8(bytes).with_context(|| format!("{place}: no text"))
}

/// Cells stand between commas or spaces.
fn records(table: &PublishedTable, text: &str) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = match line.contains(',') {
            true => line.split(',').map(str::trim).collect(),
            false => line.split_whitespace().collect(),
        };
        let row = (table.read)(&cells).with_context(|| format!("line {}", number + 1))?;
        rows.extend(row);
    }
    ensure!(rows.len() >= 2 * HELD_BACK, "only {} records", rows.len());
    Ok(rows)
}

/// Four lengths and a species: its name, with or without the genus, or its number.
fn iris(cells: &[&str]) -> Result<Option<Vec<String>>> {
    const SPECIES: [&str; 3] = ["setosa", "versicolor", "virginica"];
    let [lengths @ .., species] = cells else { return Ok(None) };
    if lengths.iter().any(|length| length.parse::<f32>().is_err()) || species.starts_with("virg") {
        return Ok(None);
    }
    ensure!(lengths.len() == 4, "{} cells, and a flower has 5", cells.len());
    let species = species.trim_matches('"').trim_start_matches("Iris-").to_lowercase();
    let number =
        species.parse::<usize>().ok().or_else(|| SPECIES.iter().position(|s| *s == species));
    let Some(name) = number.and_then(|number| SPECIES.get(number)) else {
        bail!("{species:?} is no species: {} are", SPECIES.join(", "));
    };
    Ok(Some(lengths.iter().map(ToString::to_string).chain([name.to_string()]).collect()))
}

/// Thirteen values and a target: 0 and 1 beside words for `thal`, or 1 and 2 beside its numbers.
fn heart(cells: &[&str]) -> Result<Option<Vec<String>>> {
    let [values @ .., thal, target] = cells else { return Ok(None) };
    if values.first().is_some_and(|age| age.parse::<f32>().is_err()) {
        return Ok(None);
    }
    ensure!(values.len() == 12, "{} cells, and a patient has 14", cells.len());
    let coded = thal.parse::<f32>().ok();
    let (thal, absent) = match (coded, *thal) {
        (Some(6.0), _) | (None, "fixed") => ("fixed", 1),
        (Some(7.0), _) | (None, "reversible") => ("reversible", 1),
        // A few records of TensorFlow's file have a number where a word is due.
        _ => ("normal", if coded == Some(3.0) { 1 } else { 0 }),
    };
    let absent = if coded.is_some() { absent } else { 0 };
    let target = target.parse::<f32>().with_context(|| format!("{target:?} is no class"))? as i32;
    let target = target - absent;
    ensure!((0..=1).contains(&target), "the class is {target}");
    let values = values.iter().map(ToString::to_string);
    Ok(Some(values.chain([thal.to_string(), target.to_string()]).collect()))
}

/// Frappe as libFM has it, lines of a class and ten features (`-1 451:1 4149:1 ..`), as a column for each.
pub(crate) fn frappe(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    const ADDRESS: &str = "https://raw.githubusercontent.com/hexiangnan/neural_factorization_machine/master/data/frappe";
    const COLUMNS: [&str; 11] =
        ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "label"];
    let source = source.unwrap_or(ADDRESS).trim_end_matches('/');
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for (name, written) in [("train", "train.csv"), ("validation", "valid.csv")] {
        let place = format!("{source}/frappe.{name}.libfm");
        let text = text(&place)?;
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let row = visit(line).with_context(|| format!("{place}: line {}", number + 1))?;
            rows.push(row);
        }
        let rows: Vec<&Vec<String>> = rows.iter().collect();
        paths.push(write(&COLUMNS, &rows, &out.join(written), progress)?);
    }
    Ok(paths)
}

fn visit(line: &str) -> Result<Vec<String>> {
    let mut cells = line.split_whitespace();
    let label = match cells.next() {
        Some("-1" | "0") => "0",
        Some("1") => "1",
        other => bail!("the class is {:?}, not 1 or -1", other.unwrap_or_default()),
    };
    let feature = |cell: &str| match cell.split_once(':') {
        Some((id, "1")) if id.parse::<u32>().is_ok() => Ok(id.to_string()),
        _ => bail!("{cell:?} is no feature such as 451:1"),
    };
    let mut row = cells.map(feature).collect::<Result<Vec<String>>>()?;
    ensure!(row.len() == 10, "{} features, and there are 10", row.len());
    row.push(label.to_string());
    Ok(row)
}

fn write(
    columns: &[&'static str],
    rows: &[&Vec<String>],
    path: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let mut file = sink::create(path, Format::Csv)?;
    for row in rows {
        let cells = columns.iter().zip(row.iter());
        let cells = cells.map(|(name, cell)| ((*name).into(), Value::Text(cell))).collect();
        file.write(&Row::new(cells))?;
    }
    file.finish()?;
    progress(&format!("{}: {} records", path.display(), rows.len()));
    Ok(path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: fn(&[&str]) -> Result<Option<Vec<String>>>, line: &str, expected: &str) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let found = match read(&cells) {
            Ok(Some(row)) => row.join(","),
            Ok(None) => "none".to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn flowers_are_read_as_three_places_publish_them() {
        check(iris, "5.1,3.5,1.4,0.2,Iris-setosa", "5.1,3.5,1.4,0.2,setosa");
        check(iris, "5.1, 3.5, 1.4, 0.2, Iris-virginica", "5.1,3.5,1.4,0.2,virginica");
        check(iris, "5.1,3.5,1.4,0.2,1", "5.1,3.5,1.4,0.2,versicolor");
        check(iris, "150,4,setosa,versicolor,virginica", "none");
        check(iris, "5.1,3.5,1.4,setosa", "4 cells, and a flower has 5");
        check(
            iris,
            "5.1,3.5,1.4,0.2,rose",
            "\"rose\" is no species: setosa, versicolor, virginica are",
        );
    }

    #[test]
    fn patients_are_read_as_two_places_publish_them() {
        let start = "63,1,1,145,233,1,2,150,0,2.3,3,0";
        check(heart, &format!("{start},fixed,0"), &format!("{start},fixed,0"));
        check(heart, &format!("{start},normal,1"), &format!("{start},normal,1"));
        check(heart, &format!("{start},3,2"), &format!("{start},normal,1"));
        check(heart, &format!("{start},7,1"), &format!("{start},reversible,0"));
        check(heart, &format!("{start},7,3"), "the class is 2");
        check(heart, "age,sex,cp,target", "none");
        check(heart, "63,1,1,2", "4 cells, and a patient has 14");
    }

    #[test]
    fn features_of_apps_are_columns() {
        let line = "-1 451:1 4149:1 5041:1 5046:1 5053:1 5055:1 5058:1 5060:1 5069:1 5149:1";
        let found = visit(line).expect("a record").join(",");
        assert_eq!(found, "451,4149,5041,5046,5053,5055,5058,5060,5069,5149,0");
        let error = |line: &str| visit(line).expect_err("no record").to_string();
        assert_eq!(error("2 1:1"), "the class is \"2\", not 1 or -1");
        assert_eq!(error("1 1:1"), "1 features, and there are 10");
        assert_eq!(error("1 1:0.5"), "\"1:0.5\" is no feature such as 451:1");
    }
}
