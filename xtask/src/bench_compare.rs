//! `cargo xtask bench-compare OLD NEW`: which figures of two runs of the benches moved, the worst first.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// Compares two files of figures, or two folders of them.
pub(crate) fn run(old: &Path, new: &Path, threshold: f64) -> anyhow::Result<()> {
    ensure!(threshold >= 0.0, "--threshold: write per cent, 0 or more");
    let (old, new) = (read_all(old)?, read_all(new)?);
    let compared = compare(&old, &new);
    ensure!(
        !compared.moved.is_empty(),
        "the two have no figure in common: compare files of the same bench"
    );
    print!("{}", compared.table(threshold));
    Ok(())
}

/// Figures by bench and name.
type Figures = BTreeMap<(String, String), Figure>;

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    unit: String,
    more_is_better: bool,
    value: f64,
}

/// A figure of both runs. A change of 0.1 is ten per cent better, one of -0.1 as much worse.
#[derive(Debug, PartialEq)]
struct Change {
    what: String,
    old: f64,
    new: f64,
    unit: String,
    change: f64,
}

#[derive(Debug, Default, PartialEq)]
struct Compared {
    /// The worst first.
    moved: Vec<Change>,
    only_old: Vec<String>,
    only_new: Vec<String>,
}

fn read_all(path: &Path) -> anyhow::Result<Figures> {
    let mut files = vec![path.to_path_buf()];
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
        let paths = entries.flatten().map(|entry| entry.path());
        let figures = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
        files = paths.filter(figures).collect();
        files.sort();
        ensure!(!files.is_empty(), "{}: no .jsonl files: run `cargo bench` first", path.display());
    }
    let mut all = Figures::new();
    for file in files {
        let text = fs::read_to_string(&file)
            .with_context(|| format!("{}: name a file or a folder of figures", file.display()))?;
        all.extend(parse(&text).with_context(|| file.display().to_string())?);
    }
    Ok(all)
}

fn parse(text: &str) -> anyhow::Result<Figures> {
    let mut lines = text.lines().enumerate().map(|(at, line)| {
        let value: Value = serde_json::from_str(line)
            .with_context(|| format!("line {}: not an object of JSON", at + 1))?;
        Ok::<_, anyhow::Error>((at + 1, value))
    });
    let (_, head) = lines.next().context("the file is empty")??;
    let bench = text_of(&head, "bench", 1)?;
    let mut figures = Figures::new();
    for line in lines {
        let (at, value) = line?;
        let better = text_of(&value, "better", at)?;
        ensure!(
            better == "more" || better == "less",
            "line {at}: \"better\" is \"{better}\", neither \"more\" nor \"less\""
        );
        let figure = Figure {
            unit: text_of(&value, "unit", at)?,
            more_is_better: better == "more",
            // What could not be measured is null.
            value: match value.get("value") {
                Some(Value::Null) => f64::NAN,
                Some(Value::Number(number)) => number.as_f64().unwrap_or(f64::NAN),
                _ => bail!("line {at}: \"value\" is missing or not a number"),
            },
        };
        figures.insert((bench.clone(), text_of(&value, "name", at)?), figure);
    }
    Ok(figures)
}

fn text_of(value: &Value, field: &str, line: usize) -> anyhow::Result<String> {
    let text = value.get(field).and_then(Value::as_str);
    Ok(text
        .with_context(|| format!("line {line}: \"{field}\" is missing or not text"))?
        .to_string())
}

fn compare(old: &Figures, new: &Figures) -> Compared {
    let name = |(bench, name): &(String, String)| format!("{bench}: {name}");
    let mut compared = Compared::default();
    for (key, before) in old {
        let Some(after) = new.get(key) else {
            compared.only_old.push(name(key));
            continue;
        };
        let ratio = match before.more_is_better {
            true => after.value / before.value,
            false => before.value / after.value,
        };
        compared.moved.push(Change {
            what: name(key),
            old: before.value,
            new: after.value,
            unit: after.unit.clone(),
            change: ratio - 1.0,
        });
    }
    compared.only_new = new.keys().filter(|key| !old.contains_key(*key)).map(name).collect();
    compared.moved.sort_by(|a, b| a.change.total_cmp(&b.change));
    compared
}

