//! Models whose output is no table of classes, and models that cannot be built.

use tests::next_token::counting_csv;

use crate::support::Workplace;

fn experiment(place: &Workplace) -> String {
    place.write("train.csv", &counting_csv(140));
    place.write("valid.csv", &counting_csv(14));
    let text = "entrypoint: next_token\n\
                data: {training: train.csv, validation: valid.csv}\n\
                hyperparameters: {global_batch_size: 20}\n\
                reproducibility: {experiment_seed: 1}\n\
                searcher: {metric: accuracy, smaller_is_better: false, max_length: {epochs: 5}}\n";
    place.write("x.yaml", text).display().to_string()
}

#[test]
fn a_language_model_is_trained_evaluated_and_predicts_every_place() {
    let place = Workplace::new();
    let summary = place.train(&[&experiment(&place)]);
    assert_eq!(summary["metrics"]["validation"]["accuracy"], 1.0, "{summary}");
    let run = summary["dir"].as_str().expect("a folder");
    let evaluated = place.ok(&["evaluate", run, "--json"]).json();
    assert_eq!(evaluated["metrics"]["accuracy"], 1.0, "{evaluated}");

    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect("read");
    place.ok(&["predict", run, "--data", "valid.csv", "--out", "next.jsonl"]);
    let next = read("next.jsonl");
    assert_eq!(next.lines().count(), 14);
    // The second record counts from five; the class with the greatest score of a row would mean nothing.
    assert_eq!(next.lines().nth(1), Some(r#"{"record":1,"scores":[6.0,0.0,1.0,2.0]}"#));
    place.ok(&["predict", run, "--data", "valid.csv", "--out", "next.csv", "--workers", "2"]);
    assert!(read("next.csv").starts_with("record,score_0,score_1,score_2,score_3\n"));
}

#[test]
fn a_model_that_cannot_be_built_says_why_before_anything_runs() {
    let place = Workplace::new();
    let file = experiment(&place);
    for workers in [&[][..], &["--workers", "2"]] {
        let said = ["train", &file, "--set", "hyperparameters.tokens=1"];
        let error = place.run(&[&said, workers].concat()).err();
        let reason =
            "model next_token: it cannot be built: there is nothing to learn from tokens: 1";
        assert!(error.contains(reason), "{error}");
    }
    assert!(!place.path().join("runs").exists(), "no run was begun");
}
