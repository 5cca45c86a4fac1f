//! Requests whose fields are counted before they are read: an empty tensor has two bytes on the wire and some hundred
//! in memory, so that the bound of a message's bytes alone bounds nothing.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use bytes::Buf as _;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::inference::{LogSettingsRequest, ModelInferRequest, TraceSettingRequest};

/// The most fields of a message and, in requests for inference, of its tensors and parameters.
const FIELDS: usize = 1 << 16;
/// The most contents of tensors that are fields each, as texts are; numbers lie together in one.
const CONTENTS: usize = 1 << 20;
/// The most bytes of settings.
const SETTINGS: usize = 64 << 10;

/// The codec of the inference service: Prost's, after the fields were counted.
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> fmt::Debug for BoundedCodec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundedCodec")
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstDecoder::default())
    }
}

/// Reads messages that do not have too many fields.
#[derive(Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        check::<U>(buf.chunk()).map_err(Status::resource_exhausted)?;
        self.0.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Refuses a message that would take far more memory than it has bytes.
fn check<U: 'static>(message: &[u8]) -> Result<(), String> {
    let kind = TypeId::of::<U>();
    let settings = [TypeId::of::<TraceSettingRequest>(), TypeId::of::<LogSettingsRequest>()];
    if settings.contains(&kind) && message.len() > SETTINGS {
        return Err(format!("settings have at most {SETTINGS} bytes"));
    }
    match kind == TypeId::of::<ModelInferRequest>() {
        true => check_request(message),
        false => WireFields(message).try_fold(0, |count, _| add(count, 1, FIELDS)).map(drop),
    }
}

/// By the numbers that `inference/service.proto` gives the fields.
fn check_request(message: &[u8]) -> Result<(), String> {
    let (mut fields, mut contents) = (0, 0);
    for (number, part) in WireFields(message) {
        fields = add(fields, 1, FIELDS)?;
        let (is_input, has_fields) = (number == 5, matches!(number, 4..=6));
        for (number, part) in has_fields.then_some(WireFields(part)).into_iter().flatten() {
            // Each byte of a shape may be a size.
            let sizes = if is_input && number == 3 { part.len() } else { 0 };
            fields = add(fields, 1 + sizes, FIELDS)?;
            if is_input && number == 5 {
                contents = WireFields(part).try_fold(contents, |sum, _| add(sum, 1, CONTENTS))?;
            }
        }
    }
    Ok(())
}

fn add(count: usize, more: usize, most: usize) -> Result<usize, String> {
    match count + more {
        sum if sum <= most => Ok(sum),
        _ => Err(format!("the message has more than {most} fields: send tensors as raw contents")),
    }
}

/// The fields of a message: their numbers, and the bytes of those that have a length. It ends where there is no
/// message any more: that it is none is found when it is read.
struct WireFields<'a>(&'a [u8]);

impl<'a> Iterator for WireFields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let length = match key & 7 {
            0 => {
                self.varint()?;
                0
            }
            1 => 8,
            2 => usize::try_from(self.varint()?).ok()?,
            // What is between the marks of a group is looked at as if it were beside them.
            3 | 4 => 0,
            5 => 4,
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((key >> 3, bytes))
    }
}

impl WireFields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inference::model_infer_request::InferInputTensor;
    use crate::inference::{InferParameter, InferTensorContents};

    fn request(inputs: usize, texts: usize, sizes: usize) -> ModelInferRequest {
        let contents = InferTensorContents {
            bytes_contents: vec![Default::default(); texts],
            ..Default::default()
        };
        let full = InferInputTensor {
            name: "x".to_string(),
            shape: vec![1; sizes],
            contents: Some(contents),
            ..Default::default()
        };
        let mut all = vec![InferInputTensor::default(); inputs];
        all.push(full);
        ModelInferRequest {
            inputs: all,
            parameters: [("a".to_string(), InferParameter::default())].into(),
            // What is no message must not be taken for one.
            raw_input_contents: vec![vec![8; 1 << 20].into()],
            ..Default::default()
        }
    }

    #[test]
    fn fields_in_memory_are_bounded_and_bytes_are_not() {
        let check =
            |request: ModelInferRequest| check::<ModelInferRequest>(&request.encode_to_vec());
        assert_eq!(check(request(60_000, 1_000_000, 1000)), Ok(()));
        for (inputs, texts, sizes) in [(FIELDS, 0, 1), (1, CONTENTS + 1, 1), (1, 1, FIELDS)] {
            let refused = check(request(inputs, texts, sizes)).expect_err("too many");
            assert!(refused.contains("fields: send tensors as raw contents"), "{refused}");
        }
    }

    #[test]
    fn settings_are_short() {
        assert_eq!(check::<TraceSettingRequest>(&[0x0a, 0].repeat(100)), Ok(()));
        assert!(check::<TraceSettingRequest>(&vec![0; SETTINGS + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(WireFields(&bytes).count() <= bytes.len());
            prop_assert_eq!(check::<ModelInferRequest>(&bytes), Ok(()));
        }
    }
}
