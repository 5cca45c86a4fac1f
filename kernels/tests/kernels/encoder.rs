//! What a transformer's encoder is made of: layer normalisation, GELU, attention, and the loss behind it.

use std::sync::PoisonError;

use burn::nn::attention as burns_attention;
use burn::nn::transformer as burns_transformer;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation, module};
use salamander_kernels::cpu::attention::{
    AttentionShape, Inputs, Masks, Weighing, backward, forward,
};
use salamander_kernels::cpu::dropout::Mask;
use salamander_kernels::cpu::{entropy, gelu, layer_norm};
use salamander_kernels::layers::{
    Gelu, LayerNormConfig, MhaInput, MultiHeadAttentionConfig, TransformerEncoderConfig,
    TransformerEncoderInput,
};
use salamander_kernels::ops;

use super::layers::{GENERATOR, listing};
use super::random::Random;
use super::reference::encoder as reference;
use super::{
    assert_all_close, assert_close, assert_slopes, trace, tracked, vector, with_any_threads,
};

const ROWS: [[usize; 2]; 5] = [[1, 1], [3, 7], [64, 256], [400, 300], [70_000, 3]];

const ATTENTIONS: [[usize; 5]; 6] = [
    [1, 1, 1, 1, 1],
    [2, 3, 5, 7, 4],
    [3, 4, 33, 33, 16],
    [1, 2, 300, 40, 8],
    [2, 8, 128, 128, 32],
    [2, 1, 6, 130, 5],
];

struct Case {
    shape: AttentionShape,
    values: [Vec<f32>; 3],
    gradient: Vec<f32>,
    weighing: Weighing,
}

impl Case {
    fn inputs(&self) -> Inputs<'_> {
        let [query, key, value] = &self.values;
        Inputs { query, key, value }
    }
}

/// Every shape without masks, and with both.
fn attentions() -> Vec<Case> {
    let mut random = Random::new(51);
    let mut cases = Vec::new();
    for [batch, heads, queries, keys, width] in ATTENTIONS {
        let shape = AttentionShape { batch, heads, queries, keys, width };
        for masked in [false, true] {
            let mut some = |len: usize, limit: f32| {
                let drawn = random.values(len).into_iter();
                masked.then(|| drawn.map(|value| value > limit).collect())
            };
            let (pad, attention) = (some(batch * keys, 0.8), some(batch * queries * keys, 0.5));
            let masks = Masks { pad, attention, fill: -1e4 };
            let columns = heads * width;
            cases.push(Case {
                shape,
                values: [queries, keys, keys].map(|places| random.values(batch * places * columns)),
                gradient: random.values(batch * queries * columns),
                weighing: Weighing { masks, causal: false, dropout: None },
            });
        }
    }
    cases
}

#[test]
fn kernels_equal_the_reference() {
    let mut random = Random::new(52);
    for [rows, width] in ROWS {
        let what = format!("{rows} x {width}");
        let input = random.values(rows * width);
        let (gamma, beta) = (random.values(width), random.values(width));
        let expected = reference::layer_norm(&input, &gamma, &beta, 1e-5);
        assert_close(&layer_norm::forward(&input, &gamma, &beta, 1e-5).0, &expected, &what);
        let wide: Vec<f32> = input.iter().map(|value| value * 5.0).collect();
        assert_close(&gelu::forward(&wide), &reference::gelu(&wide), &what);
        let labels: Vec<usize> = (0..rows).map(|_| random.between(0, width - 1)).collect();
        let expected = reference::cross_entropy(&wide, &labels, width);
        assert_close(&entropy::forward(&wide, &labels, width).0, &expected, &what);
    }
    for case in attentions() {
        let expected = reference::attention(&case.shape, case.inputs(), &case.weighing.masks);
        let found = forward(&case.shape, case.inputs(), &case.weighing);
        assert_close(&found, &expected, &format!("{:?}", case.shape));
    }
}

