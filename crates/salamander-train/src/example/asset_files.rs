//! The files of examples as they are kept: found beside an experiment, copied into its run, into checkpoints and into
//! exports, and read from there with their checksums.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use salamander_core::environment;
use salamander_core::experiment::Data;
use salamander_core::layout::ASSETS;
use salamander_files::{Durability, replace};

use super::{AssetSpec, fit, tokenizer_files};
use crate::Error;
use crate::checkpoint::CheckpointStore;
use crate::trainer::open_data;

/// The checksums of a folder of assets.
const CHECKSUMS: &str = "checksums.json";

/// The content of each file that examples are read with. A copy is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssetFiles(Arc<BTreeMap<String, Vec<u8>>>);

impl AssetFiles {
    /// Looks for each file in folders, in this order.
    pub fn find(specs: &[AssetSpec], folders: &[&Path]) -> Result<Self, Error> {
        let mut found = BTreeMap::new();
        let mut files = BTreeMap::new();
        for spec in specs {
            let file = spec.file;
            let name = stored_name(file);
            if *files.entry(name.clone()).or_insert(file) != file {
                let other = files[&name];
                let reason = format!("{file} and {other} have the same name in a run: rename one");
                return Err(Error::Invalid(reason));
            }
            if found.contains_key(&name) {
                continue;
            }
            match first(folders, file)? {
                Some(bytes) => found.insert(name, bytes),
                None if spec.is_optional() => continue,
                None => return Err(missing(spec, file, folders)),
            };
        }
        Ok(Self(Arc::new(found)))
    }

    /// Those that a job takes along to a cluster, as texts by their names in a run: what is not in the folders may be
    /// in the image.
    pub fn to_take_along(
        specs: &[AssetSpec],
        folders: &[&Path],
    ) -> Result<BTreeMap<String, String>, Error> {
        let absent = Self::absent(specs, folders);
        let is_there = |spec: &&AssetSpec| absent.iter().all(|other| other.file != spec.file);
        let there: Vec<AssetSpec> = specs.iter().filter(is_there).copied().collect();
        let elsewhere =
            "put it into the working folder of the image instead, and not beside the experiment";
        let text = |(name, bytes): (&str, &[u8])| match std::str::from_utf8(bytes) {
            Ok(text) => Ok((name.to_string(), text.to_string())),
            Err(error) => {
                let reason =
                    format!("{name} is no text ({error}), which a job could carry: {elsewhere}");
                Err(Error::Invalid(reason))
            }
        };
        Self::find(&there, folders)?.iter().map(text).collect()
    }

    /// The files that none of the folders has.
    pub fn absent(specs: &[AssetSpec], folders: &[&Path]) -> Vec<AssetSpec> {
        let is_there = |path: PathBuf| path.is_file() || tokenizer_files::is_possible(&path);
        let is_absent =
            |spec: &&AssetSpec| !folders.iter().any(|folder| is_there(folder.join(spec.file)));
        specs.iter().filter(is_absent).copied().collect()
    }

    /// The same and others, by the names that the example has for them.
    #[must_use]
    pub fn with(self, made: BTreeMap<&'static str, Vec<u8>>) -> Self {
        let mut files = (*self.0).clone();
        files.extend(made.into_iter().map(|(file, bytes)| (stored_name(file), bytes)));
        Self(Arc::new(files))
    }

    /// Those of a run: from its folder; for a run that came from a store, from its newest checkpoint; for a job on a
    /// cluster, which has no folder when it is made, those that it was submitted with, else of the image's folder.
    pub fn of_run(specs: &[AssetSpec], folder: &Path) -> Result<Self, Error> {
        match Self::kept(specs, folder)? {
            Some(kept) => Ok(kept),
            None => Self::of_job(specs, brought().as_deref(), &[], &Data::default()),
        }
    }

    /// The same in a process that trains: a job's pods also look into the folder that the model names, and make what is
    /// not there from the training data if the experiment says so. `said` is what hyperparameters stand for.
    pub(crate) fn of_training(
        specs: &[AssetSpec],
        folder: &Path,
        named: Option<&Path>,
        data: &Data,
        said: BTreeMap<&'static str, Vec<u8>>,
    ) -> Result<Self, Error> {
        match Self::kept(specs, folder)? {
            Some(kept) => Ok(kept),
            None => {
                let named: Vec<&Path> = named.into_iter().collect();
                Ok(Self::of_job(specs, brought().as_deref(), &named, data)?.with(said))
            }
        }
    }

