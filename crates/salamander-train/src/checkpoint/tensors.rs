//! Tensors to safetensors and back, without going through Python or a model.

use std::collections::HashMap;
use std::path::Path;

use burn::tensor::{BoolStore, DType, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use salamander_files::{Durability, replace};

use crate::Error;

/// Named tensors as the bytes of a safetensors file.
pub(super) fn to_safetensors(tensors: &[(String, TensorData)]) -> Result<Vec<u8>, String> {
    let views = tensors.iter().map(|(name, data)| {
        let dtype = to_dtype(data.dtype()).ok_or_else(|| {
            format!("{name} has type {:?}, which safetensors cannot hold", data.dtype())
        })?;
        let view = TensorView::new(dtype, data.shape().to_vec(), data.as_bytes())
            .map_err(|error| format!("{name}: {error}"))?;
        Ok((name.as_str(), view))
    });
    let views: Vec<(&str, TensorView<'_>)> = views.collect::<Result<_, String>>()?;
    let about = HashMap::from([("format".to_string(), "salamander".to_string())]);
    safetensors::serialize(views, Some(about)).map_err(|error| error.to_string())
}

/// Replaces a safetensors file in one step: readers see the old content or the new.
pub(crate) fn write_safetensors(
    path: &Path,
    tensors: &[(String, TensorData)],
) -> Result<(), Error> {
    let bytes = to_safetensors(tensors).map_err(Error::Invalid)?;
    replace(path, &bytes, Durability::Synced).map_err(Error::io(path))
}

/// The tensors of a safetensors file.
pub(crate) fn from_safetensors(bytes: &[u8]) -> Result<Vec<(String, TensorData)>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let tensors = file.iter().map(|(name, view)| {
        let dtype = from_dtype(view.dtype())
            .ok_or_else(|| format!("{name} has type {:?}, which is not supported", view.dtype()))?;
        let shape = view.shape().to_vec();
        let data = TensorData::try_from_bytes_vec(view.data().to_vec(), shape, dtype)
            .map_err(|error| format!("{name}: {error:?}"))?;
        Ok((name.to_string(), data))
    });
    tensors.collect()
}

/// The types of tensors that both sides have.
const TYPES: [(DType, Dtype); 13] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool(BoolStore::Native), Dtype::BOOL),
];

fn to_dtype(dtype: DType) -> Option<Dtype> {
    let dtype = match dtype {
        DType::Flex32 => DType::F32,
        DType::Bool(_) => DType::Bool(BoolStore::Native),
        other => other,
    };
    TYPES.into_iter().find(|(ours, _)| *ours == dtype).map(|(_, theirs)| theirs)
}

pub(super) fn from_dtype(dtype: Dtype) -> Option<DType> {
    TYPES.into_iter().find(|(_, theirs)| *theirs == dtype).map(|(ours, _)| ours)
}
