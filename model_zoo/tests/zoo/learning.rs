//! Every model of the zoo that came with a data command learns from what the command writes.

use std::f64::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};

use salamander_data::{Format, Row, Value, sink};

use crate::program;

/// A folder in which the program is run.
struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Result<String, String> {
        program::salamander(self.folder.path(), args)
    }

    /// Trains an experiment of the zoo on two files of this folder; returns a metric of validation.
    fn train(&self, experiment: &str, data: [&str; 2], sets: &[&str], metric: &str) -> f64 {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(experiment);
        let paths = data.map(|name| self.path(name).display().to_string());
        let [training, validation] =
            [format!("data.training={}", paths[0]), format!("data.validation={}", paths[1])];
        let file = file.display().to_string();
        let mut args = vec!["train", &file, "--json", "--set", &training, "--set", &validation];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let told = self.run(&args).unwrap_or_else(|error| panic!("{experiment}: {error}"));
        let summary = program::summary(&told);
        summary["metrics"]["validation"][metric].as_f64().unwrap_or_else(|| panic!("{summary}"))
    }
}

/// Numbers between 0 and 1 that look random.
fn noise(at: usize, of: usize) -> f64 {
    let wave = (at as f64 * 12.9898 + of as f64 * 78.233).sin() * 43758.5453;
    wave - wave.floor()
}

/// About normal, with deviation one.
fn normal(at: usize, of: usize) -> f64 {
    let (a, b) = (noise(at, of).max(1e-9), noise(at, of + 100));
    (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
}

#[test]
fn irises_are_told_apart() {
    let place = Workplace::new();
    // Means and deviations as Fisher measured them.
    let species = [
        ("Iris-setosa", [5.0, 3.4, 1.5, 0.2], [0.35, 0.38, 0.17, 0.1]),
        ("Iris-versicolor", [5.9, 2.8, 4.3, 1.3], [0.5, 0.3, 0.47, 0.2]),
        ("Iris-virginica", [6.6, 3.0, 5.6, 2.0], [0.6, 0.3, 0.55, 0.27]),
    ];
    let line = |at: usize| {
        let (name, means, deviations) = &species[at % 3];
        let length = |of: usize| format!("{:.1}", means[of] + deviations[of] * normal(at, of));
        format!("{},{},{},{},{name}\n", length(0), length(1), length(2), length(3))
    };
    fs::write(place.path("iris.data"), (0..150).map(line).collect::<String>()).expect("written");
    place.run(&["data", "fetch", "iris", "--from", ".", "--to", "iris"]).expect("fetched");
    let data = ["iris/train.csv", "iris/valid.csv"];
    let found = place.train("tabular/iris.yaml", data, &[], "accuracy");
    assert!(found >= 0.9, "{found}");

    let error = place.run(&["data", "fetch", "iris", "--from", "iris"]).expect_err("no such file");
    assert!(error.contains("has none of iris.data, iris.dat, iris.csv"), "{error}");
    let error = place.run(&["data", "fetch", "tulips"]).expect_err("unknown");
    assert!(error.contains("known: cifar, frappe, heart, iris, mnist"), "{error}");
}

#[test]
fn narrowed_vessels_are_found() {
    let place = Workplace::new();
    let line = |at: usize| {
        let ill = noise(at, 0) < 0.45;
        let more = if ill { 1.0 } else { 0.0 };
        let age = 50.0 + 8.0 * more + 9.0 * normal(at, 1);
        let pulse = 158.0 - 20.0 * more + 20.0 * normal(at, 2);
        let depression = (0.6 + 1.0 * more + normal(at, 3)).max(0.0);
        let vessels = (0.3 + 0.9 * more + 0.8 * normal(at, 4)).clamp(0.0, 3.0) as u8;
        let scan = if noise(at, 5) < 0.25 + 0.5 * more { 7 } else { 3 };
        let class = 1 + u8::from(ill);
        format!(
            "{age:.0},1,3,130,250,0,1,{pulse:.0},0,{depression:.1},2,{vessels},{scan},{class}\n"
        )
    };
    fs::write(place.path("heart.dat"), (0..300).map(line).collect::<String>()).expect("written");
    place.run(&["data", "fetch", "heart", "--from", ".", "--to", "heart"]).expect("fetched");
    let data = ["heart/train.csv", "heart/valid.csv"];
    let found = place.train("tabular/heart.yaml", data, &[], "auc");
    assert!(found >= 0.85, "{found}");
}

#[test]
fn apps_are_recommended_by_who_asks_and_when() {
    let place = Workplace::new();
    let line = |at: usize| {
        let [user, app, time] =
            [20.0, 40.0, 7.0].map(|count| (noise(at, count as usize) * count) as usize);
        // What counts is how the three go together.
        let used = (user % 2 == app % 2) != (time == 0);
        let rest: String = (0..7).map(|field| format!(" {}:1", 200 + field)).collect();
        let class = if used { 1 } else { -1 };
        format!("{class} {user}:1 {}:1 {}:1{rest}\n", 100 + app, 150 + time)
    };
    let write = |name: &str, records: std::ops::Range<usize>| {
        fs::write(place.path(name), records.map(line).collect::<String>()).expect("written");
    };
    write("frappe.train.libfm", 0..3000);
    write("frappe.validation.libfm", 3000..3500);
    place.run(&["data", "fetch", "frappe", "--from", ".", "--to", "frappe"]).expect("fetched");
    let data = ["frappe/train.csv", "frappe/valid.csv"];
    let sets = ["hyperparameters.global_batch_size=64", "searcher.max_length={epochs: 6}"];
    let found = place.train("recommend/frappe.yaml", data, &sets, "auc");
    assert!(found >= 0.9, "{found}");
}

#[test]
fn cifar_comes_from_its_binary_files_or_from_folders_of_pictures() {
    let place = Workplace::new();
    let photos = place.path("photos");
    fs::create_dir(&photos).expect("made");
    for (name, count) in [("train", 12), ("test", 4)] {
        let mut out = sink::create(&photos.join(name), Format::ImageFolder).expect("a folder");
        for at in 0..count {
            let class = ["airplane", "bird", "truck", "ship"][at % 4];
            let pixels = vec![(10 * at) as u8; 3 * 32 * 32];
            let cells = vec![
                ("image".into(), Value::Bytes(&pixels)),
                ("height".into(), Value::Ints(vec![32].into())),
                ("width".into(), Value::Ints(vec![32].into())),
                ("class".into(), Value::Text(class)),
            ];
            out.write(&Row::new(cells)).expect("written");
        }
        out.finish().expect("finished");
    }
    let fetch = |from: &str, to: &str| {
        place.run(&["data", "fetch", "cifar", "--from", from, "--to", to]).expect("fetched");
        ["data_batch_1.bin", "test_batch.bin"]
            .map(|file| fs::read(place.path(to).join(file)).expect("written"))
    };
    let pictures = fetch("photos", "from_photos");
    assert_eq!(pictures.each_ref().map(Vec::len), [12 * 3073, 4 * 3073]);
    assert_eq!(pictures[1].iter().step_by(3073).copied().collect::<Vec<u8>>(), [0, 2, 8, 9]);
    assert_eq!(fetch("from_photos", "again"), pictures);
    let error = place.run(&["data", "fetch", "cifar"]).expect_err("no source");
    assert!(error.contains("say where it is with --from"), "{error}");
}
