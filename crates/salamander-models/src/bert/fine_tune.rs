//! How the parameters of an encoder move in fine-tuning.

use salamander_train::ParamGroup;

/// Biases and norms have no weight decay, and with a `layer_decay` below one the layers further from the head have
/// lower rates: each layer's is the one above it times this (<https://arxiv.org/abs/1801.06146>). `prefix` is the path
/// of the [`Bert`](super::Bert) in the model, such as `classifier.encoder`.
pub fn groups(prefix: &str, layers: usize, layer_decay: f64) -> Vec<ParamGroup> {
    let plain = ParamGroup::of(["*.bias", "*.gamma", "*.beta"]).weight_decay(0.0);
    if layer_decay == 1.0 {
        return vec![plain];
    }
    let rate = |depth: usize| layer_decay.powi(i32::try_from(depth).unwrap_or(i32::MAX));
    let layer = |number: usize| {
        ParamGroup::of([format!("{prefix}.layers.{number}.*")]).rate(rate(layers - number))
    };
    let table = ParamGroup::of([format!("{prefix}.embeddings.*")]).rate(rate(layers + 1));
    [plain, table].into_iter().chain((0..layers).map(layer)).collect()
}

#[cfg(test)]
mod tests {
    use salamander_core::optimizer::Optimizer;
    use salamander_train::Pass;

    use super::*;

    #[test]
    fn lower_layers_move_more_slowly_and_norms_do_not_decay() {
        let pass = Pass::new("train", Optimizer::adamw(0.1).weight_decay(0.01));
        let pass = groups("bert.encoder", 2, 0.5).into_iter().fold(pass, Pass::group);
        let check = |path: &str, rate: f64, decays: bool| {
            let (optimizer, found) = pass.optimizer_of(path);
            assert_eq!(found, rate, "{path}");
            let Optimizer::AdamW(adam) = optimizer else { panic!("another optimizer") };
            assert_eq!(adam.weight_decay > 0.0, decays, "{path}");
        };
        check("bert.classifier.weight", 1.0, true);
        check("bert.encoder.layers.1.query.weight", 0.5, true);
        check("bert.encoder.layers.0.output_norm.gamma", 0.25, false);
        check("bert.encoder.embeddings.word.weight", 0.125, true);
        check("bert.classifier.bias", 1.0, false);
    }
}