    /// The copies that a run has, in its folder or in its newest checkpoint.
    fn kept(specs: &[AssetSpec], folder: &Path) -> Result<Option<Self>, Error> {
        if specs.is_empty() {
            return Ok(Some(Self::default()));
        }
        if folder.join(ASSETS).is_dir() {
            return Self::read(specs, folder).map(Some);
        }
        let checkpoints = folder.join(salamander_core::layout::CHECKPOINTS);
        Ok(CheckpointStore::newest_intact(&checkpoints, &mut |_| {})?
            .map(|checkpoint| checkpoint.assets))
    }

    /// Those of the named folders; else those that a job brings along, by their names in a run; else those of the
    /// current folder, or of the data.
    fn of_job(
        specs: &[AssetSpec],
        brought: Option<&Path>,
        named: &[&Path],
        data: &Data,
    ) -> Result<Self, Error> {
        let mut found = BTreeMap::new();
        let mut others = Vec::new();
        for spec in specs {
            let name = stored_name(spec.file);
            let here = first(named, spec.file)?;
            let bring = || brought.map(|folder| first(&[folder], &name)).transpose();
            let here = here.map_or_else(bring, |bytes| Ok(Some(Some(bytes))))?;
            match here.flatten() {
                Some(bytes) => drop(found.insert(name, bytes)),
                None => others.push(*spec),
            }
        }
        let others = Self::find_or_fit(&others, &[Path::new("")], data)?;
        found.extend(others.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())));
        Ok(Self(Arc::new(found)))
    }

    /// Looks for each file in folders. Classes of labels that are not there are made from the training data, and with
    /// `data: {fit: true}` statistics and vocabularies too.
    pub fn find_or_fit(specs: &[AssetSpec], folders: &[&Path], data: &Data) -> Result<Self, Error> {
        let mut absent = Self::absent(specs, folders);
        absent.retain(|spec| spec.is_made(data));
        if absent.is_empty() {
            return Self::find(specs, folders);
        }
        let is_absent = |spec: &AssetSpec| absent.iter().any(|other| other.file == spec.file);
        let there: Vec<AssetSpec> = specs.iter().filter(|spec| !is_absent(spec)).copied().collect();
        // What is not there and cannot be made is told before all data is read.
        let found = Self::find(&there, folders)?;
        let training = open_data("data.training", &data.training.0, data)?;
        Ok(found.with(fit(&absent, &training)?))
    }

    /// Reads what [`AssetFiles::write`] has put into a folder; a file that is missing or was changed is an error.
    pub fn read(specs: &[AssetSpec], folder: &Path) -> Result<Self, Error> {
        let mut found = BTreeMap::new();
        if specs.is_empty() {
            return Ok(Self::default());
        }
        let assets = folder.join(ASSETS);
        let path = assets.join(CHECKSUMS);
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let checksums: BTreeMap<String, String> = serde_json::from_slice(&text)
            .map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))?;
        for spec in specs {
            let name = stored_name(spec.file);
            let path = assets.join(&name);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if spec.is_optional() && !checksums.contains_key(&name) {
                        continue;
                    }
                    return Err(missing(spec, &name, &[&assets]));
                }
                bytes => bytes.map_err(Error::io(&path))?,
            };
            if checksums.get(&name) != Some(&checksum(&bytes)) {
                return Err(Error::Invalid(format!(
                    "{} was changed since the model was trained with it: put it back (checkpoints have a copy)",
                    path.display()
                )));
            }
            found.insert(name, bytes);
        }
        Ok(Self(Arc::new(found)))
    }

    /// Puts them into a folder, below `assets`; nothing where there are none.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let assets = folder.join(ASSETS);
        fs::create_dir_all(&assets).map_err(Error::io(&assets))?;
        let put = |name: &str, bytes: &[u8]| {
            let path = assets.join(name);
            replace(&path, bytes, Durability::Synced).map_err(Error::io(&path))
        };
        let mut checksums = BTreeMap::new();
        for (name, bytes) in self.iter() {
            put(name, bytes)?;
            checksums.insert(name, checksum(bytes));
        }
        let text = serde_json::to_vec_pretty(&checksums)
            .map_err(|error| Error::Invalid(format!("{CHECKSUMS}: {error}")))?;
        put(CHECKSUMS, &text)
    }

    /// Those with these stored names, as a checkpoint has them.
    pub(crate) fn stored(files: impl Iterator<Item = (String, Vec<u8>)>) -> Self {
        Self(Arc::new(files.collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stored names and contents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// The content of a file, by the name that the example has for it.
    pub fn get(&self, file: &str) -> Option<&[u8]> {
        self.0.get(&stored_name(file)).map(Vec::as_slice)
    }

    /// A file that is not the same in both.
    pub(crate) fn difference(&self, other: &Self) -> Option<&str> {
        self.iter().find(|(name, bytes)| other.get(name) != Some(bytes)).map(|(name, _)| name)
    }

    /// A hash over names and contents.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for (name, bytes) in self.iter() {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            hasher.update(blake3::hash(bytes).as_bytes());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

/// The folder with what a job was submitted with.
fn brought() -> Option<PathBuf> {
    std::env::var_os(environment::ASSETS.name).map(PathBuf::from)
}

/// The name of a file among those of a run: its path as one word.
fn stored_name(file: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    file.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn first(folders: &[&Path], file: &str) -> Result<Option<Vec<u8>>, Error> {
    for folder in folders {
        let path = folder.join(file);
        match fs::read(&path) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(made) = tokenizer_files::make(&path)? {
                    return Ok(Some(made));
                }
            }
            Err(error) => return Err(Error::io(&path)(error)),
        }
    }
    Ok(None)
}

fn missing(spec: &AssetSpec, file: &str, folders: &[&Path]) -> Error {
    let place = |folder: &&Path| match folder.as_os_str().is_empty() {
        true => "the current folder".to_string(),
        false => folder.display().to_string(),
    };
    let places: Vec<String> = folders.iter().map(place).collect();
    let places = places.join(" nor in ");
    let (not, hint) = match folders.len() {
        // The experiment's folder and the current one.
        2.. if !spec.is_fitted() => ("neither in", ""),
        2.. => (
            "neither in",
            ": make it with `salamander data fit EXPERIMENT.yaml`, or say `data: {fit: true}`",
        ),
        _ => ("not in", ""),
    };
    let purpose = spec.purpose();
    Error::Invalid(format!("{file}, {purpose}, is {not} {places}{hint}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::example::{AssetKind, Assets};

    const SPECS: &[AssetSpec] = &[AssetSpec {
        file: "lists/words.txt",
        field: "genre",
        columns: &["genre"],
        kind: AssetKind::Vocabulary { oov: 0, list: None, missing: None },
    }];

    fn with_words(words: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("lists")).expect("made");
        fs::write(folder.path().join("lists/words.txt"), words).expect("written");
        folder
    }

    #[test]
    fn a_job_takes_along_what_is_there_and_finds_it_in_a_pod() {
        let (beside, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(beside.path().join("lists")).unwrap();
        fs::write(beside.path().join(SPECS[0].file), "rock\n").unwrap();
        let taken = AssetFiles::to_take_along(SPECS, &[beside.path()]).expect("found");
        assert_eq!(taken, [("lists_words.txt".to_string(), "rock\n".to_string())].into());
        fs::write(config.path().join("lists_words.txt"), "rock\n").unwrap();
        let plain = Data::default();
        let of_job = |brought, named: &[&Path]| AssetFiles::of_job(SPECS, brought, named, &plain);
        let found = of_job(Some(config.path()), &[]).expect("brought");
        assert_eq!(found, AssetFiles::find(SPECS, &[beside.path()]).expect("found"));
        let absent = AssetFiles::to_take_along(SPECS, &[config.path()]);
        assert!(absent.expect("may be in the image").is_empty());
        assert!(of_job(None, &[]).is_err());
        let named = with_words("blues\n");
        let found = of_job(Some(config.path()), &[named.path()]).expect("named");
        assert_eq!(found, AssetFiles::find(SPECS, &[named.path()]).expect("found"));

        let data = named.path().join("songs.csv");
        fs::write(&data, "genre\nrock\njazz\njazz\n").unwrap();
        let training = salamander_core::experiment::Paths(vec![data.display().to_string()]);
        let fitted = Data { fit: true, training, ..Data::default() };
        let made = AssetFiles::of_job(SPECS, None, &[], &fitted).expect("made");
        assert_eq!(made.get(SPECS[0].file), Some(&b"jazz\nrock\n"[..]));
    }

    #[test]
    fn a_file_that_a_job_cannot_carry_is_told_with_what_to_do() {
        let folder = with_words("");
        fs::write(folder.path().join(SPECS[0].file), [0xff]).expect("written");
        let refused = AssetFiles::to_take_along(SPECS, &[folder.path()]);
        let error = refused.expect_err("no text").to_string();
        assert!(error.contains("lists_words.txt is no text") && error.contains("image"), "{error}");
    }

    #[test]
    fn files_are_found_in_the_first_folder_that_has_them() {
        let (empty, first, second) =
            (tempfile::tempdir().expect("a folder"), with_words("a\n"), with_words("b\n"));
        let folders = [empty.path(), first.path(), second.path()];
        let found = AssetFiles::find(SPECS, &folders).expect("found");
        assert_eq!(found.get("lists/words.txt"), Some(b"a\n".as_slice()));
        assert!(AssetFiles::absent(SPECS, &folders).is_empty());
        assert_eq!(AssetFiles::absent(SPECS, &folders[..1]).len(), 1);
        let error = AssetFiles::find(SPECS, &folders[..1]).expect_err("not there").to_string();
        let expected = format!(
            "lists/words.txt, which `genre` is read with, is not in {}",
            empty.path().display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn a_run_keeps_its_own_copy_and_notices_changes() {
        let (beside, run) = (with_words("a\nb\n"), tempfile::tempdir().expect("a folder"));
        let found = AssetFiles::find(SPECS, &[beside.path()]).expect("found");
        found.write(run.path()).expect("written");
        fs::remove_dir_all(beside.path().join("lists")).expect("removed");
        let kept = AssetFiles::of_run(SPECS, run.path()).expect("kept");
        assert_eq!((&kept, kept.hash()), (&found, found.hash()));
        let assets = Assets::load(SPECS, kept).expect("loaded");
        assert_eq!(assets.number(0, "genre", "b"), Ok(1));

        let copy = run.path().join("assets/lists_words.txt");
        fs::write(&copy, "b\na\n").expect("written");
        let error = AssetFiles::of_run(SPECS, run.path()).expect_err("changed").to_string();
        assert!(error.contains("lists_words.txt was changed since"), "{error}");
        fs::remove_file(&copy).expect("removed");
        let error = AssetFiles::of_run(SPECS, run.path()).expect_err("gone").to_string();
        assert!(error.contains("which `genre` is read with, is not in"), "{error}");
    }

    #[test]
    fn other_contents_and_names_have_other_hashes() {
        let files = |name: &str, bytes: &[u8]| {
            AssetFiles::stored(std::iter::once((name.to_string(), bytes.to_vec())))
        };
        let hashes = [files("a", b"1").hash(), files("a", b"2").hash(), files("b", b"1").hash()];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
        assert_eq!(files("a", b"1").difference(&files("a", b"2")), Some("a"));
        assert_eq!(files("a", b"1").difference(&files("a", b"1")), None);
    }

    #[test]
    fn two_files_that_would_have_one_name_are_refused() {
        let other = AssetSpec { file: "lists_words.txt", ..SPECS[0] };
        let folder = with_words("a\n");
        let error = AssetFiles::find(&[SPECS[0], other], &[folder.path()]).expect_err("alike");
        assert!(error.to_string().contains("have the same name in a run"), "{error}");
    }

    #[test]
    fn examples_without_files_need_no_folder() {
        let nowhere = PathBuf::from("/nowhere/at/all");
        assert!(AssetFiles::of_run(&[], &nowhere).expect("nothing is needed").is_empty());
        AssetFiles::default().write(&nowhere).expect("nothing is written");
    }
}