#[test]
fn operations_equal_burns() {
    let mut random = Random::new(53);
    for [rows, width] in ROWS {
        let what = format!("{rows} x {width}");
        let (x, gamma, beta) =
            (random.values(rows * width), random.values(width), random.values(width));
        let normalised = |ours: bool| {
            let (x, gamma) = (tracked(&x, [1, rows, width]), tracked(&gamma, [width]));
            let beta = tracked(&beta, [width]);
            let with = (x.clone(), gamma.clone(), Some(beta.clone()));
            let output = match ours {
                true => ops::layer_norm(with.0, with.1, with.2, 1e-5),
                false => module::layer_norm(with.0, with.1, with.2, 1e-5),
            };
            trace(output, |gradients| {
                vec![
                    vector(x.grad(gradients).expect("used")),
                    vector(gamma.grad(gradients).expect("used")),
                    vector(beta.grad(gradients).expect("used")),
                ]
            })
        };
        // One column has no deviation, and its gradient is all rounding.
        if width > 1 {
            assert_all_close(&normalised(true), &normalised(false), &format!("norm, {what}"));
        }
        let labels: Vec<i64> = (0..rows).map(|_| random.between(0, width - 1) as i64).collect();
        let labels = Tensor::<1, Int>::from_data(labels.as_slice(), &Device::flex().autodiff());
        let run = |operation: &dyn Fn(Tensor<2>) -> Tensor<2>| {
            let x = tracked(&x, [rows, width]);
            let output = operation(x.clone() * 3.0);
            trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))])
        };
        let (ours, burns) = (run(&|x| Gelu::new().forward(x)), run(&|x| activation::gelu(x)));
        assert_all_close(&ours, &burns, &format!("gelu, {what}"));
        let ours = run(&|x| ops::cross_entropy(x, &labels).reshape([rows, 1]));
        let at = labels.clone().reshape([rows, 1]);
        let burns = run(&|x| -log_softmax(x, 1).gather(1, at.clone()));
        assert_all_close(&ours, &burns, &format!("cross-entropy, {what}"));
    }
}

