//! The data commands, on files as users have them.

use serde_json::Value;

use crate::support::{Workplace, digits, points_csv};

fn inspect(place: &Workplace, file: &str) -> Value {
    place.ok(&["data", "inspect", file, "--json"]).json()
}

#[test]
fn inspect_tells_format_records_and_columns() {
    let place = Workplace::new();
    let digits = digits("mnist-valid.recordio");
    let found = inspect(&place, &digits);
    assert_eq!(found["format"], "recordio");
    assert_eq!(found["records"], 2000);
    assert_eq!(found["columns"][0]["name"], "image");
    assert_eq!(found["columns"][1]["kind"], "integers");
    let text = place.ok(&["data", "inspect", &digits]).out();
    assert!(text.contains("image=<784 bytes> label=["), "{text}");

    place.write("points.csv", &points_csv(101));
    let stats = place.ok(&["data", "inspect", "points.csv", "--stats"]).out();
    assert!(stats.contains("x: 101 values, 0 missing, -1 to 1, mean 0.000000"), "{stats}");
}

#[test]
fn records_survive_a_way_through_every_format() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(500));
    let mut from = "points.csv".to_string();
    for to in ["a.recordio", "b.parquet", "c.tfrecord", "d.csv"] {
        place.ok(&["data", "convert", &from, "--out", to]);
        assert_eq!(inspect(&place, to)["records"], 500, "{to}");
        from = to.to_string();
    }
    let numbers = |file: &str| -> Vec<Vec<f64>> {
        let text = std::fs::read_to_string(place.path().join(file)).expect("read");
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
        // Columns may change places on the way, but not their names.
        let order: Vec<usize> = ["x", "y", "side"]
            .iter()
            .map(|name| header.iter().position(|column| column == name).expect("a column"))
            .collect();
        lines
            .map(|line| {
                let cells: Vec<&str> = line.split(',').collect();
                order.iter().map(|at| cells[*at].parse().expect("a number")).collect()
            })
            .collect()
    };
    assert_eq!(numbers("d.csv"), numbers("points.csv"));
}

#[test]
fn digits_survive_a_way_through_idx_and_pictures() {
    let place = Workplace::new();
    place.ok(&[
        "data",
        "split",
        &digits("mnist-valid.recordio"),
        "--out",
        "p",
        "--shares",
        "0.02,0.98",
    ]);
    let rows = |file: &str| {
        let sample = inspect(&place, file)["sample"].to_string();
        (inspect(&place, file)["records"].clone(), sample.matches("label=").count())
    };
    place.ok(&["data", "convert", "p/train.recordio", "--out", "new/t-images-idx3-ubyte"]);
    assert_eq!(rows("new/t-images-idx3-ubyte"), (40.into(), 3));
    place.ok(&["data", "convert", "new/t-images-idx3-ubyte", "--out", "back.recordio"]);
    let bytes = |file: &str| std::fs::read(place.path().join(file)).expect("read");
    assert!(
        bytes("back.recordio") == bytes("p/train.recordio"),
        "the same digits in the same order"
    );
    place.ok(&["data", "convert", "back.recordio", "--out", "pictures", "--to", "images"]);
    assert_eq!(rows("pictures"), (40.into(), 3));
    assert_eq!(std::fs::read_dir(place.path().join("pictures")).expect("a folder").count(), 10);
}

#[test]
fn convert_cuts_into_shards_that_read_as_one() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(250));
    place.ok(&["data", "convert", "points.csv", "--out", "s.recordio", "--shard-records", "100"]);
    for (shard, records) in [("s-00000.recordio", 100), ("s-00002.recordio", 50)] {
        assert_eq!(inspect(&place, shard)["records"], records);
    }
    let all = inspect(&place, "s-*.recordio");
    assert_eq!(all["records"], 250, "a glob");
    assert_eq!(all["shards"].as_array().map(Vec::len), Some(3));
}

#[test]
fn verify_names_each_fault_and_goes_on() {
    let place = Workplace::new();
    let mut bytes = std::fs::read(digits("mnist-valid.recordio")).expect("the zoo's data");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(place.path().join("broken.recordio"), &bytes).expect("written");
    std::fs::write(place.path().join("cut.recordio"), &bytes[..1000]).expect("written");
    let good = digits("mnist-valid.recordio");
    assert_eq!(place.ok(&["data", "verify", &good, "--json"]).json()["bad_records"], 0);
    let ended = place.run(&["data", "verify", "cut.recordio", "broken.recordio", "--json"]);
    assert_eq!(ended.code(), Some(1));
    let found = ended.json();
    assert_eq!(found["bad_records"], 500, "one chunk of four");
    let faults = found["faults"].to_string();
    assert!(faults.contains("broken.recordio") && faults.contains("chunk 2"), "{faults}");
    assert!(faults.contains("cut.recordio"), "{faults}");
}

#[test]
fn split_divides_every_class_alike() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(400));
    place.ok(&[
        "data",
        "split",
        "points.csv",
        "--out",
        "parts",
        "--stratify",
        "side",
        "--to",
        "csv",
    ]);
    let count = |part: &str| {
        let text = std::fs::read_to_string(place.path().join("parts").join(part)).expect("read");
        let right = text.lines().skip(1).filter(|line| line.ends_with(",1")).count();
        (text.lines().count() - 1, right)
    };
    let (train, validation, test) =
        (count("train.csv"), count("validation.csv"), count("test.csv"));
    assert_eq!(train.0 + validation.0 + test.0, 400);
    let whole = points_csv(400).lines().skip(1).filter(|line| line.ends_with(",1")).count();
    let share = whole as f64 / 400.0;
    for (records, right) in [train, validation, test] {
        assert!((right as f64 - records as f64 * share).abs() <= 1.0, "{right} of {records}");
    }
}

