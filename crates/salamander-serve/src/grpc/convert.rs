//! Between the protocol's messages and what the engine takes and gives.

use std::time::Duration;

use prost::Message as _;
use salamander_proto::inference::infer_parameter::ParameterChoice;
use salamander_proto::inference::model_infer_request::InferInputTensor;
use salamander_proto::inference::model_infer_response::InferOutputTensor;
use salamander_proto::inference::model_metadata_response::TensorMetadata;
use salamander_proto::inference::{
    DataType as ConfigType, InferBatchStatistics, InferParameter, InferStatistics,
    InferTensorContents, ModelConfig, ModelDynamicBatching, ModelInferRequest, ModelInferResponse,
    ModelInput, ModelMetadataResponse, ModelOutput, ModelStatistics, ModelVersionPolicy,
    StatisticDuration, model_version_policy,
};

use crate::engine::{Batching, InferRequest, InferResponse, ServedVersion, StatisticsNow, SumNow};
use crate::input::Input;
use crate::model::TensorInfo;
use crate::refusal::{Refusal, check_output};
use crate::tensor::{DataType, Tensor, Values};

/// A request of the engine.
pub(super) fn request(request: ModelInferRequest) -> Result<InferRequest, Refusal> {
    let ModelInferRequest {
        model_name: model,
        model_version,
        parameters,
        inputs,
        outputs,
        raw_input_contents: raw,
        ..
    } = request;
    if !raw.is_empty() && raw.len() != inputs.len() {
        let (raw, inputs) = (raw.len(), inputs.len());
        let reason = format!("{raw} raw contents for {inputs} inputs: send one for each, or none");
        return Err(Refusal::Invalid(reason));
    }
    let mut raw = raw.into_iter();
    let mut tensors = Vec::with_capacity(inputs.len());
    for InferInputTensor { name, datatype, shape, contents, .. } in inputs {
        let wrong = |reason: String| Refusal::Invalid(format!("input \"{name}\": {reason}"));
        let datatype = DataType::parse(&datatype).map_err(wrong)?;
        let values = match (raw.next(), contents) {
            (Some(raw), _) => Values::from_raw(datatype, raw),
            (None, Some(contents)) => typed(datatype, contents),
            (None, None) => Err("it has no contents".to_string()),
        };
        let tensor = Tensor::new(name.clone(), datatype, &shape, values.map_err(wrong)?);
        tensors.push(tensor.map_err(Refusal::Invalid)?);
    }
    for output in &outputs {
        check_output(&output.name, output.parameters.keys())?;
    }
    let timeout = parameters.get("timeout").and_then(number).filter(|micros| *micros > 0);
    Ok(InferRequest {
        model,
        version: Some(model_version).filter(|version| !version.is_empty()),
        input: Input::Tensors(tensors),
        outputs: outputs.into_iter().map(|output| output.name).collect(),
        timeout: timeout.map(Duration::from_micros),
    })
}

fn number(parameter: &InferParameter) -> Option<u64> {
    match parameter.parameter_choice {
        Some(ParameterChoice::Int64Param(number)) => u64::try_from(number).ok(),
        Some(ParameterChoice::Uint64Param(number)) => Some(number),
        _ => None,
    }
}

/// Tensors and parameters that need not be counted: what every call takes is not bounded by memory.
const FEW: usize = 16;
/// Bytes of memory that are counted for each of the others,
const NAMED: usize = 320;
/// for each number that is no part of raw contents, as it came and as models take it,
const NUMBER: usize = 16;
/// and for each text.
const TEXT: usize = size_of::<bytes::Bytes>();

/// About how many bytes of memory a message takes until it is answered.
pub(super) fn memory(request: &ModelInferRequest) -> usize {
    let ModelInferRequest { parameters, inputs, outputs, raw_input_contents, .. } = request;
    let named = parameters.len() + inputs.len() + outputs.len();
    let raw = inputs.iter().zip(raw_input_contents).map(|(input, raw)| {
        DataType::parse(&input.datatype).map_or(0, |datatype| Values::grown(datatype, raw))
    });
    let typed = inputs.iter().filter_map(|input| input.contents.as_ref()).map(|contents| {
        let numbers = contents.bool_contents.len()
            + contents.int_contents.len()
            + contents.int64_contents.len()
            + contents.uint_contents.len()
            + contents.uint64_contents.len()
            + contents.fp32_contents.len()
            + contents.fp64_contents.len();
        numbers * NUMBER + contents.bytes_contents.len() * TEXT
    });
    let values = raw.chain(typed).sum::<usize>();
    request.encoded_len() + named.saturating_sub(FEW) * NAMED + values
}