#[test]
fn gradients_are_slopes() {
    let mut random = Random::new(54);
    // Spread out, so that a difference is short beside the deviation of a row.
    let input: Vec<f32> = random.values(60).into_iter().map(|value| value * 4.0).collect();
    let gradient = random.values(60);
    let (gamma, beta) = (random.values(12), random.values(12));
    let loss = |input: &[f32], gamma: &[f32]| {
        let output = layer_norm::forward(input, gamma, &beta, 1e-5).0;
        output.iter().zip(&gradient).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
    };
    let (_, moments) = layer_norm::forward(&input, &gamma, &beta, 1e-5);
    let found = layer_norm::backward(&input, &gamma, &moments, &gradient);
    assert_slopes(input.clone(), &found.input, "norm", |x| loss(x, &gamma));
    assert_slopes(gamma.clone(), &found.gamma, "gamma", |g| loss(&input, g));
    for mut case in attentions().into_iter().skip(2).take(2) {
        // The mask is a function of the place, so differences see the same one.
        for dropout in [None, Some(Mask { seed: [1, 2], keep: 0.75 })] {
            case.weighing.dropout = dropout;
            let found = backward(&case.shape, case.inputs(), &case.weighing, &case.gradient);
            for (at, found) in found.iter().enumerate() {
                assert_slopes(case.values[at].clone(), found, &format!("input {at}"), |values| {
                    let mut all = case.values.clone();
                    all[at] = values.to_vec();
                    let inputs = Inputs { query: &all[0], key: &all[1], value: &all[2] };
                    let output = forward(&case.shape, inputs, &case.weighing);
                    let pairs = output.iter().zip(&case.gradient);
                    pairs.map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
                });
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let mut random = Random::new(55);
    for [rows, width] in ROWS {
        let (x, gradient) = (random.values(rows * width), random.values(rows * width));
        let (gamma, beta) = (random.values(width), random.values(width));
        let labels: Vec<usize> = (0..rows).map(|_| random.between(0, width - 1)).collect();
        with_any_threads(|| {
            let (output, moments) = layer_norm::forward(&x, &gamma, &beta, 1e-5);
            let found = layer_norm::backward(&x, &gamma, &moments, &gradient);
            let mut slope = gradient.clone();
            gelu::backward(&mut slope, &x);
            let (losses, mut probabilities) = entropy::forward(&x, &labels, width);
            entropy::backward(&mut probabilities, &labels, width, &losses);
            let sums = (found.input, found.gamma, found.beta);
            (output, sums, gelu::forward(&x), slope, losses, probabilities)
        });
    }
    for mut case in attentions() {
        case.weighing.dropout = Some(Mask { seed: [3, 4], keep: 0.9 });
        with_any_threads(|| {
            let output = forward(&case.shape, case.inputs(), &case.weighing);
            let found = backward(&case.shape, case.inputs(), &case.weighing, &case.gradient);
            (output, found)
        });
    }
}

fn masks(batch: usize, places: usize) -> (Tensor<2, Bool>, Tensor<3, Bool>) {
    let device = Device::flex().autodiff();
    let pad: Vec<bool> =
        (0..batch * places).map(|at| at % places >= places - at / places).collect();
    let attn: Vec<bool> =
        (0..batch * places * places).map(|at| at % places > at / places % places).collect();
    let pad = TensorData::new(pad, [batch, places]);
    let attn = TensorData::new(attn, [batch, places, places]);
    (Tensor::from_data(pad, &device), Tensor::from_data(attn, &device))
}

#[test]
fn attention_is_burns_but_for_the_kernel() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    for quiet in [false, true] {
        device.seed(8);
        let ours = MultiHeadAttentionConfig::new(12, 3).with_dropout(0.0).with_quiet_softmax(quiet);
        let ours = ours.init(&device);
        let found = listing(&ours);
        device.seed(8);
        let burns = burns_attention::MultiHeadAttentionConfig::new(12, 3)
            .with_dropout(0.0)
            .with_quiet_softmax(quiet)
            .init(&device);
        assert_eq!(found, listing(&burns));
        assert_eq!(ours.to_string(), burns.to_string());
        let values = Random::new(56).values(2 * 9 * 12);
        let (pad, attn) = masks(2, 9);
        let x = tracked(&values, [2, 9, 12]);
        let input = MhaInput::self_attn(x.clone()).mask_pad(pad.clone()).mask_attn(attn.clone());
        let output = ours.forward(input);
        let weights = vector(output.clone().weights().inner());
        let ours =
            trace(output.context, |gradients| vec![vector(x.grad(gradients).expect("used"))]);
        let x = tracked(&values, [2, 9, 12]);
        let input = burns_attention::MhaInput::self_attn(x.clone()).mask_pad(pad).mask_attn(attn);
        let output = burns.forward(input);
        assert_close(&weights, &vector(output.weights.inner()), "weights");
        let burns =
            trace(output.context, |gradients| vec![vector(x.grad(gradients).expect("used"))]);
        assert_all_close(&ours, &burns, "attention");
    }
}

/// A query whose keys are all masked gives them equal weights, however far below the masked score is.
#[test]
fn a_sequence_of_padding_alone_has_burns_gradients() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    let values = Random::new(58).values(2 * 8 * 12);
    let pad = TensorData::new((0..16).map(|at| at < 8).collect::<Vec<bool>>(), [2, 8]);
    let pad: Tensor<2, Bool> = Tensor::from_data(pad, &device);
    device.seed(8);
    let ours = MultiHeadAttentionConfig::new(12, 3).with_dropout(0.0).with_min_float(-1e9);
    let ours = ours.init(&device);
    let listed = listing(&ours);
    device.seed(8);
    let burns = burns_attention::MultiHeadAttentionConfig::new(12, 3)
        .with_dropout(0.0)
        .with_min_float(-1e9)
        .init(&device);
    assert_eq!(listed, listing(&burns));
    let x = tracked(&values, [2, 8, 12]);
    let input = MhaInput::self_attn(x.clone()).mask_pad(pad.clone());
    let found = trace(ours.forward(input).context, |gradients| {
        vec![vector(x.grad(gradients).expect("used"))]
    });
    let x = tracked(&values, [2, 8, 12]);
    let input = burns_attention::MhaInput::self_attn(x.clone()).mask_pad(pad);
    let expected = trace(burns.forward(input).context, |gradients| {
        vec![vector(x.grad(gradients).expect("used"))]
    });
    assert_all_close(&found, &expected, "padding alone");
}

#[test]
fn one_mask_serves_all_sequences_and_one_of_another_size_none() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    let layer = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.0).init(&device);
    let x = tracked(&Random::new(59).values(2 * 5 * 6), [2, 5, 6]);
    let (pad, attn) = masks(2, 5);
    let one = attn.clone().narrow(0, 0, 1);
    let both = layer.forward(MhaInput::self_attn(x.clone()).mask_attn(attn)).context;
    let shared = layer.forward(MhaInput::self_attn(x.clone()).mask_attn(one)).context;
    assert_eq!(vector(both.inner()), vector(shared.inner()));
    let long = Tensor::cat(vec![pad.clone(), pad], 1).narrow(1, 0, 6);
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        layer.forward(MhaInput::self_attn(x.clone()).mask_pad(long)).context
    }));
    assert!(wrong.is_err(), "a mask of six keys was taken for five");
}

