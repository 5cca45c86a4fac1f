//! The layer that looks rows up.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::{self as burns, Initializer};
use burn::tensor::{Device, Int, Tensor};

use crate::ops::embedding;

/// Configuration of an [`Embedding`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct EmbeddingConfig {
    /// Rows of the table.
    pub n_embedding: usize,
    /// Columns of the table.
    pub d_model: usize,
    /// How parameters start.
    #[config(default = "burns::EmbeddingConfig::new(1, 1).initializer")]
    pub initializer: Initializer,
}

impl EmbeddingConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    pub fn init(&self, device: &Device) -> Embedding {
        burns::EmbeddingConfig::new(self.n_embedding, self.d_model)
            .with_initializer(self.initializer.clone())
            .init(device)
            .into()
    }
}

/// A row of a table for each id.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Embedding {
    /// `[n_embedding, d_model]`
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// The rows of `[batch, ids]`, as Burn's layer gives them: `[batch, ids, d_model]`.
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let [batch, count] = ids.dims();
        let rows = self.rows(ids.reshape([batch * count]));
        let [_, width] = rows.dims();
        rows.reshape([batch, count, width])
    }

    /// The rows of `[ids]`: `[ids, d_model]`.
    pub fn rows(&self, ids: Tensor<1, Int>) -> Tensor<2> {
        embedding(self.weight.val(), ids)
    }
}

impl From<burns::Embedding> for Embedding {
    fn from(layer: burns::Embedding) -> Self {
        Self { weight: layer.weight }
    }
}

impl ModuleDisplay for Embedding {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [n_embedding, d_model] = self.weight.shape().dims();
        content.add("n_embedding", &n_embedding).add("d_model", &d_model).optional()
    }
}
