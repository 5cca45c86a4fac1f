//! BERT (<https://arxiv.org/abs/1810.04805>) and RoBERTa (<https://arxiv.org/abs/1907.11692>), in the layout of Hugging
//! Face: `config.json`, `model.safetensors` (or `pytorch_model.bin`) and `tokenizer.json` of a folder.
//!
//! Texts are laid end to end ([`Tokens`]), and no padding is computed. A classifier as a part of a trial:
//!
//! ```
//! use salamander_models::bert::{BertClassifier, BertConfig};
//! use salamander_train::example::Tokens;
//! use burn::tensor::Device;
//!
//! let config = BertConfig::parse(
//!     br#"{"model_type": "bert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2,
//!          "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 16}"#,
//! )?;
//! let device = Device::flex();
//! let model = BertClassifier::new(&config, 3, &device);
//! let texts = Tokens::new("text", &[vec![1, 7, 9, 2], vec![1, 2]], &device)?;
//! assert_eq!(model.forward(&texts).dims(), [2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - `config`: what `config.json` says; `encoder`: the layers; `classifier`: classes of texts
//! - `folder`: weights in and out, under their names; `onnx`: the same network for other programs;
//!   `fine_tune`: which parameters move how

mod classifier;
mod config;
mod encoder;
mod fine_tune;
mod folder;
mod names;
mod onnx;

pub use classifier::BertClassifier;
pub use config::BertConfig;
pub use encoder::{Bert, Embeddings, Layer};
pub use fine_tune::groups;
pub use folder::{TOKENIZER_FILES, export, export_tokenizer};
pub use salamander_train::example::{Tokenizer, Tokens};

pub use crate::Head;
