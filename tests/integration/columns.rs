//! Files that lack columns of a model whose inputs may all be missing: without a look at the columns it would answer
//! about any file.

use salamander_data::CENSUS_COLUMNS;

use crate::support::Workplace;

/// People of the census, under these names of columns.
fn people(names: &str) -> String {
    let row = |at: usize| {
        let cell = |column: &&str| match *column {
            "label" => (at % 2).to_string(),
            "age" => (20 + at).to_string(),
            "education_num" | "hours_per_week" | "capital_gain" | "capital_loss" | "fnlwgt" => {
                "7".to_string()
            }
            column => format!("{column}{}", at % 3),
        };
        CENSUS_COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
    };
    format!("{names}\n{}", (0..12).map(row).collect::<String>())
}

#[test]
fn a_file_with_none_of_the_inputs_is_refused_and_a_column_less_is_told() {
    let place = Workplace::new();
    let names = CENSUS_COLUMNS.join(",");
    place.write("people.csv", &people(&names));
    place.write("renamed.csv", &people(&names.replace("age,workclass", "Age,workclass")));
    place.write("other.csv", "foo,bar\n1,2\n");
    let text = "entrypoint: census_dnn\ndata: {training: people.csv, validation: people.csv}\n\
                hyperparameters: {global_batch_size: 4}\nreproducibility: {experiment_seed: 1}\n\
                searcher: {metric: loss, max_length: {batches: 2}}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let unrelated = "other.csv: the data has none of the model's inputs (workclass, education, ";

    let refused = place.run(&["train", &file, "--set", "data.training=other.csv"]).err();
    assert!(refused.contains(unrelated) && refused.contains("it has foo, bar"), "{refused}");
    assert!(!place.path().join("runs").exists(), "no run was begun");
    let trained = place.ok(&["train", "--json", &file]);
    assert!(!trained.err().contains("warning: column"), "{}", trained.err());
    let summary = trained.json();
    let run = summary["dir"].as_str().expect("a folder");

    for workers in [&[][..], &["--workers", "2"]] {
        let args = ["predict", run, "--data", "other.csv", "--out", "answers.csv"];
        let refused = place.run(&[&args, workers].concat());
        assert!(refused.err().contains(unrelated), "{}", refused.err());
        assert!(!place.path().join("answers.csv").exists(), "nobody was answered");
    }
    let refused = place.run(&["evaluate", run, "--data", "people.csv", "--data", "other.csv"]);
    assert!(refused.err().contains(unrelated), "{}", refused.err());

    let warning = "warning: column \"age\" is in no record of ";
    let told = [
        place.ok(&["predict", run, "--data", "renamed.csv", "--out", "answers.csv"]),
        place.ok(&["evaluate", run, "--data", "renamed.csv"]),
        place.ok(&["train", "--json", &file, "--set", "data.training=renamed.csv"]),
    ];
    for told in told {
        let told = told.err();
        assert!(
            told.contains(warning) && told.contains("renamed.csv: it counts as missing"),
            "{told}"
        );
    }
    let answers = std::fs::read_to_string(place.path().join("answers.csv")).expect("read");
    assert_eq!(answers.lines().count(), 13);
}