#[test]
fn a_part_of_another_division_is_not_left_beside_the_new_ones() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let split = ["data", "split", "points.csv", "--out", "parts", "--to", "csv", "--shares"];
    place.ok(&[&split[..], &["0.8,0.1,0.1"]].concat());
    let train = || std::fs::read(place.path().join("parts/train.csv")).expect("read");
    let before = train();
    let refused = place.run(&[&split[..], &["0.5,0.5"]].concat()).err();
    assert!(refused.contains("parts/test.csv: it is of another division"), "{refused}");
    assert_eq!(train(), before, "nothing was written");
    std::fs::remove_file(place.path().join("parts/test.csv")).expect("removed");
    place.ok(&[&split[..], &["0.5,0.5"]].concat());
    assert_ne!(train(), before);
}

#[test]
fn oversampling_evens_the_classes_of_the_training_part_only() {
    let place = Workplace::new();
    let mut text = "x,kind\n".to_string();
    (0..100).for_each(|i| {
        text.push_str(&format!("{i},{}\n", if i % 5 == 0 { "rare" } else { "usual" }))
    });
    place.write("all.csv", &text);
    let args = ["data", "split", "all.csv", "--out", "parts", "--to", "csv", "--oversample"];
    let refused = place.run(&args);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.err().contains("--stratify"), "{}", refused.err());
    place.ok(&[&args[..], &["--stratify", "kind"]].concat());
    let count = |part: &str| {
        let text = std::fs::read_to_string(place.path().join("parts").join(part)).expect("read");
        let of = |kind: &str| text.lines().filter(|line| line.ends_with(kind)).count();
        (of(",rare"), of(",usual"))
    };
    assert_eq!(count("train.csv"), (64, 64));
    assert_eq!((count("validation.csv"), count("test.csv")), ((2, 8), (2, 8)));
}

/// Pictures in CIFAR-10's format: generated, read by name, converted there and back.
#[test]
fn pictures_are_generated_and_converted() {
    let place = Workplace::new();
    let file = "data_batch_1.bin";
    let args = ["data", "generate", "cifar", "--records", "30", "--seed", "5", "--json"];
    let said = place.ok(&[&args[..], &["--out", file]].concat()).json();
    assert_eq!(said["records"], 30);
    let inspected = place.ok(&["data", "inspect", file, "--json"]).json();
    assert_eq!(inspected["records"], 30);
    assert_eq!(inspected["columns"].as_array().map(Vec::len), Some(2));
    place.ok(&["data", "convert", file, "--out", "way.recordio"]);
    place.ok(&["data", "convert", "way.recordio", "--to", "cifar", "--out", "back.bin"]);
    let bytes = |file: &str| std::fs::read(place.path().join(file)).expect("read");
    assert!(bytes(file) == bytes("back.bin"), "there and back");
    assert_eq!(bytes(file).len(), 30 * 3073);
}

/// The public formats: generated, read by name or by `--format`, converted there and back.
#[test]
fn generated_data_have_a_known_truth() {
    let place = Workplace::new();
    for (like, file, columns) in
        [("census", "adult.data", 15), ("criteo", "train.txt", 40), ("movielens", "ratings.dat", 4)]
    {
        let generate = |skip: &str, out: &str| {
            let args = ["data", "generate", like, "--records", "500", "--seed", "5", "--json"];
            place.ok(&[&args[..], &["--skip", skip, "--out", out]].concat()).json()
        };
        let found = generate("0", file);
        let auc = found["auc"].as_f64().expect("a number");
        assert!((0.7..0.95).contains(&auc), "{like}: {auc}");
        let again = generate("0", "again");
        assert_eq!(again["auc"], found["auc"]);
        let bytes = |file: &str| std::fs::read(place.path().join(file)).expect("read");
        assert!(bytes(file) == bytes("again"), "{like}: the same seed, the same records");
        generate("500", "others");
        assert!(bytes(file) != bytes("others"), "{like}: other records");

        let inspected = place.ok(&["data", "inspect", file, "--format", like, "--json"]).json();
        assert_eq!(inspected["records"], 500, "{like}");
        assert_eq!(inspected["columns"].as_array().map(Vec::len), Some(columns), "{like}");
        place.ok(&["data", "convert", file, "--format", like, "--out", "way.csv"]);
        place.ok(&["data", "convert", "way.csv", "--to", like, "--out", "back"]);
        assert!(bytes(file) == bytes("back"), "{like}: there and back");
    }
    let refused = place.run(&["data", "generate", "criteo", "--out", "x.parquet"]);
    assert!(refused.err().contains("`salamander data convert` it to parquet"), "{}", refused.err());
}

#[test]
fn a_model_trains_alike_from_every_format() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(300));
    for to in ["p.recordio", "p.parquet", "p.tfrecord"] {
        place.ok(&["data", "convert", "points.csv", "--out", to]);
    }
    let loss = |file: &str| {
        let text = format!(
            "entrypoint: points\ndata: {{training: {file}}}\nreproducibility: {{experiment_seed: 1}}\n"
        );
        let experiment = place.write("x.yaml", &text).display().to_string();
        place.train(&[&experiment])["metrics"]["training"]["loss"].as_f64().expect("a number")
    };
    let csv = loss("points.csv");
    for file in ["p.recordio", "p.parquet", "p.tfrecord"] {
        assert!((loss(file) - csv).abs() < 1e-6, "{file}");
    }
}