#[test]
fn weights_are_those_that_the_context_was_made_with() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    let layer = MultiHeadAttentionConfig::new(6, 1).with_dropout(0.5).init(&device);
    let x = tracked(&Random::new(57).values(2 * 20 * 6), [2, 20, 6]);
    let output = layer.forward(MhaInput::self_attn(x.clone()));
    let context = vector(output.context.clone().inner());
    let weights = output.weights();
    let dropped = vector(weights.clone().inner()).iter().filter(|weight| **weight == 0.0).count();
    assert!((250..550).contains(&dropped), "{dropped} of 800 weights dropped");
    let value = layer.value.forward(x).reshape([2, 1, 20, 6]);
    let again = layer.output.forward(weights.matmul(value).reshape([2, 20, 6]));
    assert_close(&context, &vector(again.inner()), "context");
}

#[test]
fn encoders_are_burns_but_for_the_kernels() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    assert_eq!(
        LayerNormConfig::new(4).init(&device).to_string(),
        burn::nn::LayerNormConfig::new(4).init(&device).to_string()
    );
    for norm_first in [false, true] {
        device.seed(9);
        let ours = TransformerEncoderConfig::new(8, 20, 2, 2)
            .with_dropout(0.0)
            .with_norm_first(norm_first)
            .init(&device);
        let found = listing(&ours);
        device.seed(9);
        let burns = burns_transformer::TransformerEncoderConfig::new(8, 20, 2, 2)
            .with_dropout(0.0)
            .with_norm_first(norm_first)
            .init(&device);
        assert_eq!(found, listing(&burns));
        assert_eq!(ours.to_string(), burns.to_string());
        let values = Random::new(58).values(3 * 5 * 8);
        let (pad, attn) = masks(3, 5);
        let x = tracked(&values, [3, 5, 8]);
        let input = TransformerEncoderInput::new(x.clone());
        let output = ours.forward(input.mask_pad(pad.clone()).mask_attn(attn.clone()));
        let ours = trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))]);
        let x = tracked(&values, [3, 5, 8]);
        let input = burns_transformer::TransformerEncoderInput::new(x.clone());
        let output = burns.forward(input.mask_pad(pad).mask_attn(attn));
        let burns = trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))]);
        assert_all_close(&ours, &burns, "encoder");
    }
}

#[test]
#[should_panic(expected = "label 3 is not one of 3 classes")]
fn a_label_that_is_no_class_is_named() {
    let labels = Tensor::<1, Int>::from_data([3], &Device::flex());
    ops::cross_entropy(tracked(&[0.0; 3], [1, 3]), &labels);
}

#[test]
#[should_panic(expected = "label -1 is not one of 3 classes")]
fn a_negative_label_is_named_as_it_is() {
    let labels = Tensor::<1, Int>::from_data([0, -1], &Device::flex());
    ops::cross_entropy(tracked(&[0.0; 6], [2, 3]), &labels);
}
