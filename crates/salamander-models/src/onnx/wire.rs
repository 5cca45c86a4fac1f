//! ONNX's file format: the messages of its protobuf schema, as far as a network of float tensors needs them.
//!
//! The numbers are those of the fields in `onnx.proto` (<https://onnx.ai/onnx/repo-docs/IR.html>).

use burn::tensor::TensorData;

use super::graph::{Attribute, Axis, Element, GraphNode, GraphPort};

/// The version of the format, and of the operators: the first with a layer normalisation.
const IR_VERSION: u64 = 8;
pub(super) const OPERATORS: u64 = 17;

/// A message that is being written.
#[derive(Default)]
struct ProtoWriter(Vec<u8>);

impl ProtoWriter {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn message(&mut self, field: u64, value: &ProtoWriter) {
        self.bytes(field, &value.0);
    }
}

/// What a file holds.
pub(super) struct ModelParts<'a> {
    pub(super) name: &'a str,
    pub(super) nodes: &'a [GraphNode],
    pub(super) weights: &'a [(String, TensorData)],
    pub(super) inputs: &'a [GraphPort],
    pub(super) outputs: &'a [GraphPort],
    pub(super) metadata: &'a [(String, String)],
}

/// `ModelProto`.
pub(super) fn model(parts: &ModelParts<'_>) -> Vec<u8> {
    let mut model = ProtoWriter::default();
    model.number(1, IR_VERSION);
    model.text(2, "salamander");
    model.text(3, env!("CARGO_PKG_VERSION"));
    model.message(7, &graph(parts));
    let mut operators = ProtoWriter::default();
    operators.text(1, "");
    operators.number(2, OPERATORS);
    model.message(8, &operators);
    for (key, value) in parts.metadata {
        let mut entry = ProtoWriter::default();
        entry.text(1, key);
        entry.text(2, value);
        model.message(14, &entry);
    }
    model.0
}

/// `GraphProto`.
fn graph(parts: &ModelParts<'_>) -> ProtoWriter {
    let mut graph = ProtoWriter::default();
    parts.nodes.iter().for_each(|part| graph.message(1, &node(part)));
    graph.text(2, parts.name);
    parts.weights.iter().for_each(|(name, data)| graph.message(5, &tensor(name, data)));
    parts.inputs.iter().for_each(|part| graph.message(11, &port(part)));
    parts.outputs.iter().for_each(|part| graph.message(12, &port(part)));
    graph
}

/// `NodeProto`.
fn node(node: &GraphNode) -> ProtoWriter {
    let mut message = ProtoWriter::default();
    node.inputs.iter().for_each(|input| message.text(1, input));
    message.text(2, &node.output);
    message.text(3, &node.output);
    message.text(4, node.operator);
    for (name, value) in &node.attributes {
        let mut attribute = ProtoWriter::default();
        attribute.text(1, name);
        let kind = match value {
            Attribute::Float(value) => {
                attribute.float(2, *value);
                1
            }
            Attribute::Int(value) => {
                attribute.number(3, *value as u64);
                2
            }
            Attribute::Ints(values) => {
                values.iter().for_each(|value| attribute.number(8, *value as u64));
                7
            }
        };
        attribute.number(20, kind);
        message.message(5, &attribute);
    }
    message
}

/// `TensorProto`, whose values are little-endian bytes.
fn tensor(name: &str, data: &TensorData) -> ProtoWriter {
    let mut message = ProtoWriter::default();
    data.shape().iter().for_each(|size| message.number(1, *size as u64));
    message.number(2, element(Element::of(data)));
    message.text(8, name);
    message.bytes(9, data.as_bytes());
    message
}

fn element(element: Element) -> u64 {
    match element {
        Element::F32 => 1,
        Element::I64 => 7,
    }
}

/// `ValueInfoProto`, with a `TypeProto` of a tensor in it.
fn port(port: &GraphPort) -> ProtoWriter {
    let mut shape = ProtoWriter::default();
    for axis in &port.axes {
        let mut dimension = ProtoWriter::default();
        match axis {
            Axis::Size(size) => dimension.number(1, *size as u64),
            Axis::Any(name) => dimension.text(2, name),
        }
        shape.message(1, &dimension);
    }
    let mut tensor = ProtoWriter::default();
    tensor.number(1, element(port.element));
    tensor.message(2, &shape);
    let mut kind = ProtoWriter::default();
    kind.message(1, &tensor);
    let mut message = ProtoWriter::default();
    message.text(1, &port.name);
    message.message(2, &kind);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protobuf_has_them() {
        let check = |write: &dyn Fn(&mut ProtoWriter), expected: &[u8]| {
            let mut message = ProtoWriter::default();
            write(&mut message);
            assert_eq!(message.0, expected);
        };
        check(&|m| m.number(1, 8), &[0x08, 8]);
        check(&|m| m.number(20, 300), &[0xa0, 0x01, 0xac, 0x02]);
        check(&|m| m.float(2, 1.0), &[0x15, 0, 0, 0x80, 0x3f]);
        check(&|m| m.text(4, "Add"), &[0x22, 3, b'A', b'd', b'd']);
        let negative = [0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        check(&|m| m.number(3, -1i64 as u64), &negative);
    }
}
