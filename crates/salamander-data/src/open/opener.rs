//! Opens the files of one reader by the table of formats, with what they share: caches of decoded parts, and the
//! indexes that are known already.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use salamander_core::experiment::CsvSettings;

use crate::gzip::{is_gz, unpacked};
use crate::index_cache::{IndexCache, IndexKey, SavedIndex};
use crate::reader::FileIndex;
use crate::{Blob, Error, Format, Reader};

/// A reader, and its index if that is new and worth keeping.
pub(crate) struct Opened {
    pub(super) reader: Box<dyn Reader>,
    pub(super) new_index: Option<(IndexKey, SavedIndex)>,
}

impl Opened {
    /// A reader without an index that would be worth keeping.
    pub(crate) fn reader(reader: impl Reader + 'static) -> Opened {
        Opened { reader: Box::new(reader), new_index: None }
    }
}

/// What the files of one reader share.
pub(super) struct Opener {
    format: Option<Format>,
    csv: CsvSettings,
    pub(super) known: Option<IndexCache>,
    /// One value of each type that a format asks for.
    shared: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Opener {
    pub(super) fn new(
        format: Option<Format>,
        csv: CsvSettings,
        known: Option<IndexCache>,
    ) -> Opener {
        Opener { format, csv, known, shared: Mutex::default() }
    }

    /// What makes an index the index of a file: read in another way it has another one.
    fn key(&self, blob: &Blob) -> IndexKey {
        let key = IndexKey::of(blob);
        if self.csv.is_default() { key } else { key.read_as(&format!("{:?}", self.csv)) }
    }

    pub(super) fn open(&self, path: &Path) -> Result<Opened, Error> {
        let (blob, known) = match self.known(path)? {
            Some((blob, format)) => (Some(blob), Some(format)),
            None => (None, None),
        };
        let format = match self.format.or(known) {
            Some(format) => format,
            None => Format::guess(path)?,
        };
        let definition = format.definition();
        let open = definition.open.ok_or_else(|| definition.left_out(path))?;
        open(Opening { opener: self, path, blob, format })
    }

    /// A file whose index is known, with its format: then nothing of it is read.
    fn known(&self, path: &Path) -> Result<Option<(Blob, Format)>, Error> {
        let Some(known) = self.known.as_ref().filter(|known| known.knows(path)) else {
            return Ok(None);
        };
        let blob = Blob::open(path)?;
        let format = known.get(&self.key(&blob)).map(|saved| saved.format);
        Ok(format.map(|format| (blob, format)))
    }
}

/// One file that a format is to open.
pub(crate) struct Opening<'a> {
    opener: &'a Opener,
    path: &'a Path,
    /// Where it was opened before to look for its index.
    blob: Option<Blob>,
    format: Format,
}

impl<'a> Opening<'a> {
    /// The file or folder.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// How CSV files are written down.
    pub(crate) fn csv(&self) -> &'a CsvSettings {
        &self.opener.csv
    }

    /// What all files of the reader share, such as a cache, by its type.
    pub(crate) fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut shared = self.opener.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let value = shared.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        Arc::clone(value).downcast().unwrap_or_default()
    }

    /// The reader of a file with its index, from the cache if that is known and can be of this file.
    pub(crate) fn indexed<I: FileIndex, R: Reader + 'static>(
        self,
        build: impl FnOnce(&Blob) -> Result<I, Error>,
        reader: impl FnOnce(Blob, I) -> R,
    ) -> Result<Opened, Error> {
        let blob = self.blob.map_or_else(|| Blob::open(self.path), Ok)?;
        let (format, known) = (self.format, self.opener.known.as_ref());
        let key = self.opener.key(&blob);
        // By name, so that nothing is read of files whose indexes are known.
        let packed = format.definition().gzip && is_gz(self.path);
        let blob = if packed { unpacked(blob)? } else { blob };
        let saved = known.and_then(|known| known.get(&key)).filter(|saved| saved.format == format);
        if let Some(index) = saved.and_then(|saved| I::restore(&saved.index, blob.size())) {
            return Ok(Opened::reader(reader(blob, index)));
        }
        let index = build(&blob)?;
        let new_index = known.map(|_| (key, SavedIndex { format, index: index.save() }));
        Ok(Opened { new_index, ..Opened::reader(reader(blob, index)) })
    }
}
