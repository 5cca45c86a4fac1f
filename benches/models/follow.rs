//! Steps of training on given batches, and how far their losses are from Python's.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};
use salamander_core::optimizer::Optimizer;
use salamander_train::Pass;
use salamander_train::gradients::GradientSum;
use salamander_train::optimize::OptimizerState;

/// The loss before each step: the mean of the scores' cross entropy over the batch.
pub(crate) fn losses<M: Module, B>(
    mut model: M,
    optimizer: impl Into<Optimizer>,
    batches: impl Iterator<Item = B>,
    scores: impl Fn(&M, B) -> (Tensor<2>, Tensor<1, Int>),
) -> Result<Vec<f32>, salamander_train::Error> {
    let pass = Pass::new("train", optimizer.into());
    let rate = pass.optimizer.learning_rate();
    let mut optimizer = OptimizerState::new(&pass);
    let mut losses = Vec::new();
    for batch in batches {
        let (scores, labels) = scores(&model, batch);
        let loss = salamander::ops::cross_entropy(scores, &labels).mean();
        losses.push(loss.clone().inner().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let sum = GradientSum::of(&model, gradients, &pass);
        model = optimizer.step(model, sum, rate)?;
    }
    Ok(losses)
}

/// The largest part of Python's loss by which ours differs from it.
pub(crate) fn apart(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len(), "as many steps as Python took");
    let parts = found.iter().zip(expected).map(|(ours, theirs)| (ours - theirs).abs() / theirs);
    parts.fold(0.0, |most, part| if part <= most { most } else { part })
}
