//! A version of a model: what decodes its records, and what its own thread computes.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use salamander_data::{Row, Value};
use salamander_serve::{
    DataType, Decoded, Decoder, Failed, Input, Loaded, Metadata, Model, Tensor, TensorInfo,
};
use salamander_train::example::InputSpec;
use salamander_train::inference::{AskingThread, Examples, NotAnswered, RecordDecoder};
use salamander_train::model::Instance;

use super::outputs::Outputs;
use crate::Error;

/// A model that is asked.
pub(super) struct AskedModel {
    instance: Box<dyn Instance>,
    name: &'static str,
    outputs: Outputs,
    asking: AskedBy,
}

/// How a model is asked.
pub(super) struct AskedBy {
    pub(super) thread: AskingThread,
    /// The most rows that are computed at once.
    pub(super) rows: usize,
}

impl AskedModel {
    pub(super) fn new(
        instance: Box<dyn Instance>,
        name: &'static str,
        outputs: Outputs,
        asking: AskedBy,
    ) -> Self {
        Self { instance, name, outputs, asking }
    }

    /// Asks it about nothing in particular, so that the first one who asks does not wait for what only the first one
    /// waits for, and the sizes of its outputs are known.
    pub(super) fn loaded(self) -> Result<Loaded, Error> {
        let decoder = self.instance.decoder();
        let mut metadata = Metadata {
            platform: self.name.to_string(),
            inputs: inputs(decoder.inputs()),
            outputs: Vec::new(),
        };
        let mut tried = decoder.empty();
        let known = !decoder.inputs().is_empty();
        let answers = match known && decoder.push(&zeros(decoder.inputs()), &mut tried).is_ok() {
            true => self.instance.infer(vec![tried], self.asking.rows).ok(),
            // A word that the vocabulary does not have: nothing is known before the first request.
            false => None,
        };
        metadata.outputs = self.outputs.describe(answers.as_ref());
        let decoder = Arc::new(AskedDecoder { decoder, metadata });
        Ok(Loaded { decoder, model: Box::new(self) })
    }
}

impl Model for AskedModel {
    fn enter(&mut self) {
        self.asking.thread.begin();
    }

    fn unknown_ids(&self) -> Option<Arc<AtomicU64>> {
        self.instance.unknown_ids()
    }

    fn infer(&mut self, batch: Vec<Decoded>) -> Result<Vec<Tensor>, Failed> {
        let mut examples = Vec::with_capacity(batch.len());
        for Decoded { value, .. } in batch {
            match value.downcast::<Examples>() {
                Ok(own) => examples.push(*own),
                Err(_) => {
                    let reason = "these records were decoded for another model".to_string();
                    return Err(Failed { reason, mistake: false, batch: Vec::new() });
                }
            }
        }
        match self.instance.infer(examples, self.asking.rows) {
            Ok(answers) => Ok(self.outputs.tensors(answers)),
            Err(not) => {
                let NotAnswered { error, examples } = *not;
                let batch = examples.into_iter().map(decoded).collect();
                let mistake = matches!(error, salamander_train::Error::Invalid(_));
                Err(Failed { reason: error.to_string(), mistake, batch })
            }
        }
    }
}

fn decoded(examples: Examples) -> Decoded {
    Decoded { rows: examples.records(), tokens: examples.tokens(), value: Box::new(examples) }
}

/// The example's own decoder.
struct AskedDecoder {
    decoder: Arc<dyn RecordDecoder>,
    metadata: Metadata,
}

impl Decoder for AskedDecoder {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn decode(&self, input: &Input) -> Result<Decoded, String> {
        let mut examples = self.decoder.empty();
        input.each(&mut |row| {
            self.decoder.push(row, &mut examples).map_err(|error| error.to_string())
        })?;
        Ok(decoded(examples))
    }
}

/// A tensor for each column; one that several fields are read from is needed if one of them needs it.
fn inputs(specs: &[InputSpec]) -> Vec<TensorInfo> {
    let of = |spec: &InputSpec| {
        let datatype = DataType::parse(spec.datatype).unwrap_or(DataType::Bytes);
        let (shape, optional) = (spec.column_shape(), spec.optional);
        let info = move |name: &&str| TensorInfo {
            name: name.to_string(),
            datatype,
            shape: shape.clone(),
            optional,
        };
        spec.columns.iter().map(info).collect::<Vec<_>>()
    };
    let mut all: Vec<TensorInfo> = Vec::new();
    for input in specs.iter().flat_map(of) {
        match all.iter_mut().find(|other| other.name == input.name) {
            Some(other) => other.optional &= input.optional,
            None => all.push(input),
        }
    }
    all
}

/// A record of zeros and empty texts.
fn zeros(specs: &[InputSpec]) -> Row<'static> {
    let value = |spec: &InputSpec| {
        let count = spec.column_shape().iter().map(|size| (*size).max(0) as usize).product();
        match spec.datatype {
            "BYTES" => Value::Text(""),
            "FP32" | "FP64" => Value::Floats(Cow::Owned(vec![0.0; count])),
            _ => Value::Ints(Cow::Owned(vec![0; count])),
        }
    };
    let columns = specs.iter().flat_map(|spec| {
        spec.columns.iter().map(move |column| (Cow::Borrowed(*column), value(spec)))
    });
    Row::new(columns.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_two_fields_is_one_input() {
        let spec = |field, optional| InputSpec {
            field,
            columns: &["a", "b"],
            datatype: "FP32",
            shape: &[2],
            ragged: false,
            optional,
        };
        let found = inputs(&[spec("counts", true), spec("groups", false)]);
        let names: Vec<&str> = found.iter().map(|input| input.name.as_str()).collect();
        assert_eq!((names, found[0].optional), (vec!["a", "b"], false));
    }
}
