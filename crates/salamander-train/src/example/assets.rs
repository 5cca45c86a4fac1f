//! Statistics and vocabularies that examples are read with: what an example asks for, and what was loaded for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use salamander_core::experiment::Data;
use salamander_core::seed::derive;
use salamander_data::preprocess::Vocabulary;
use salamander_data::stats::Stats;

use super::buckets::none_of;
#[cfg(feature = "text")]
use super::tokens::length::length;
use super::{AssetFiles, DecodeError, WordList};
#[cfg(feature = "text")]
use super::{Tokenizer, Tokens};
use crate::Error;
#[cfg(feature = "text")]
use salamander_data::{Row, Value};

/// The file with the most tokens of a text, if it is not for the example to say.
pub const MAX_TOKENS: &str = "max_tokens.txt";

/// The files that hyperparameters stand for, by their names.
pub(crate) fn files_said(max_tokens: Option<usize>) -> BTreeMap<&'static str, Vec<u8>> {
    max_tokens.into_iter().map(|most| (MAX_TOKENS, most.to_string().into_bytes())).collect()
}

/// A file that examples are read with. It belongs to the run, as the weights do: with another one the model's inputs
/// mean something else.
#[derive(Clone, Copy, Debug)]
pub struct AssetSpec {
    /// The file, relative to the experiment file.
    pub file: &'static str,
    /// The field that needs it.
    pub field: &'static str,
    /// The columns of the field.
    pub columns: &'static [&'static str],
    /// What is in it.
    pub kind: AssetKind,
}

/// What is in a file that examples are read with.
#[derive(Clone, Copy, Debug)]
pub enum AssetKind {
    /// Means and deviations of columns, as `salamander data inspect --stats --json` writes them.
    Statistics,
    /// Words, one per line.
    Vocabulary {
        /// Buckets for words that are not in it.
        oov: u64,
        /// How a text is cut into words; a text is one word without it.
        list: Option<WordList>,
        /// Stands in for a text that is absent or empty.
        missing: Option<&'static str>,
    },
    /// The classes of a label, one per line. Where the file is nowhere they are those of the training data, in their
    /// order.
    Classes,
    /// A tokenizer, as Hugging Face writes it.
    #[cfg(feature = "text")]
    Tokenizer {
        /// The most tokens of a text, or [`super::LENGTH_OF_MODEL`]; what is longer is cut.
        max_length: usize,
    },
    /// Whatever the model is built from, which reads it itself.
    File {
        /// Whether it may be absent.
        optional: bool,
    },
}

impl AssetSpec {
    /// Whether it can be made from the training data.
    pub fn is_fitted(&self) -> bool {
        matches!(
            self.kind,
            AssetKind::Statistics | AssetKind::Vocabulary { .. } | AssetKind::Classes
        )
    }

    /// Whether it is made where it is not there, if all of the data is: nobody has to ask for the classes of a label.
    pub(crate) fn is_made(&self, data: &Data) -> bool {
        self.is_fitted() && (data.fit || (matches!(self.kind, AssetKind::Classes) && !data.stream))
    }

    /// Whether it may be absent.
    pub fn is_optional(&self) -> bool {
        matches!(self.kind, AssetKind::File { optional: true })
    }

    /// What it is for, in messages.
    pub(crate) fn purpose(&self) -> String {
        match self.kind {
            AssetKind::File { .. } => "which the model is built from".to_string(),
            _ => format!("which `{}` is read with", self.field),
        }
    }
}

/// The files of an example, loaded: the same ones in every process of a run. A copy is cheap.
#[derive(Clone, Debug, Default)]
pub struct Assets(Arc<LoadedAssets>);

#[derive(Debug, Default)]
struct LoadedAssets {
    files: AssetFiles,
    /// In the order of the specs.
    assets: Vec<Asset>,
    hash: u64,
}

#[derive(Debug)]
enum Asset {
    /// Mean and standard deviation of each column.
    Statistics(Vec<(f32, f32)>),
    Vocabulary {
        file: &'static str,
        words: Vocabulary,
    },
    Classes(Vocabulary),
    #[cfg(feature = "text")]
    Tokenizer {
        file: &'static str,
        tokenizer: Box<Tokenizer>,
    },
    File,
}

