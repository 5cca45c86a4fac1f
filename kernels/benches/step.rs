//! Training steps of two networks on this crate's layers, on Burn's own layers, and in PyTorch.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p salamander-kernels --bench step`
//!
//! All three take turns, each run in a process of its own, because the number of threads is set once per process.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData, activation::log_softmax};

#[path = "../../benches/src/record.rs"]
mod record;

use record::Record;

const BATCH: usize = 64;
const TIME: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The same networks on one set of layers or another.
macro_rules! networks {
    ($name:ident: $($import:item)+) => {
        mod $name {
            $($import)+
            use burn::module::Module;
            use burn::tensor::{Device, Tensor};

            #[derive(Module, Debug)]
            pub(super) struct BenchMlp { layers: Vec<Linear> }

            impl BenchMlp {
                pub(super) fn new(device: &Device) -> Self {
                    let sizes = [784, 512, 512, 10];
                    let layer = |at: usize| LinearConfig::new(sizes[at], sizes[at + 1]).init(device);
                    Self { layers: (0..3).map(layer).collect() }
                }
            }

            impl super::Network for BenchMlp {
                fn forward(&self, images: Tensor<4>) -> Tensor<2> {
                    let x = relu(self.layers[0].forward(images.flatten::<2>(1, 3)));
                    self.layers[2].forward(relu(self.layers[1].forward(x)))
                }
            }

            #[derive(Module, Debug)]
            pub(super) struct Cnn {
                conv1: Conv2d,
                conv2: Conv2d,
                pool: MaxPool2d,
                dropout1: Dropout,
                fc1: Linear,
                dropout2: Dropout,
                fc2: Linear,
            }

            impl Cnn {
                pub(super) fn new(device: &Device) -> Self {
                    Self {
                        conv1: Conv2dConfig::new([1, 32], [3, 3]).init(device),
                        conv2: Conv2dConfig::new([32, 64], [3, 3]).init(device),
                        pool: MaxPool2dConfig::new([2, 2]).init(),
                        dropout1: DropoutConfig::new(0.25).init(),
                        fc1: LinearConfig::new(9216, 128).init(device),
                        dropout2: DropoutConfig::new(0.5).init(),
                        fc2: LinearConfig::new(128, 10).init(device),
                    }
                }
            }

            impl super::Network for Cnn {
                fn forward(&self, images: Tensor<4>) -> Tensor<2> {
                    let x = self.conv2.forward(relu(self.conv1.forward(images)));
                    let x = self.dropout1.forward(self.pool.forward(x)).flatten::<2>(1, 3);
                    self.fc2.forward(self.dropout2.forward(relu(self.fc1.forward(x))))
                }
            }
        }
    };
}

networks! { ours:
    use salamander_kernels::layers::{
        Conv2d, Conv2dConfig, Dropout, DropoutConfig, Linear, LinearConfig, MaxPool2d,
        MaxPool2dConfig,
    };
    use salamander_kernels::ops::relu;
}

networks! { burns:
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
    use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
    use burn::tensor::activation::relu;
}

trait Network: Module {
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--measure") {
        println!("{}", measure(&arguments[at + 1], &arguments[at + 2]));
        return;
    }
    println!("training steps, batch {BATCH}, f32, samples/s (median of {ROUNDS} interleaved runs)");
    println!(
        "{:<8} {:>7} {:>8} {:>8} {:>8} {:>14}",
        "model", "threads", "ours", "burn", "torch", "ours / torch"
    );
    let record = Record::begin("step");
    for network in ["mlp", "conv32"] {
        for threads in ["1", "2"] {
            report(network, threads, &record);
        }
    }
}

fn report(network: &str, threads: &str, record: &Record) {
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].extend(own_process("ours", network, threads));
        rates[1].extend(own_process("burn", network, threads));
        rates[2].extend(torch(network, threads));
    }
    let [ours, burn, torch] = rates.map(median);
    let ratio = ours / torch;
    let what = format!("{network}, {threads} threads");
    record.figure(&what, ("samples/s", "more"), ours, Some(torch));
    record.figure(&format!("{what}, Burn's layers"), ("samples/s", "more"), burn, Some(torch));
    println!("{network:<8} {threads:>7} {ours:>8.0} {burn:>8.0} {torch:>8.0} {ratio:>14.2}");
}

fn own_process(layers: &str, network: &str, threads: &str) -> Option<f64> {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    run(command.args(["--measure", layers, network]).env("RAYON_NUM_THREADS", threads))
}

/// PyTorch, with glibc set to keep memory between steps as our allocator does.
fn torch(network: &str, threads: &str) -> Option<f64> {
    let python = std::env::var("SALAMANDER_PEERS").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers/train_step.py");
    let mut command = Command::new(python);
    command.arg(script).args([network, &TIME.as_secs().to_string(), threads]);
    command.env("MALLOC_MMAP_THRESHOLD_", "4294967296");
    run(command.env("MALLOC_TRIM_THRESHOLD_", "4294967296"))
}

/// The number that a program prints last.
fn run(command: &mut Command) -> Option<f64> {
    let output = command.output().ok()?;
    String::from_utf8_lossy(&output.stdout).split_whitespace().last()?.parse().ok()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(layers: &str, network: &str) -> f64 {
    let device = Device::flex().autodiff();
    match (layers, network) {
        ("ours", "mlp") => rate(ours::BenchMlp::new(&device), &device),
        ("ours", _) => rate(ours::Cnn::new(&device), &device),
        (_, "mlp") => rate(burns::BenchMlp::new(&device), &device),
        _ => rate(burns::Cnn::new(&device), &device),
    }
}

/// Samples per second of forward, backward and SGD with momentum.
fn rate<N: Network>(mut network: N, device: &Device) -> f64 {
    let pixels: Vec<f32> = (0..BATCH * 784).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
    let images = Tensor::<1>::from_data(pixels.as_slice(), device).reshape([BATCH, 1, 28, 28]);
    let labels: Vec<i64> = (0..BATCH as i64).map(|i| i % 10).collect();
    let labels = Tensor::<1, Int>::from_data(labels.as_slice(), device).reshape([BATCH, 1]);
    let mut momenta = HashMap::new();
    let mut rates = Vec::new();
    let begun = Instant::now();
    while rates.len() < 8 || begun.elapsed() < TIME {
        let start = Instant::now();
        let scores = log_softmax(network.forward(images.clone()), 1);
        let loss = -scores.gather(1, labels.clone()).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = network.map(&mut Sgd { momenta: &mut momenta, gradients });
        rates.push(BATCH as f64 / start.elapsed().as_secs_f64());
    }
    median(rates.split_off(3))
}

/// SGD with momentum on the host, where a parameter that nobody shares is changed in place.
struct Sgd<'a> {
    momenta: &'a mut HashMap<ParamId, Vec<f32>>,
    gradients: GradientsParams,
}

impl ModuleMapper for Sgd<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };
        let gradient = gradient.into_data();
        let gradient = gradient.as_slice::<f32>().expect("f32");
        let momentum = self.momenta.entry(param.id).or_insert_with(|| vec![0.0; gradient.len()]);
        param.map(|old| {
            let (shape, device) = (old.shape(), old.device().without_autodiff());
            let mut values = old.inner().into_data().try_into_vec::<f32>().expect("f32");
            for ((value, gradient), momentum) in values.iter_mut().zip(gradient).zip(momentum) {
                *momentum = 0.9 * *momentum + gradient;
                *value -= 0.01 * *momentum;
            }
            let new = Tensor::<D>::from_data(TensorData::new(values, shape), &device);
            Tensor::from_inner(new).require_grad()
        })
    }
}
