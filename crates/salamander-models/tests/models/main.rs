//! The models' tests in one program, so that Burn is linked once.

mod onnx;
mod onnxruntime;
mod pictures;
mod texts;