impl Compared {
    /// What moved by at least so many per cent.
    fn table(&self, threshold: f64) -> String {
        // A figure that is not a number on one side is always shown.
        let shown =
            |moved: &&Change| moved.change.is_nan() || moved.change.abs() * 100.0 >= threshold;
        let rows: Vec<&Change> = self.moved.iter().filter(shown).collect();
        let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0).max(4);
        let mut text =
            format!("{:<width$} {:>12} {:>12} {:>8}  unit\n", "what", "old", "new", "better");
        for row in &rows {
            let change = match row.change.is_nan() {
                true => "?".to_string(),
                false => format!("{:+.1} %", row.change * 100.0),
            };
            let Change { what, old, new, unit, .. } = row;
            text.push_str(&format!("{what:<width$} {old:>12.3} {new:>12.3} {change:>8}  {unit}\n"));
        }
        let rest = self.moved.len() - rows.len();
        text.push_str(&format!("{rest} figures moved by less than {threshold} %\n"));
        for (side, names) in [("old", &self.only_old), ("new", &self.only_new)] {
            names.iter().for_each(|name| text.push_str(&format!("only in the {side}: {name}\n")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "{\"bench\": \"b\", \"cores\": 2}\n\
        {\"name\": \"rate\", \"unit\": \"1/s\", \"better\": \"more\", \"value\": 100, \"peer\": null}\n\
        {\"name\": \"time\", \"unit\": \"ms\", \"better\": \"less\", \"value\": 8, \"peer\": 9}\n\
        {\"name\": \"still\", \"unit\": \"ms\", \"better\": \"less\", \"value\": 5}\n\
        {\"name\": \"gone\", \"unit\": \"ms\", \"better\": \"less\", \"value\": 5}\n";
    const NEW: &str = "{\"bench\": \"b\"}\n\
        {\"name\": \"rate\", \"unit\": \"1/s\", \"better\": \"more\", \"value\": 50}\n\
        {\"name\": \"time\", \"unit\": \"ms\", \"better\": \"less\", \"value\": 4}\n\
        {\"name\": \"still\", \"unit\": \"ms\", \"better\": \"less\", \"value\": 5.01}\n\
        {\"name\": \"come\", \"unit\": \"ms\", \"better\": \"less\", \"value\": null}\n";

    #[test]
    fn what_moved_is_shown_with_the_worst_first() {
        let compared = compare(&parse(OLD).unwrap(), &parse(NEW).unwrap());
        let table = compared.table(5.0);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("b: rate") && lines[1].contains("-50.0 %"), "{table}");
        assert!(lines[2].starts_with("b: time") && lines[2].contains("+100.0 %"), "{table}");
        assert_eq!(lines[3], "1 figures moved by less than 5 %");
        assert_eq!(&lines[4..], ["only in the old: b: gone", "only in the new: b: come"]);
    }

    #[test]
    fn a_figure_that_is_not_a_number_is_shown() {
        let null = NEW.replace("50}", "null}");
        let table = compare(&parse(OLD).unwrap(), &parse(&null).unwrap()).table(1000.0);
        assert!(
            table.lines().any(|line| line.starts_with("b: rate") && line.contains('?')),
            "{table}"
        );
    }

    #[test]
    fn mistakes_are_named_by_line_and_field() {
        let check = |text: &str, expected: &str| {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        };
        check("", "the file is empty");
        check("{}", "line 1: \"bench\" is missing or not text");
        check("{\"bench\": \"b\"}\nx", "line 2: not an object of JSON");
        check("{\"bench\": \"b\"}\n{\"name\": \"a\"}", "line 2: \"better\" is missing or not text");
        let figure = "{\"name\": \"a\", \"unit\": \"s\", \"better\": \"BETTER\", \"value\": VALUE}";
        let with = |better: &str, value: &str| {
            let figure = figure.replace("BETTER", better).replace("VALUE", value);
            format!("{{\"bench\": \"b\"}}\n{figure}")
        };
        check(&with("big", "1"), "line 2: \"better\" is \"big\", neither \"more\" nor \"less\"");
        check(&with("more", "\"1\""), "line 2: \"value\" is missing or not a number");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = run(Path::new("/nowhere/a.jsonl"), Path::new("/nowhere/b.jsonl"), 5.0);
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.starts_with("/nowhere/a.jsonl: name a file or a folder of figures"),
            "{error}"
        );
    }
}
