//! What a model says to a record has the same bits whatever is computed beside it, wherever it stands in the batch, and
//! by however many threads: in f32 and in eight bits. Served answers equal those of `predict` because of it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use salamander::data::{Row, Value};
use salamander::models::bert::{BertClassifier, BertConfig, Head};
use salamander::prelude::*;
use salamander::train::example::{Example as _, ExampleContext};
use salamander::train::{Experiment, build, device};
use salamander_train::inference::use_int8;
use salamander_train::threads;

/// Different records that batches are made of.
const RECORDS: usize = 12;

/// A batch: which records, in which order, and how it is computed.
#[derive(Clone, Debug)]
struct InvarianceCase {
    records: Vec<usize>,
    threads: usize,
    int8: bool,
}

fn cases() -> impl Strategy<Value = InvarianceCase> {
    let records = prop::collection::vec(0..RECORDS, 1..40);
    (records, 1..4usize, any::<bool>()).prop_map(|(records, threads, int8)| InvarianceCase {
        records,
        threads,
        int8,
    })
}

/// The outputs of a batch, a row of bits for each record, computed by a thread with helpers of its own.
type ComputeBatch = Arc<dyn Fn(&[usize]) -> Vec<Vec<u32>> + Send + Sync>;

fn computed(compute: &ComputeBatch, case: &InvarianceCase) -> Vec<Vec<u32>> {
    let (compute, case) = (Arc::clone(compute), case.clone());
    let thread = std::thread::spawn(move || {
        threads::join(Some(case.threads));
        use_int8(case.int8);
        compute(&case.records)
    });
    thread.join().expect("computed")
}

/// Compares batches at random with each record alone, computed by one thread.
fn check(batches: u32, compute: impl Fn(&[usize]) -> Vec<Vec<u32>> + Send + Sync + 'static) {
    let compute: ComputeBatch = Arc::new(compute);
    let alone = [false, true].map(|int8| {
        let one = |record| {
            computed(&compute, &InvarianceCase { records: vec![record], threads: 1, int8 })
        };
        (0..RECORDS).flat_map(one).collect::<Vec<_>>()
    });
    assert!(alone[0].windows(2).any(|two| two[0] != two[1]), "records are told apart");
    let config = Config { cases: batches, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&cases(), |case| {
        let found = computed(&compute, &case);
        let expected = &alone[usize::from(case.int8)];
        let expected: Vec<_> =
            case.records.iter().map(|record| expected[*record].clone()).collect();
        prop_assert_eq!(found, expected);
        Ok(())
    });
    tried.expect("the same bits in every batch");
}

fn rows(output: Tensor<2>) -> Vec<Vec<u32>> {
    let width = output.dims()[1];
    let values: Vec<f32> = output.into_data().iter().collect();
    values.chunks(width).map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

/// Bytes that tell records apart.
fn pixels(record: usize, count: usize) -> Vec<u8> {
    let mut state = record as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// A network with fresh parameters, asked about pictures of so many bytes.
fn check_pictures<T: Trial<Output = Tensor<2>>>(batches: u32, bytes: usize) {
    let experiment = Experiment::parse("hyperparameters: {}", &[]).expect("an experiment");
    let trained = device::select("cpu").expect("a device").autodiff();
    let net: T = build(&experiment, &trained).expect("built");
    let (net, device) = (Mutex::new(net.valid()), device::select("cpu").expect("a device"));
    check(batches, move |records| {
        let cx = ExampleContext::unlabelled();
        let example = |record: &usize| {
            let image = pixels(*record, bytes);
            let row = Row::new(vec![("image".into(), Value::Bytes(&image))]);
            T::Example::decode(&row, &cx).expect("decoded")
        };
        let examples: Vec<T::Example> = records.iter().map(example).collect();
        let batch = T::Example::collate(&examples, &cx, &device).expect("a batch");
        let net = net.lock().expect("not poisoned").clone();
        rows(net.forward(&batch))
    });
}

#[test]
fn digits_in_any_batch() {
    check_pictures::<model_zoo::mnist::mlp::Mlp>(40, 784);
    check_pictures::<model_zoo::mnist::conv16::Conv16>(25, 784);
    check_pictures::<model_zoo::mnist::conv32::Conv32>(10, 784);
}

#[test]
fn colours_in_any_batch() {
    check_pictures::<model_zoo::cifar::cnn::Cnn>(5, 3 * 32 * 32);
    check_pictures::<model_zoo::cifar::resnet20::ResNet20>(5, 3 * 32 * 32);
    check_pictures::<model_zoo::cifar::mobilenet::CifarMobileNet>(3, 3 * 32 * 32);
}

#[test]
fn texts_in_any_batch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/salamander-models/tests/fixtures/bert");
    let config = std::fs::read(folder.join("config.json")).expect("a fixture");
    let config = BertConfig::parse(&config).expect("a configuration");
    let device = device::select("cpu").expect("a device");
    let fresh = BertClassifier::new(&config, 3, &device);
    let (model, _) = fresh.load(&folder, Head::There).expect("loads");
    let (model, words) = (Mutex::new(model), config.vocab_size as i64);
    check(60, move |records| {
        let text = |record: &usize| -> Vec<i64> {
            let length = 2 + record * 7 % 22;
            pixels(*record, length).into_iter().map(|byte| i64::from(byte) % words).collect()
        };
        let texts: Vec<Vec<i64>> = records.iter().map(text).collect();
        let model = model.lock().expect("not poisoned").clone();
        rows(model.forward(&Tokens::new("text", &texts, &device).expect("tokens")))
    });
}
