//! The experiment file of Determined's porting tutorial runs on a folder of pictures, and what it trained goes back to
//! torchvision.

use std::fs;
use std::path::Path;

use salamander::models::foreign;
use salamander::run::{Overrides, Program, Which};
use salamander_core::environment::TORCHVISION;
use salamander_data::{Format, Row, Value, sink};

use crate::program;

/// Pictures of two classes: bright left halves, and bright right halves.
fn pictures(folder: &Path, count: usize) {
    let mut out = sink::create(folder, Format::ImageFolder).expect("a folder");
    for at in 0..count {
        let (class, side) = [("left", 0), ("right", 1)][at % 2];
        let pixel = |place: usize| {
            let bright = usize::from(place % 40 >= 20) == side;
            [if bright { 200 + (at % 40) as u8 } else { 30 }; 3]
        };
        let pixels: Vec<u8> = (0..40 * 40).flat_map(pixel).collect();
        let cells = vec![
            ("image".into(), Value::Bytes(&pixels)),
            ("height".into(), Value::Ints(vec![40].into())),
            ("width".into(), Value::Ints(vec![40].into())),
            ("class".into(), Value::Text(class)),
        ];
        out.write(&Row::new(cells)).expect("written");
    }
    out.finish().expect("finished");
}

#[test]
fn the_tutorials_file_runs_and_its_weights_go_back_to_torchvision() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("photos");
    fs::create_dir(&data).expect("made");
    pictures(&data.join("train"), 16);
    pictures(&data.join("val"), 4);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("imagenet/const.yaml");
    let text = fs::read_to_string(file).expect("an experiment");
    let text = text.replace("../../data/imagenet", "photos");
    fs::write(folder.path().join("const.yaml"), text).expect("written");
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_salamander"));
    let found = doctor.args(["doctor", "const.yaml"]).current_dir(folder.path()).output();
    let found = String::from_utf8(found.expect("starts").stdout).expect("text");
    assert!(found.contains("16 records to train on, 4 to validate"), "{found}");
    let program = Program::enter(model_zoo::models());
    let train = |sets: &[&str]| {
        let mut sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        sets.push("hyperparameters.global_batch_size=8".to_string());
        let overrides = Overrides { sets, ..Overrides::default() };
        let out = folder.path().join("runs");
        program.experiment(folder.path().join("const.yaml"), &overrides, out)?.start()?.wait()
    };
    let finished = train(&["searcher.max_length={batches: 2}"]).expect("trains");
    let found = finished.outcome.progress.validation.expect("validates").values();
    assert!(found.contains_key("top_1") && found.contains_key("top_5"), "{found:?}");

    let model = program.load(finished.run.folder(), &Which::Latest, "cpu").expect("loads");
    let out = folder.path().join("weights");
    model.export_as("torchvision", &out).expect("exports");
    let tensors = foreign::read(&out.join("resnet18.safetensors")).expect("written");
    assert_eq!(tensors["layer4.0.downsample.1.running_var"].shape().to_vec(), [512]);
    assert_eq!(tensors["fc.weight"].shape().to_vec(), [1000, 512]);

    // What was exported starts another one, for other classes, of which only the last stage and layer learn.
    let sets = [
        "hyperparameters.pretrained=weights/resnet18.safetensors",
        "hyperparameters.classes=2",
        "hyperparameters.frozen_stages=4",
        "searcher.max_length={batches: 1}",
    ];
    train(&sets).expect("trains");
    let error = train(&["hyperparameters.arch=resnet50", sets[0]]).expect_err("another network");
    assert!(error.to_string().contains("the model's is"), "{error}");
    let error = train(&["hyperparameters.arch=vgg16"]).expect_err("unknown").to_string();
    assert!(error.contains("arch \"vgg16\": only resnet18, resnet34, resnet50"), "{error}");
    as_the_tutorial_has_it(folder.path());
}

/// The tutorial's file word for word.
const TUTORIAL: &str =
    include_str!("../../../crates/salamander-core/src/experiment/imagenet_tutorial.yaml");

/// `pretrained: True` takes what Python has fetched into `TORCH_HOME`, which is a folder of its own here.
fn as_the_tutorial_has_it(folder: &Path) {
    let fetched = folder.join("torch/hub/checkpoints");
    fs::create_dir_all(&fetched).expect("made");
    fs::write(folder.join("tutorial.yaml"), TUTORIAL).expect("written");
    let train = || {
        let mut train = std::process::Command::new(env!("CARGO_BIN_EXE_salamander"));
        train.current_dir(folder).env("TORCH_HOME", folder.join("torch"));
        // Where they would be fetched from.
        train.env(TORCHVISION.name, folder.join("nowhere"));
        train.args(["train", "tutorial.yaml", "--json", "--set", "hyperparameters.data=few"]);
        let ended = train.output().expect("starts");
        let told = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match ended.status.success() {
            true => Ok(told(&ended.stdout)),
            false => Err(told(&ended.stderr)),
        }
    };
    pictures(&folder.join("few/train"), 4);
    pictures(&folder.join("few/val"), 2);
    let error = train().expect_err("no weights");
    assert!(error.contains("has no resnet18-*.pth"), "{error}");
    let weights = folder.join("weights/resnet18.safetensors");
    fs::copy(weights, fetched.join("resnet18-f37072fd.safetensors")).expect("copied");
    // All ten epochs of it; four pictures are less than a batch of 256.
    let summary = program::summary(&train().expect("trains"));
    assert_eq!(summary["steps"], 10, "{summary}");
    assert!(summary["metrics"]["validation"]["top_5"].is_number(), "{summary}");
}
