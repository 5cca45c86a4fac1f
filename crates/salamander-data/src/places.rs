//! Turns what a user names (files, folders, patterns, URLs) into the files meant, in a fixed order.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::growing::{LIST, finished_parts};

/// The scheme of a place that is a URL, such as `s3`.
///
/// A URL is kept in a path as its user wrote it; joining and splitting it as a path would lose its `//`.
pub(crate) fn scheme(place: &Path) -> Option<&str> {
    let (scheme, _) = place.to_str()?.split_once("://")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (!scheme.is_empty() && scheme.bytes().all(plain)).then_some(scheme)
}

/// The files at the places given, in the order given. A folder for which `is_source` is true stands for
/// itself.
pub(crate) fn expand(
    places: &[PathBuf],
    is_source: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for place in places {
        if scheme(place).is_some() {
            files.extend(remote_files(place)?);
        } else if place.join(LIST).is_file() {
            files.extend(finished_parts(place)?);
        } else if place.is_dir() && !is_source(place) {
            files.extend(folder_files(place)?);
        } else if is_pattern(place) && !place.exists() {
            files.extend(matching_files(place)?);
        } else {
            files.push(place.clone());
        }
    }
    if files.is_empty() {
        return Err(Error::NoFiles { path: PathBuf::new() });
    }
    Ok(files)
}

/// True for a name with signs of a pattern; `shop.db?table=orders` is a database with settings.
fn is_pattern(place: &Path) -> bool {
    let text = place.to_string_lossy();
    let settings = text.split_once('?').is_some_and(|(_, settings)| settings.contains('='));
    text.contains(['*', '?', '[']) && !settings
}

/// All files of a folder by name; hidden ones and folders inside it are left out.
fn folder_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let path = entry.path();
        if !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    in_order(files, folder)
}

/// The files that match a pattern, sorted; folders among them are left out.
fn matching_files(pattern: &Path) -> Result<Vec<PathBuf>, Error> {
    let text = pattern.to_str().ok_or_else(|| Error::form(pattern, "a pattern must be utf-8"))?;
    let found = glob::glob(text)
        .map_err(|error| Error::form(pattern, format!("not a pattern: {error}")))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| {
            let path = error.path().to_owned();
            Error::Io { path, cause: error.into() }
        })?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    in_order(files, pattern)
}

/// What was found at a place, sorted; nothing is an error.
pub(crate) fn in_order<T: Ord>(mut found: Vec<T>, place: &Path) -> Result<Vec<T>, Error> {
    if found.is_empty() {
        return Err(Error::NoFiles { path: place.to_owned() });
    }
    found.sort();
    Ok(found)
}

/// The objects right under a URL that ends with a slash, or the URL itself.
#[cfg(feature = "cloud")]
fn remote_files(place: &Path) -> Result<Vec<PathBuf>, Error> {
    if !place.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(vec![place.to_owned()]);
    }
    crate::remote::list(place)
}

#[cfg(not(feature = "cloud"))]
fn remote_files(place: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(vec![place.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_from_paths() {
        let check = |place: &str, expected: Option<&str>| {
            assert_eq!(scheme(Path::new(place)), expected, "{place}");
        };
        check("s3://bucket/a.csv", Some("s3"));
        check("https://host/a.csv", Some("https"));
        check("data/a.csv", None);
        check("/data/a://b", None);
        check("://b", None);
        check("s3:/bucket", None);
    }

    fn expand_one(place: PathBuf) -> Result<Vec<PathBuf>, Error> {
        expand(&[place], &|_| false)
    }

    #[test]
    fn patterns_give_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["part-2.csv", "part-1.csv", "other.csv", "part-[x].csv"] {
            std::fs::write(folder.path().join(name), "x\n").unwrap();
        }
        std::fs::create_dir(folder.path().join("part-3.csv")).unwrap();
        let check = |pattern: &str, expected: &[&str]| {
            let found = expand_one(folder.path().join(pattern)).unwrap();
            let expected: Vec<PathBuf> = expected.iter().map(|n| folder.path().join(n)).collect();
            assert_eq!(found, expected);
        };
        check("part-*.csv", &["part-1.csv", "part-2.csv", "part-[x].csv"]);
        check("part-?.csv", &["part-1.csv", "part-2.csv"]);
        check("part-[12].csv", &["part-1.csv", "part-2.csv"]);
        check("part-[x].csv", &["part-[x].csv"]);
        check("shop.db?table=orders", &["shop.db?table=orders"]);
    }

    #[test]
    fn a_pattern_without_a_match_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let check = |pattern: &str, ending: &str| {
            let message = expand_one(folder.path().join(pattern)).unwrap_err().to_string();
            assert!(message.ends_with(ending), "{message}");
        };
        check("part-*.csv", "/part-*.csv: nothing matches this pattern");
        check("a**b", "recursive wildcards must form a single path component");
    }
}
