//! Reviews of films with a score each, from the data that VADER was measured on, as texts of two classes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use salamander_data::{Format, Row, Value, sink};

/// The file inside of VADER's archive.
const FILE: &str = "movieReviewSnippets_GroundTruth.txt";
/// Every so many reviews one is kept to validate on.
const HELD_BACK: usize = 10;

/// A review.
#[derive(Debug, PartialEq)]
struct Review<'a> {
    label: &'static str,
    text: &'a str,
}

/// Writes `train.csv` and `valid.csv` with the columns `text` and `label` into `out` and returns their paths.
/// `source` is the file, or a folder that has it.
pub(crate) fn fetch(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let Some(source) = source else {
        bail!(
            "reviews: say where they are with --from: {FILE} is in hutto_ICWSM_2014.tar.gz, below additional_resources \
             of vaderSentiment 3.3.2 (`pip download --no-deps --no-binary :all: vaderSentiment==3.3.2`)"
        );
    };
    let source = Path::new(source);
    let path = if source.is_dir() { source.join(FILE) } else { source.to_path_buf() };
    let bytes = fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
    // A few letters of the file are in another encoding.
    let text = String::from_utf8_lossy(&bytes);
    let reviews = parse(&text).with_context(|| path.display().to_string())?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for (name, held_back) in [("train.csv", false), ("valid.csv", true)] {
        let path = out.join(name);
        let numbered = reviews.iter().enumerate();
        let own = numbered.filter(|(at, _)| (at % HELD_BACK == 0) == held_back);
        let records = write(own.map(|(_, review)| review), &path)?;
        progress(&format!("{}: {records} records", path.display()));
        paths.push(path);
    }
    Ok(paths)
}

/// Lines of an id, a score and a text; a score of zero is neither for nor against.
fn parse(text: &str) -> Result<Vec<Review<'_>>> {
    let mut reviews = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut cells = line.splitn(3, '\t').skip(1);
        let score = cells.next().and_then(|score| score.trim().parse::<f32>().ok());
        let (Some(score), Some(text)) = (score, cells.next()) else {
            bail!(
                "line {}: an id, a score and a text with tabs between them are needed",
                number + 1
            )
        };
        let label = match score {
            score if score > 0.0 => "positive",
            score if score < 0.0 => "negative",
            _ => continue,
        };
        reviews.push(Review { label, text: text.trim() });
    }
    ensure!(reviews.len() >= HELD_BACK, "only {} reviews", reviews.len());
    Ok(reviews)
}

fn write<'a>(reviews: impl Iterator<Item = &'a Review<'a>>, path: &Path) -> Result<u64> {
    let mut file = sink::create(path, Format::Csv)?;
    let mut records = 0;
    for Review { label, text } in reviews {
        let cells = vec![("text".into(), Value::Text(text)), ("label".into(), Value::Text(label))];
        file.write(&Row::new(cells))?;
        records += 1;
    }
    file.finish()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_told_apart_by_their_scores() {
        let line = |at: usize| format!("{at}\t{}\ttext, {at}\n", at as f32 - 3.0);
        let text: String = (0..14).map(line).collect();
        let found = parse(&text).expect("reviews");
        assert_eq!(found.len(), 13, "the one with a score of zero is left out");
        assert_eq!(found[0], Review { label: "negative", text: "text, 0" });
        assert_eq!(found[12], Review { label: "positive", text: "text, 13" });
        let error = parse("1\tgood\ttext\n").expect_err("no score").to_string();
        assert!(error.starts_with("line 1: an id, a score and a text"), "{error}");
    }

    #[test]
    fn training_and_validation_share_no_review() {
        let folder = tempfile::tempdir().expect("a folder");
        let text: String = (0..40).map(|at| format!("{at}\t1.5\t\"quoted\" {at}\n")).collect();
        fs::write(folder.path().join(FILE), text).expect("written");
        let source = folder.path().display().to_string();
        let files = fetch(Some(&source), &folder.path().join("out"), &mut |_| {}).expect("made");
        let lines: Vec<usize> = files
            .iter()
            .map(|file| fs::read_to_string(file).expect("written").lines().count() - 1)
            .collect();
        assert_eq!(lines, [36, 4]);
    }
}
