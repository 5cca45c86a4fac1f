//! A parameter's move on the host, in pieces that all cores share.

use salamander_core::optimizer::{Optimizer, Update};
use salamander_kernels::cpu::share;

use super::{Along, ParamState};

/// Values of a piece: with their gradients and state they stay in a core's cache between the two passes over them.
const PIECE: usize = 1 << 14;

/// Moves a parameter in place. Every value moves by itself, so that the cuts change nothing.
pub(super) fn step(
    optimizer: &Optimizer,
    along: Along,
    values: &mut [f32],
    gradient: &mut [f32],
    state: &mut ParamState,
) {
    let step = state.steps;
    let mut slots: Vec<_> = state.slots.iter_mut().map(|slot| slot.chunks_mut(PIECE)).collect();
    let pieces = values.chunks_mut(PIECE).zip(gradient.chunks_mut(PIECE)).map(|(param, grad)| {
        let slots: Vec<&mut [f32]> = slots.iter_mut().filter_map(Iterator::next).collect();
        (param, grad, slots)
    });
    let pieces: Vec<_> = pieces.collect();
    type Piece<'a> = (&'a mut [f32], &'a mut [f32], Vec<&'a mut [f32]>);
    share(pieces, |_, (param, grad, mut slots): Piece<'_>| {
        if along.factor != 1.0 {
            grad.iter_mut().for_each(|value| *value *= along.factor);
        }
        let update = Update { learning_rate: along.rate, step, param, grad };
        optimizer.update(update, &mut slots);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_move_as_the_whole_does() {
        let optimizer = Optimizer::from(Optimizer::adam(0.1).weight_decay(0.01));
        let len = 3 * PIECE + 5;
        let start: Vec<f32> = (0..len).map(|i| (i as f32).sin()).collect();
        let gradient: Vec<f32> = (0..len).map(|i| (i as f32).cos()).collect();
        let (mut whole, mut slots) = (start.clone(), vec![vec![0.0; len]; 2]);
        let scaled: Vec<f32> = gradient.iter().map(|value| value * 0.25).collect();
        let update =
            Update { learning_rate: 0.1, step: 1, param: &mut whole, grad: scaled.as_slice() };
        optimizer.update(update, &mut slots);
        let mut state = ParamState { steps: 1, slots: vec![vec![0.0; len]; 2] };
        let (mut values, mut gradient) = (start, gradient);
        let along = Along { rate: 0.1, factor: 0.25 };
        step(&optimizer, along, &mut values, &mut gradient, &mut state);
        assert_eq!(values, whole);
        assert_eq!(state.slots, slots);
    }
}