/// Contents with a type of their own.
fn typed(datatype: DataType, contents: InferTensorContents) -> Result<Values, String> {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let ints = |ints: Vec<i64>| Values::from_ints(datatype, ints);
    match datatype {
        DataType::Bool => ints(bool_contents.into_iter().map(i64::from).collect()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => {
            ints(int_contents.into_iter().map(i64::from).collect())
        }
        DataType::Int64 => ints(int64_contents),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => {
            ints(uint_contents.into_iter().map(i64::from).collect())
        }
        DataType::Uint64 => {
            let all = uint64_contents.into_iter().map(i64::try_from).collect::<Result<_, _>>();
            ints(all.map_err(|_| format!("a value is more than {}", i64::MAX))?)
        }
        DataType::Fp32 => Ok(Values::Floats(fp32_contents)),
        DataType::Fp64 => Values::from_floats(datatype, fp64_contents),
        DataType::Bytes => Ok(Values::Texts(bytes_contents)),
        DataType::Fp16 | DataType::Bf16 => {
            Err(format!("{} has no contents but raw ones", datatype.name()))
        }
    }
}

/// An answer with raw contents.
pub(super) fn response(model: String, id: String, response: InferResponse) -> ModelInferResponse {
    let InferResponse { version, outputs } = response;
    let (mut tensors, mut raw) = (Vec::new(), Vec::new());
    for Tensor { name, datatype, shape, values } in outputs {
        raw.push(values.to_raw());
        tensors.push(InferOutputTensor {
            name,
            datatype: datatype.name().to_string(),
            shape: shape.into_iter().map(|size| size as i64).collect(),
            ..InferOutputTensor::default()
        });
    }
    ModelInferResponse {
        model_name: model,
        model_version: version,
        id,
        outputs: tensors,
        raw_output_contents: raw,
        ..ModelInferResponse::default()
    }
}

pub(super) fn metadata(
    name: String,
    versions: Vec<String>,
    version: &ServedVersion,
) -> ModelMetadataResponse {
    let metadata = version.decoder.metadata();
    let tensor = |info: &TensorInfo| TensorMetadata {
        name: info.name.clone(),
        datatype: info.datatype.name().to_string(),
        shape: info.batch_shape(),
    };
    ModelMetadataResponse {
        name,
        versions,
        platform: metadata.platform.clone(),
        inputs: metadata.inputs.iter().map(tensor).collect(),
        outputs: metadata.outputs.iter().map(tensor).collect(),
    }
}

pub(super) fn config(name: String, version: &ServedVersion, batching: Batching) -> ModelConfig {
    let metadata = version.decoder.metadata();
    let input = |info: &TensorInfo| ModelInput {
        name: info.name.clone(),
        data_type: config_type(info.datatype).into(),
        dims: info.shape.clone(),
        optional: info.optional,
    };
    let output = |info: &TensorInfo| ModelOutput {
        name: info.name.clone(),
        data_type: config_type(info.datatype).into(),
        dims: info.shape.clone(),
    };
    let latest = model_version_policy::Latest { num_versions: 1 };
    ModelConfig {
        name,
        platform: metadata.platform.clone(),
        version_policy: Some(ModelVersionPolicy { latest: Some(latest) }),
        max_batch_size: i32::try_from(batching.rows).unwrap_or(i32::MAX),
        input: metadata.inputs.iter().map(input).collect(),
        output: metadata.outputs.iter().map(output).collect(),
        dynamic_batching: Some(ModelDynamicBatching {
            preferred_batch_size: Vec::new(),
            max_queue_delay_microseconds: batching.delay.as_micros() as u64,
        }),
        backend: crate::http::SERVER.to_string(),
    }
}

fn config_type(datatype: DataType) -> ConfigType {
    match datatype {
        DataType::Bool => ConfigType::TypeBool,
        DataType::Uint8 => ConfigType::TypeUint8,
        DataType::Uint16 => ConfigType::TypeUint16,
        DataType::Uint32 => ConfigType::TypeUint32,
        DataType::Uint64 => ConfigType::TypeUint64,
        DataType::Int8 => ConfigType::TypeInt8,
        DataType::Int16 => ConfigType::TypeInt16,
        DataType::Int32 => ConfigType::TypeInt32,
        DataType::Int64 => ConfigType::TypeInt64,
        DataType::Fp16 => ConfigType::TypeFp16,
        DataType::Fp32 => ConfigType::TypeFp32,
        DataType::Fp64 => ConfigType::TypeFp64,
        DataType::Bf16 => ConfigType::TypeBf16,
        DataType::Bytes => ConfigType::TypeString,
    }
}

pub(super) fn statistics(name: String, version: &ServedVersion) -> ModelStatistics {
    let now = version.statistics.now();
    let StatisticsNow { succeeded, failed, rows, executions, batches, queued, .. } = now;
    // Written with the answer: not timed apart.
    let written = SumNow { ns: 0, ..succeeded };
    let sum = |SumNow { count, ns }: SumNow| Some(StatisticDuration { count, ns });
    let none = Some(StatisticDuration::default());
    ModelStatistics {
        name,
        version: version.name.clone(),
        last_inference: now.last,
        inference_count: rows,
        execution_count: executions.count,
        inference_stats: Some(InferStatistics {
            success: sum(succeeded),
            fail: sum(failed),
            queue: sum(queued),
            compute_input: sum(now.decoded),
            compute_infer: sum(now.computed),
            compute_output: sum(written),
        }),
        batch_stats: batches
            .into_iter()
            .map(|(size, computed)| InferBatchStatistics {
                batch_size: size as u64,
                compute_input: none,
                compute_infer: sum(computed),
                compute_output: none,
            })
            .collect(),
    }
}
