//! What a newcomer does: train, look, evaluate, predict.

use crate::support::{Workplace, digits, digits_experiment, weights_of};

#[test]
fn a_network_learns_digits_it_has_not_seen() {
    let place = Workplace::new();
    let (train, valid) = (digits("mnist-train.recordio"), digits("mnist-valid.recordio"));
    let experiment = place.write(
        "mlp.yaml",
        &format!(
            "entrypoint: mnist_mlp\n\
             data: {{training: \"{train}\", validation: \"{valid}\"}}\n\
             hyperparameters: {{hidden: 64, global_batch_size: 64}}\n\
             reproducibility: {{experiment_seed: 2}}\n\
             searcher: {{metric: accuracy, smaller_is_better: false, max_length: {{epochs: 3}}}}\n"
        ),
    );
    let summary = place.train(&[&experiment.display().to_string()]);
    assert_eq!(summary["state"], "completed");
    assert_eq!(summary["epochs"], 3);
    assert_eq!(summary["records"], 24_000);
    let accuracy = summary["metrics"]["validation"]["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.9, "{accuracy}");
    for line in summary["ledger"].as_array().expect("a list") {
        assert_eq!(line["applied"], 8000);
        assert_eq!(line["missing"], 0);
        assert_eq!(line["duplicated"], 0);
        assert_eq!(line["intact"], true);
    }
    let folder = std::path::Path::new(summary["dir"].as_str().expect("a folder"));
    for file in ["experiment.yaml", "metrics.jsonl", "summary.json", "confusion.svg", "report.json"]
    {
        assert!(folder.join(file).is_file(), "{file}");
    }
    let evaluated = place.ok(&["evaluate", &summary["run"].to_string().replace('"', ""), "--json"]);
    let again = evaluated.json()["metrics"]["accuracy"].as_f64().expect("a number");
    assert_eq!(again, accuracy, "evaluate must find what training found");
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let place = Workplace::new();
    let text = digits_experiment("resilient", "searcher: {max_length: {batches: 12}}\n");
    let file = place.write("x.yaml", &text).display().to_string();
    let first = weights_of(&place.train(&[&file]));
    assert_eq!(first, weights_of(&place.train(&[&file])), "the same seed, the same bits");
    let other = place.train(&[&file, "--set", "reproducibility.experiment_seed=4"]);
    assert_ne!(first, weights_of(&other));
}

#[test]
fn predictions_do_not_need_labels() {
    let place = Workplace::new();
    let text = format!(
        "entrypoint: points\ndata: {{training: \"{}\"}}\n\
         searcher: {{max_length: {{epochs: 2}}}}",
        place.write("points.csv", &crate::support::points_csv(100)).display()
    );
    let file = place.write("x.yaml", &text).display().to_string();
    let run = place.train(&[&file])["dir"].as_str().expect("a folder").to_string();
    let unlabelled = place.write("new.csv", "y,x\n0.5,-0.5\n0.1,0.9\n-1,0.25\n");
    let data = unlabelled.display().to_string();
    place.ok(&["predict", &run, "--data", &data, "--out", "p.csv", "--checkpoint", "latest"]);
    let csv = std::fs::read_to_string(place.path().join("p.csv")).expect("predictions");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "record,prediction,label,score_0,score_1,probability_0,probability_1,logit_0,logit_1"
    );
    assert_eq!(lines.len(), 4);
    assert!(lines[2].starts_with("1,"), "{csv}");
    place.ok(&["predict", &run, "--data", &data, "--out", "p.jsonl"]);
    let jsonl = std::fs::read_to_string(place.path().join("p.jsonl")).expect("predictions");
    assert_eq!(jsonl.lines().count(), 3);
    // Training on the same file is an error that names the record and the column.
    let error = place.run(&["evaluate", &run, "--data", &data]).err();
    assert!(error.contains("new.csv") && error.contains("column \"side\""), "{error}");
}
