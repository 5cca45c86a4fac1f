//! Every attribute that the derive macros know, used as it is meant: it compiles, and reads its values.

use std::borrow::Cow;

use salamander::__private::{Example as _, Hparams as _};
use salamander::core::{hparams, yaml};
use salamander::data::{Row, Value};
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(default = 1, min = 0.0, max = 2)]
    rate: f64,
    #[hparam(default = "relu", name = "activation-function")]
    activation: String,
    #[hparam(default = vec![1, 2])]
    layers: Vec<u32>,
    #[hparam(default = None)]
    limit: Option<f64>,
    required: bool,
}

#[derive(Example)]
#[example(augment = turn)]
struct Everything {
    #[input(shape = [1, 2, 2], scale = 0.25)]
    image: Vec<u8>,
    #[input(columns = ["a", "b"], mean = 1.0, std = 2.0)]
    numbers: [f32; 2],
    category: i64,
    #[input(column = "other", offset = 1.0)]
    shifted: i32,
    #[label]
    class: u8,
    #[label(shape = [2])]
    targets: Vec<f32>,
}

fn turn(example: &mut Everything, rng: &mut Rng) {
    example.category = rng.below(3) as i64;
}

/// The types of the batch's fields are the point: this must compile.
fn fields(batch: EverythingBatch) -> (Tensor<4>, Tensor<2>, Tensor<1, Int>, Tensor<1>) {
    (batch.image, batch.numbers, batch.category, batch.shifted)
}

fn labels(batch: &EverythingBatch) -> (Tensor<1, Int>, Tensor<2>) {
    (batch.class.clone(), batch.targets.clone())
}

fn row(labels: bool) -> Row<'static> {
    let mut columns = vec![
        ("image", Value::Bytes(&[0, 51, 102, 255])),
        ("a", Value::Text("3")),
        ("b", Value::Text("-1")),
        ("category", Value::Ints(Cow::Borrowed(&[7]))),
        ("other", Value::Floats(Cow::Borrowed(&[5.0]))),
    ];
    if labels {
        columns.push(("class", Value::Ints(Cow::Borrowed(&[2]))));
        columns.push(("targets", Value::Floats(Cow::Borrowed(&[0.5, 0.25]))));
    }
    Row::new(columns.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[test]
fn examples_are_decoded_scaled_and_collated() {
    let example = Everything::decode(&row(true), true).expect("complete");
    let batch = Everything::collate(&[example], &Device::flex()).expect("fits");
    let (class, targets) = labels(&batch);
    assert_eq!(class.into_data().iter::<i64>().collect::<Vec<_>>(), [2]);
    assert_eq!(floats(targets), [0.5, 0.25]);
    let (image, numbers, category, shifted) = fields(batch);
    assert_eq!(image.dims(), [1, 1, 2, 2]);
    assert_eq!(floats(image), [0.0, 12.75, 25.5, 63.75]);
    assert_eq!(floats(numbers), [1.0, -1.0]);
    assert_eq!(category.into_data().iter::<i64>().collect::<Vec<_>>(), [7]);
    assert_eq!(floats(shifted), [4.0]);
}

#[test]
fn labels_may_be_absent_in_prediction_only() {
    let example = Everything::decode(&row(false), false).expect("labels are not asked for");
    let batch = Everything::collate(&[example], &Device::flex()).expect("fits");
    assert_eq!(floats(batch.targets), [0.0, 0.0]);
    let error = Everything::decode(&row(false), true).err().expect("labels are asked for");
    assert_eq!(error.column, "class");
}

#[test]
fn augmentation_is_the_functions() {
    let mut example = Everything::decode(&row(true), true).expect("complete");
    example.augment(&mut Rng::new(1));
    assert!(example.category < 3);
}

#[test]
fn hyperparameters_have_their_defaults() {
    let node = yaml::parse("required: true\nrate: 2").expect("valid");
    let hp: Hp = hparams::read(&node).expect("valid");
    assert_eq!(
        (hp.rate, hp.activation.as_str(), hp.layers, hp.limit),
        (2.0, "relu", vec![1, 2], None)
    );
    assert!(hp.required);
    let shown = Hp::describe().into_iter().map(|info| (info.name, info.default));
    assert!(shown.into_iter().any(|info| info == ("activation-function", Some("\"relu\"".into()))));
    let error = hparams::read::<Hp>(&yaml::Node::empty_map()).err().expect("one is missing");
    assert!(error.to_string().contains("\"required\" is missing"), "{error}");
}