impl Assets {
    /// Loads what was found; an error names the file and the field that needs it.
    pub fn load(specs: &[AssetSpec], files: AssetFiles) -> Result<Self, Error> {
        let one = |spec: &AssetSpec| match files.get(spec.file) {
            Some(bytes) => asset(spec, bytes, &files).map_err(Error::Invalid),
            None if spec.is_optional() => Ok(Asset::File),
            None => Err(Error::Invalid(format!("{}, {}, is missing", spec.file, spec.purpose()))),
        };
        let assets = specs.iter().map(one).collect::<Result<_, _>>()?;
        let hash = files.hash();
        Ok(Self(Arc::new(LoadedAssets { files, assets, hash })))
    }

    /// Finds and loads them in the current folder: for a loop of one's own, which has no run.
    pub fn in_current_folder(specs: &[AssetSpec]) -> Result<Self, Error> {
        Self::load(specs, AssetFiles::find(specs, &[Path::new("")])?)
    }

    /// The files.
    pub fn files(&self) -> &AssetFiles {
        &self.0.files
    }

    /// What tells the files from others.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// A fingerprint that includes the files; the one given where there are none.
    pub(crate) fn in_fingerprint(&self, fingerprint: u64) -> u64 {
        match self.0.files.is_empty() {
            true => fingerprint,
            false => derive(fingerprint, &[self.0.hash]),
        }
    }

    /// Mean and deviation of the columns of the field `name`, which has the spec with this number.
    pub fn statistics(&self, spec: usize, name: &str) -> Result<&[(f32, f32)], DecodeError> {
        match self.0.assets.get(spec) {
            Some(Asset::Statistics(found)) => Ok(found),
            _ => Err(not_loaded(name)),
        }
    }

    /// The number of a word in the vocabulary of the field `name`, which has the spec with this number.
    pub fn number(&self, spec: usize, name: &str, word: &str) -> Result<i64, DecodeError> {
        match self.0.assets.get(spec) {
            Some(Asset::Vocabulary { file, words }) => words.lookup(word).ok_or_else(|| {
                let reason = format!("{word:?} is not in {file}: add it, or say oov = 1");
                DecodeError::new(name, reason)
            }),
            Some(Asset::Classes(classes)) => classes
                .lookup(word)
                .ok_or_else(|| DecodeError::new(name, none_of(&classes.words(), word))),
            _ => Err(not_loaded(name)),
        }
    }

    /// The content of one of the files, by the name that the example has for it.
    pub fn file(&self, file: &str) -> Option<&[u8]> {
        self.0.files.get(file)
    }

    /// The tokenizer of this file.
    #[cfg(feature = "text")]
    pub fn tokenizer(&self, file: &str) -> Option<&Tokenizer> {
        self.0.assets.iter().find_map(|asset| match asset {
            Asset::Tokenizer { file: name, tokenizer } if *name == file => Some(&**tokenizer),
            _ => None,
        })
    }

