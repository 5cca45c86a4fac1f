//! A safetensors file whose tensors are read one at a time: a model that is loaded to be used takes its weights once,
//! and no copies of them beside.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::tensor::{Metadata, TensorInfo};
use salamander_files::{Access, DiskFile, real};

use super::tensors::from_dtype;
use crate::params::TensorSource;

/// Bytes of a file that are read at once where they are only looked at.
const PIECE: usize = 1 << 20;
/// The longest header, as other readers have it.
const LONGEST_HEADER: u64 = 100_000_000;

/// An open file with named tensors, which stays what it is if it is replaced or removed meanwhile.
#[derive(Debug)]
pub struct TensorFile {
    file: Box<dyn DiskFile>,
    /// Where the values begin.
    begin: u64,
    tensors: HashMap<String, TensorInfo>,
    /// What its writer says of it.
    about: HashMap<String, String>,
}

impl TensorFile {
    /// Reads what is in a file, without the values.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::of(real().open(path, Access::Read).map_err(|error| error.to_string())?)
    }

    /// The same of an open file.
    pub(super) fn of(file: Box<dyn DiskFile>) -> Result<Self, String> {
        let length = file.length().map_err(|error| error.to_string())?;
        let mut size = [0; 8];
        read(&*file, &mut size, 0)?;
        let size = u64::from_le_bytes(size);
        if size > LONGEST_HEADER.min(length.saturating_sub(8)) {
            return Err(format!("its header has {size} bytes, the file {length}"));
        }
        let mut header = vec![0; size as usize];
        read(&*file, &mut header, 8)?;
        let header: Metadata =
            serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
        let (begin, values) = (8 + size, header.data_len() as u64);
        if begin + values != length {
            return Err(format!("it has {length} bytes instead of {}", begin + values));
        }
        let about = header.metadata().clone().unwrap_or_default();
        let tensors = header.tensors().into_iter();
        let tensors = tensors.map(|(name, info)| (name, info.clone())).collect();
        Ok(Self { file, begin, tensors, about })
    }

    /// What its writer says of it.
    pub(crate) fn about(&self, key: &str) -> Option<&str> {
        self.about.get(key).map(String::as_str)
    }
}

impl TensorSource for &TensorFile {
    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|info| info.shape.clone())
    }

    fn read(&mut self, name: &str) -> Result<TensorData, String> {
        let info = self.tensors.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let (from, to) = info.data_offsets;
        let dtype = from_dtype(info.dtype)
            .ok_or_else(|| format!("{name} has type {:?}, which is not supported", info.dtype))?;
        let mut bytes = vec![0; to - from];
        read(&*self.file, &mut bytes, self.begin + from as u64)?;
        TensorData::try_from_bytes_vec(bytes, info.shape.clone(), dtype)
            .map_err(|error| format!("{name}: {error:?}"))
    }
}

fn read(file: &dyn DiskFile, to: &mut [u8], at: u64) -> Result<(), String> {
    file.read_exact_at(to, at).map_err(|error| error.to_string())
}

/// The BLAKE3 hash of a file, a piece of which is in memory at a time.
pub(super) fn hash_of(file: &dyn DiskFile) -> std::io::Result<blake3::Hash> {
    let (length, mut hasher, mut at) = (file.length()?, blake3::Hasher::new(), 0);
    let mut piece = vec![0; PIECE];
    while at < length {
        let some = &mut piece[..PIECE.min((length - at) as usize)];
        file.read_exact_at(some, at)?;
        hasher.update(some);
        at += some.len() as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{from_safetensors, write_safetensors};
    use super::*;

    fn sample() -> Vec<(String, TensorData)> {
        let long: Vec<f32> = (0..400_000).map(|at| at as f32).collect();
        vec![
            ("long".to_string(), TensorData::new(long, [1000, 400])),
            ("count".to_string(), TensorData::new(vec![7i64], [1])),
            ("none".to_string(), TensorData::new(Vec::<f32>::new(), [0, 3])),
        ]
    }

    #[test]
    fn tensors_are_those_of_the_whole_file_and_survive_its_removal() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.safetensors");
        write_safetensors(&path, &sample()).expect("written");
        let bytes = fs::read(&path).expect("there");
        let file = TensorFile::open(&path).expect("opens");
        assert_eq!(hash_of(&*file.file).expect("read"), blake3::hash(&bytes));
        assert_eq!(file.about("format"), Some("salamander"));
        fs::remove_file(&path).expect("removed");
        let expected: HashMap<_, _> =
            from_safetensors(&bytes).expect("readable").into_iter().collect();
        let mut source = &file;
        assert_eq!(source.names().len(), expected.len());
        for (name, data) in expected {
            assert_eq!(source.shape(&name), Some(data.shape().to_vec()));
            assert_eq!(source.read(&name), Ok(data));
        }
        assert_eq!(source.read("nothing"), Err("nothing is missing".to_string()));
    }

    #[test]
    fn what_is_cut_off_or_longer_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.safetensors");
        write_safetensors(&path, &sample()).expect("written");
        let whole = fs::read(&path).expect("there");
        let longer = [&whole[..], &[0]].concat();
        let huge = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
        for wrong in [&whole[..4], &whole[..20], &whole[..whole.len() - 1], &longer, &huge] {
            fs::write(&path, wrong).expect("written");
            assert!(TensorFile::open(&path).is_err(), "{} bytes", wrong.len());
        }
    }
}
