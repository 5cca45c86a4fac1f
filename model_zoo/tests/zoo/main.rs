//! The zoo's tests in one program, so that the models and Burn are linked once.

mod bert;
mod cifar;
mod gpt;
mod imagenet;
mod invariance;
mod learning;
mod mistakes;
mod onnx;
mod own_texts;
mod program;
mod sequence;
mod serving;
mod support;