    /// The tokens of texts of the field `name`, which has the spec with this number.
    #[cfg(feature = "text")]
    pub fn tokens<'a>(
        &self,
        spec: usize,
        name: &str,
        texts: impl Iterator<Item = &'a String>,
        device: &burn::tensor::Device,
    ) -> Result<Tokens, DecodeError> {
        let tokenizer = self.tokenizer_of(spec, name)?;
        let encode = |text: &'a String| {
            tokenizer.encode(text).map_err(|error| DecodeError::new(name, error))
        };
        let ids = texts.map(encode).collect::<Result<Vec<_>, _>>()?;
        Tokens::new(name, &ids, device)
    }

    /// The tokens of pairs of texts of the field `name`, which has the spec with this number.
    #[cfg(feature = "text")]
    pub fn token_pairs<'a>(
        &self,
        spec: usize,
        name: &str,
        pairs: impl Iterator<Item = &'a [String; 2]>,
        device: &burn::tensor::Device,
    ) -> Result<Tokens, DecodeError> {
        let tokenizer = self.tokenizer_of(spec, name)?;
        let encode = |[first, second]: &'a [String; 2]| {
            tokenizer.encode_pair(first, second).map_err(|error| DecodeError::new(name, error))
        };
        let pairs = pairs.map(encode).collect::<Result<Vec<_>, _>>()?;
        Tokens::of_pairs(name, &pairs, device)
    }

    /// The ids of a record's text of the field `name`, which has the spec with this number: from the text, or as
    /// `salamander data convert --tokenize` has left them.
    #[cfg(feature = "text")]
    pub fn token_ids(
        &self,
        spec: usize,
        name: &str,
        row: &Row<'_>,
        columns: &[&str],
    ) -> Result<Vec<i64>, DecodeError> {
        let tokenizer = self.tokenizer_of(spec, name)?;
        let column = columns.first().copied().unwrap_or(name);
        let wrong = |error: String| DecodeError::new(column, error);
        match row.get(column) {
            // One number is a text that a format took for one.
            Some(Value::Ints(ids)) if ids.len() == 1 => {
                tokenizer.encode(&ids[0].to_string()).map_err(wrong)
            }
            Some(Value::Ints(ids)) => tokenizer.check(ids).map_err(wrong).map(|()| ids.to_vec()),
            _ => {
                let text = row.text(column).map_err(|error| DecodeError::of(column, error))?;
                tokenizer.encode(text).map_err(wrong)
            }
        }
    }

    #[cfg(feature = "text")]
    fn tokenizer_of(&self, spec: usize, name: &str) -> Result<&Tokenizer, DecodeError> {
        match self.0.assets.get(spec) {
            Some(Asset::Tokenizer { tokenizer, .. }) => Ok(tokenizer),
            _ => Err(not_loaded(name)),
        }
    }

    /// The words of the vocabulary with this number, in their order.
    pub fn words(&self, spec: usize) -> Vec<String> {
        match self.0.assets.get(spec) {
            Some(Asset::Vocabulary { words, .. } | Asset::Classes(words)) => {
                words.words().into_iter().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn not_loaded(name: &str) -> DecodeError {
    let reason = "its statistics, vocabulary or tokenizer are not loaded: make the context with \
                  ExampleContext::of_current_folder";
    DecodeError::new(name, reason)
}

#[cfg_attr(not(feature = "text"), expect(unused_variables, reason = "only tokenizers need others"))]
fn asset(spec: &AssetSpec, bytes: &[u8], files: &AssetFiles) -> Result<Asset, String> {
    let path = Path::new(spec.file);
    match spec.kind {
        AssetKind::Statistics => {
            let stats = Stats::from_bytes(path, bytes).map_err(|error| error.to_string())?;
            let found = spec.columns.iter().map(|column| normaliser(&stats, column, spec));
            Ok(Asset::Statistics(found.collect::<Result<_, _>>()?))
        }
        AssetKind::Vocabulary { oov, .. } => {
            Ok(Asset::Vocabulary { file: spec.file, words: vocabulary(path, bytes, oov)? })
        }
        AssetKind::Classes => Ok(Asset::Classes(vocabulary(path, bytes, 0)?)),
        #[cfg(feature = "text")]
        AssetKind::Tokenizer { max_length } => {
            let tokenizer = Tokenizer::parse(bytes, length(max_length, files)?)
                .map_err(|error| format!("tokenizer {}: {error}", spec.file))?;
            Ok(Asset::Tokenizer { file: spec.file, tokenizer: Box::new(tokenizer) })
        }
        AssetKind::File { .. } => Ok(Asset::File),
    }
}

fn vocabulary(path: &Path, bytes: &[u8], oov: u64) -> Result<Vocabulary, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("vocabulary {}: {error}", path.display()))?;
    Vocabulary::parse(path, text, oov).map_err(|error| error.to_string())
}

fn normaliser(stats: &Stats, column: &str, spec: &AssetSpec) -> Result<(f32, f32), String> {
    stats.normaliser(column).ok_or_else(|| {
        let names = stats.columns().iter().map(|column| column.name.as_str());
        let known: Vec<&str> = names.filter(|name| stats.normaliser(name).is_some()).collect();
        let (AssetSpec { file, field, .. }, known) = (spec, known.join(", "));
        format!("{file} has no numbers of {column:?}, by which `{field}` is normalised (it has: {known})")
    })
}

/// What records are read with.
#[derive(Clone, Debug)]
pub struct ExampleContext {
    /// Whether labels must be there: not in prediction.
    pub labels: bool,
    /// The example's files.
    pub assets: Assets,
}

impl ExampleContext {
    /// Records with labels, of an example that needs no files.
    pub fn labelled() -> Self {
        Self { labels: true, assets: Assets::default() }
    }

    /// Records whose labels may be absent, of an example that needs no files.
    pub fn unlabelled() -> Self {
        Self { labels: false, assets: Assets::default() }
    }

    /// Records of an example whose files are in the current folder.
    pub fn of_current_folder<E: super::Example>(labels: bool) -> Result<Self, Error> {
        Ok(Self { labels, assets: Assets::in_current_folder(E::ASSETS)? })
    }
}
