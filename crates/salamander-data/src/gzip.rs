//! Gzipped text files as if they were plain: unpacked once into a file without a name, because gzip can only be read
//! from its start and training asks for any record.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::blob::{BlobSource, ReadAt};
use crate::{Blob, Error};

/// What a gzipped file begins with, and no text does.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The name without `.gz`.
pub(crate) fn without_gz(path: &Path) -> PathBuf {
    let packed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    if packed { path.with_extension("") } else { path.to_owned() }
}

/// Whether the name says that a file is packed.
pub(crate) fn is_gz(path: &Path) -> bool {
    without_gz(path) != path
}

/// The content of a blob, unpacked if its first bytes say that it is packed: some servers unpack what they send and
/// keep the name. All members of a file of several count, as `cat a.gz b.gz` makes them.
pub(crate) fn unpacked(packed: Blob) -> Result<Blob, Error> {
    let mut start = [0; MAGIC.len()];
    if packed.size() < start.len() as u64 {
        return Ok(packed);
    }
    let handle = packed.handle()?;
    handle.read_exact_at(&mut start, 0).map_err(Error::io(packed.path()))?;
    if start != MAGIC {
        return Ok(packed);
    }
    let source = BufReader::with_capacity(BUFFER_BYTES, handle.reader(0));
    let (file, size) = unpack(packed.path(), MultiGzDecoder::new(source))?;
    Ok(Blob::of(Arc::new(Unpacked { packed, file, size })))
}

/// A gzipped file, and its content.
#[derive(Debug)]
struct Unpacked {
    packed: Blob,
    file: File,
    size: u64,
}

impl BlobSource for Unpacked {
    fn path(&self) -> &Path {
        self.packed.path()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn version(&self) -> String {
        self.packed.version()
    }

    fn verify(&self) -> Result<(), Error> {
        self.packed.verify()
    }

    fn open(&self) -> Result<Box<dyn ReadAt>, Error> {
        self.packed.verify()?;
        Ok(Box::new(self.file.try_clone().map_err(Error::io(self.path()))?))
    }
}

fn unpack(path: &Path, mut decoder: impl Read) -> Result<(File, u64), Error> {
    let folder = std::env::temp_dir();
    let failed = |cause: io::Error| {
        let folder = folder.display();
        Error::form(path, format!("cannot unpack into {folder} (TMPDIR names another): {cause}"))
    };
    let mut file = nameless(&folder).map_err(failed)?;
    let (mut buffer, mut size) = (vec![0; BUFFER_BYTES], 0);
    loop {
        let read = decoder.read(&mut buffer).map_err(|error| damaged(path, error))?;
        if read == 0 {
            return Ok((file, size));
        }
        io::Write::write_all(&mut file, &buffer[..read]).map_err(failed)?;
        size += read as u64;
    }
}

/// What a decoder says of damage is no failure of the machine.
fn damaged(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => Error::form(path, "gzip: the file ends too early: truncated file"),
        InvalidData | InvalidInput => Error::form(path, format!("gzip: {error}")),
        _ => Error::io(path)(error),
    }
}

/// A file that is gone with its last handle, however this process ends.
fn nameless(folder: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("salamander-unpacked-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn content(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (_folder, path) = crate::blob::saved("a.csv.gz", bytes);
        let strip = |error: Error| error.to_string().replace(&path.display().to_string(), "a");
        let blob = unpacked(Blob::open(&path).unwrap()).map_err(strip)?;
        let mut content = Vec::new();
        blob.handle().unwrap().reader(0).read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, blob.size());
        Ok(content)
    }

    #[test]
    fn all_members_are_unpacked_and_plain_files_stay() {
        let two = [packed(b"x\n1\n"), packed(b"2\n")].concat();
        assert_eq!(content(&two).unwrap(), b"x\n1\n2\n");
        assert_eq!(content(b"x\n1\n").unwrap(), b"x\n1\n");
        assert_eq!(content(b"").unwrap(), b"");
        assert_eq!(content(&packed(b"")).unwrap(), b"");
    }

    #[test]
    fn damage_is_told() {
        let whole = packed(&b"x\n1\n".repeat(100));
        let error = content(&whole[..whole.len() - 3]).unwrap_err();
        assert_eq!(error, "a: gzip: the file ends too early: truncated file");
        let error = content(&[&whole[..], b"rest"].concat()).unwrap_err();
        assert!(error.starts_with("a: gzip: "), "{error}");
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let (_folder, path) = crate::blob::saved("a.csv.gz", &packed(b"x\n1\n"));
        let blob = unpacked(Blob::open(&path).unwrap()).unwrap();
        std::fs::write(&path, packed(b"x\n1\n2\n")).unwrap();
        assert!(matches!(blob.verify(), Err(Error::Changed { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            bytes.splice(0..0, MAGIC);
            let _ = content(&bytes);
        }
    }
}
