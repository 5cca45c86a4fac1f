//! Kernels of a training step against their references: with Burn's operations on the CPU, and on every GPU that the
//! build has.

use burn::tensor::{Device, Int, Tensor, TensorData};
use salamander_kernels::ops::{Gradient, Rule, embedding, is_gpu, norm, read, rows, send, step};

use super::random::Random;
use super::reference::bucket as reference;
use super::{assert_close, assert_slopes, tracked, vector, with_any_threads};

/// The CPU, and the GPUs of this machine.
fn devices() -> Vec<Device> {
    std::iter::once(Device::flex()).chain(gpus()).collect()
}

#[cfg(feature = "wgpu")]
fn gpus() -> Vec<Device> {
    let found = Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec();
    let may_skip = std::env::var_os("SALAMANDER_NO_SKIPS").is_none();
    assert!(may_skip || !found.is_empty(), "no adapter: install mesa-vulkan-drivers");
    if found.is_empty() {
        eprintln!("skipped on wgpu: there is no adapter");
    }
    found
}

#[cfg(not(feature = "wgpu"))]
fn gpus() -> Vec<Device> {
    Vec::new()
}

fn flat(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Four steps of a rule on a parameter of this shape, whose gradients lie in the middle of a bucket.
fn check_rule(rule: Rule, dims: [usize; 2], device: &Device) {
    let (len, before) = (dims[0] * dims[1], 13);
    let mut random = Random::new(len as u64);
    let mut expected = random.values(len);
    let mut kept = vec![vec![0.0f32; len]; rule.slots()];
    let mut param = Tensor::<2>::from_data(TensorData::new(expected.clone(), dims), device);
    let mut slots: Vec<Tensor<1>> = kept.iter().map(|slot| flat(slot, device)).collect();
    let start = (param.clone(), slots.clone());
    for _ in 0..4 {
        let bucket = random.values(len + 2 * before);
        let factor = 0.25;
        let own: Vec<f32> = bucket[before..before + len].iter().map(|g| g * factor).collect();
        reference::step(&rule, &mut expected, &own, &mut kept);
        let bucket = flat(&bucket, device);
        let gradient = Gradient { bucket: &bucket, at: before, factor };
        param = step(&rule, param, gradient, &mut slots);
    }
    assert_close(&vector(param), &expected, &format!("{rule:?} {dims:?} {device:?}"));
    for (slot, kept) in slots.into_iter().zip(&kept) {
        assert_close(&vector(slot), kept, &format!("state of {rule:?} {dims:?} {device:?}"));
    }
    // What others hold stays what it was.
    assert!(start.1.into_iter().all(|slot| vector(slot).iter().all(|value| *value == 0.0)));
    assert_eq!(vector(start.0), Random::new(len as u64).values(len));
}

#[test]
fn optimizers_move_as_their_reference() {
    let adam = |decay, keep| Rule::Adam {
        rate: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        decay,
        keep,
        root: 0.3,
    };
    let momentum = |nesterov| Rule::Momentum { rate: 0.1, decay: 0.01, momentum: 0.9, nesterov };
    for device in devices() {
        for dims in [[1, 1], [3, 5], [130, 17]] {
            check_rule(Rule::Sgd { rate: 0.1, decay: 0.02 }, dims, &device);
            check_rule(momentum(false), dims, &device);
            check_rule(momentum(true), dims, &device);
            check_rule(adam(0.05, 1.0), dims, &device);
            check_rule(adam(0.0, 0.95), dims, &device);
        }
    }
}

#[test]
fn a_parameter_that_lies_otherwise_is_moved_in_its_own_order() {
    for device in devices() {
        let values = Random::new(3).values(35);
        let lying = Tensor::<2>::from_data(TensorData::new(values, [5, 7]), &device).transpose();
        let expected: Vec<f32> = vector(lying.clone()).iter().map(|value| value - 1.0).collect();
        let bucket = flat(&[1.0; 35], &device);
        let gradient = Gradient { bucket: &bucket, at: 0, factor: 1.0 };
        let rule = Rule::Sgd { rate: 1.0, decay: 0.0 };
        let moved = step(&rule, lying, gradient, &mut Vec::new());
        assert_close(&vector(moved), &expected, &format!("{device:?}"));
    }
}

#[test]
fn the_norm_is_over_all_values() {
    for device in devices() {
        for len in [1, 31, 32, 1000, 700_001] {
            let values = Random::new(len as u64).values(len);
            let expected = reference::norm(&values);
            let found = norm(&flat(&values, &device)).expect("readable");
            assert!(
                (found - expected).abs() < 1e-6 * expected,
                "{len} {device:?}: {found} {expected}"
            );
        }
    }
}

#[test]
fn bf16_rounds_to_the_nearest_and_comes_back() {
    let special = [
        0.0,
        -0.0,
        1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(0x3F80_8000),
        f32::from_bits(0x3F81_8000),
        f32::from_bits(0x3F80_8001),
        f32::NAN,
    ];
    for device in devices() {
        for extra in [0, 1, 4097] {
            let mut values = special.to_vec();
            values.extend(Random::new(9).values(extra));
            let expected: Vec<u32> =
                values.iter().map(|value| u32::from(reference::bf16(*value)) << 16).collect();
            let rounded = read(&flat(&values, &device), true).expect("readable");
            let bits: Vec<u32> = rounded.iter().map(|value| value.to_bits()).collect();
            assert_eq!(bits, expected, "{extra} {device:?}");
            let back = read(&send(rounded, &device), false).expect("readable");
            let bits: Vec<u32> = back.iter().map(|value| value.to_bits()).collect();
            assert_eq!(bits, expected, "{extra} {device:?}");
        }
    }
}

#[test]
fn what_bf16_cannot_hold_is_sent_as_it_is() {
    for device in devices() {
        let values = Random::new(4).values(999);
        let bucket = send(values.clone(), &device);
        assert_eq!(bucket.device(), device);
        assert_eq!(read(&bucket, false).expect("readable"), values);
        assert_eq!(read(&send(Vec::new(), &device), false).expect("readable"), [0.0f32; 0]);
    }
}

#[test]
fn only_the_cpu_is_no_gpu() {
    assert!(!is_gpu(&Device::flex().autodiff()));
    for device in devices().into_iter().skip(1) {
        assert!(is_gpu(&device.autodiff()));
    }
}

#[test]
fn rows_are_gathered_and_their_gradients_added_up() {
    let check = |count: usize, dim: usize, places: usize, device: &Device| {
        let mut random = Random::new((count * places) as u64);
        let table = random.values(count * dim);
        let places: Vec<i64> = (0..places).map(|_| random.between(0, count - 1) as i64).collect();
        let weights = random.values(places.len() * dim);
        let tracked = device.clone().autodiff();
        let data = TensorData::new(table.clone(), [count, dim]);
        let leaf = Tensor::<2>::from_data(data, &tracked).require_grad();
        let found = rows(leaf.clone(), &places);
        let what = format!("{count} rows of {dim}, {} places, {device:?}", places.len());
        assert_eq!(vector(found.clone()), reference::gather(&table, &places, dim), "{what}");
        let data = TensorData::new(weights.clone(), [places.len(), dim]);
        let gradients = (found * Tensor::<2>::from_data(data, &tracked)).sum().backward();
        let gradient = leaf.grad(&gradients).expect("a gradient");
        let expected = reference::scatter_add(&weights, &places, count, dim);
        assert_close(&vector(gradient), &expected, &what);
    };
    for device in devices() {
        check(1, 1, 1, &device);
        check(7, 3, 40, &device);
        check(300, 16, 129, &device);
    }
}

#[test]
fn embeddings_are_burns_and_their_gradients_slopes() {
    let (count, dim) = (900, 40);
    let mut random = Random::new(77);
    let table = random.values(count * dim);
    let places: Vec<i64> = (0..300).map(|_| random.between(0, count - 1) as i64).collect();
    let weights = random.values(places.len() * dim);
    let device = Device::flex().autodiff();
    let run = |by: &dyn Fn(Tensor<2>, Tensor<1, Int>) -> Tensor<2>| {
        let leaf = tracked(&table, [count, dim]);
        let found = by(leaf.clone(), Tensor::from_data(places.as_slice(), &device));
        let data = TensorData::new(weights.clone(), [places.len(), dim]);
        let gradients = (found.clone() * Tensor::from_data(data, &device)).sum().backward();
        [vector(found.inner()), vector(leaf.grad(&gradients).expect("used"))]
    };
    let ours = run(&embedding);
    let burns = run(&|table, ids| table.select(0, ids));
    assert_eq!(ours, burns);
    let at: Vec<usize> = places.iter().map(|place| *place as usize).collect();
    assert_slopes(table.clone(), &ours[1], "rows", |table| {
        let found = salamander_kernels::cpu::embedding::forward(table, &at, dim);
        found.iter().zip(&weights).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum()
    });
    with_any_threads(|| {
        let found = salamander_kernels::cpu::embedding::forward(&table, &at, dim);
        (found, salamander_kernels::cpu::embedding::backward(&weights, &at, count, dim))
    });
    let half = tracked(&table, [count, dim]).inner().cast(burn::tensor::FloatDType::BF16);
    let ids = Tensor::<1, Int>::from_data(places.as_slice(), &Device::flex());
    assert_eq!(vector(embedding(half.clone(), ids.clone())), vector(half.select(0, ids)));
}

#[test]
#[should_panic(expected = "the places lie in a table of 4 rows")]
fn an_id_outside_of_the_table_is_refused() {
    let table = Tensor::<2>::ones([4, 3], &Device::flex());
    embedding(table, Tensor::from_data([4i64], &Device::flex()));
}

#[test]
fn no_places_are_no_rows() {
    for device in devices() {
        let table = Tensor::<2>::ones([4, 3], &device);
        assert_eq!(rows(table, &[]).dims(), [0, 3]);
    }
}
