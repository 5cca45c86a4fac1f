//! What a model may not have where its parameters are on servers: asked before a run, and again in each process.

use burn::tensor::TensorData;

use crate::Error;
use crate::trial::{Pass, Trial};

/// The model's only pass, whose parameters all move by one formula.
pub(crate) fn only_pass<T: Trial>(passes: &[Pass]) -> Result<&Pass, Error> {
    let [pass] = passes else {
        let reason = "it has several passes, which meet in a step: use strategy allreduce";
        return Err(Error::model::<T>(reason));
    };
    if !pass.groups.is_empty() {
        let reason = "it has groups of parameters with their own rates or weight decay, and servers move all by one \
                      formula: use strategy allreduce";
        return Err(Error::model::<T>(reason));
    }
    Ok(pass)
}

/// Values that layers keep besides their parameters would be lost: they may not move in a step.
pub(crate) fn check_running<T: Trial>(
    before: &[(String, TensorData)],
    mut after: impl Iterator<Item = (String, TensorData)>,
) -> Result<(), Error> {
    let moved = after.find(|(path, value)| {
        let old = before.iter().find(|(other, _)| other == path);
        old.is_none_or(|(_, old)| old.iter::<f32>().ne(value.iter::<f32>()))
    });
    moved.map_or(Ok(()), |(path, _)| {
        Err(Error::model::<T>(format!(
            "{path} moves besides the parameters (batch normalisation), which asynchronous \
             training does not keep: use strategy hybrid or allreduce"
        )))
    })
}
