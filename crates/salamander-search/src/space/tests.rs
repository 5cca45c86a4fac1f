//! Spaces in three dialects, and people who mistype.

use salamander_core::hparams::{AllowedRange, HparamInfo};
use salamander_core::yaml;

use super::*;

fn space(text: &str) -> Result<Space, Error> {
    Space::read(&yaml::parse(text)?)
}

fn valid(text: &str) -> Space {
    space(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn check_error(text: &str, expected: &str) {
    assert_eq!(space(text).expect_err(text).to_string(), expected);
}

#[test]
fn values_are_drawn_by_seed_trial_and_path() {
    let one = valid(
        "lr: {type: log, base: 10, minval: -4, maxval: -1}\nnet: {width: {randint: [8, 64]}}",
    );
    let more = valid(
        "drop: {type: double, minval: 0, maxval: 1}\nlr: {type: log, minval: -4, maxval: -1}\n\
         net: {depth: {type: int, minval: 1, maxval: 9}, width: {randint: {lower: 8, upper: 64}}}",
    );
    let few = one.values(&one.random(7, 3));
    let many = more.values(&more.random(7, 3));
    assert_eq!(few["lr"], many["lr"]);
    assert_eq!(few["net"]["width"], many["net"]["width"]);
    assert_ne!(few["lr"], one.values(&one.random(7, 4))["lr"]);
    assert_ne!(few["lr"], one.values(&one.random(8, 3))["lr"]);
    // Of this seed for ever: a search is repeated years later.
    assert_eq!(few.to_string(), valid_draw());
}

fn valid_draw() -> String {
    let space = valid("lr: {type: log, minval: -4, maxval: -1}\nnet: {width: {randint: [8, 64]}}");
    space.values(&space.random(7, 3)).to_string()
}

#[test]
fn all_dialects_draw_within_their_ranges() {
    let check = |text: &str, low: f64, high: f64| {
        let space = valid(&format!("x: {text}"));
        let mut seen = (f64::INFINITY, f64::NEG_INFINITY);
        for trial in 0..2000 {
            let value = space.values(&space.random(1, trial))["x"].as_f64().expect("a number");
            assert!((low..=high).contains(&value), "{text}: {value}");
            seen = (seen.0.min(value), seen.1.max(value));
        }
        let near = (high - low) * 0.02;
        assert!(seen.0 - low <= near && high - seen.1 <= near, "{text}: {seen:?}");
    };
    check("{type: int, minval: 1, maxval: 5}", 1.0, 5.0);
    check("{type: double, minval: -1, maxval: 1}", -1.0, 1.0);
    check("{type: log, base: 2, minval: 0, maxval: 3}", 1.0, 8.0);
    check("{randint: {lower: 1, upper: 5}}", 1.0, 4.0);
    check("{qrandint: {lower: 2, upper: 8, q: 2}}", 2.0, 8.0);
    check("{uniform: [2, 3]}", 2.0, 3.0);
    check("{suggest_int: {low: 1, high: 5, step: 2}}", 1.0, 5.0);
    check("{int: {low: 1, high: 16, log: true}}", 1.0, 16.0);
    check("{float: {low: 0, high: 1, step: 0.25}}", 0.0, 1.0);
    check("{type: quniform, lower: 0, upper: 2, q: 0.5}", 0.0, 2.0);
    check("{quniform: [0.1, 0.3, 0.1]}", 0.1, 0.3);
}

#[test]
fn pytorch_quiks_file_reads() {
    let space = valid(
        "bs:\n    choice:\n        categories: [8, 12, 16, 24]\nweight_decay:\n    choice:\n        \
         categories: [0, 0.001]\n",
    );
    let grid = space.grid().expect("a grid");
    assert_eq!(grid.len(), 8);
    assert_eq!(grid[0].to_string(), r#"{"bs":24,"weight_decay":0.001}"#);
    assert_eq!(grid[7].to_string(), r#"{"bs":8,"weight_decay":0}"#);
}

#[test]
fn a_grid_goes_from_the_end_with_the_first_name_slowest() {
    let space = valid(
        "b: {type: categorical, vals: [x, y]}\na: {type: int, minval: 0, maxval: 10, count: 3}\nc: 1",
    );
    let grid: Vec<String> = space.grid().expect("a grid").iter().map(Json::to_string).collect();
    assert_eq!(grid.len(), 6);
    assert_eq!(grid[0], r#"{"b":"y","a":10,"c":1}"#);
    assert_eq!(grid[1], r#"{"b":"x","a":10,"c":1}"#);
    assert_eq!(grid[5], r#"{"b":"x","a":0,"c":1}"#);
}

#[test]
fn conditions_leave_out_what_does_not_apply() {
    let text = "optimizer: {choice: [sgd, adam]}\n\
                sgd: {when: {optimizer: sgd}, momentum: {choice: [0.5, 0.9]}}\n\
                beta: {type: categorical, vals: [0.99, 0.999], when: {optimizer: [adam, lamb]}}\n";
    let grid: Vec<String> =
        valid(text).grid().expect("a grid").iter().map(Json::to_string).collect();
    assert_eq!(
        grid,
        [
            r#"{"optimizer":"adam","beta":0.999}"#,
            r#"{"optimizer":"sgd","sgd":{"momentum":0.9}}"#,
            r#"{"optimizer":"sgd","sgd":{"momentum":0.5}}"#,
            r#"{"optimizer":"adam","beta":0.99}"#,
        ]
    );
    check_error(
        "a: {choice: [1], when: {b: 1}}\nbb: 1",
        "line 1: unknown field \"b\" in hyperparameters.a.when (known: a, bb)",
    );
    check_error(
        "a: {choice: [1], when: {b: 1}}\nb: {choice: [1], when: {a: 1}}",
        "line 1: hyperparameters.a.when: it depends on itself",
    );
    check_error(
        "kind: {choice: [sgd, adam]}\nbeta: {choice: [1], when: {kind: adm}}",
        "line 2: hyperparameters.beta.when: kind is never \"adm\": it is one of \"sgd\", \"adam\"",
    );
    // Whole numbers are numbers, however they are written.
    let grid = valid("depth: {choice: [1.0, 2.0]}\nskip: {choice: [a], when: {depth: 2}}").grid();
    let grid: Vec<String> = grid.expect("a grid").iter().map(Json::to_string).collect();
    assert_eq!(grid, [r#"{"depth":2.0,"skip":"a"}"#, r#"{"depth":1.0}"#]);
}

#[test]
fn constants_and_mappings_stay_as_they_are() {
    let text =
        "a: 1\nb: {c: [1, 2], d: {type: const, val: x}, e: {}}\nchoice: {of: 3}\ntype: {type: net}";
    let space = valid(text);
    assert!(!space.has_ranges());
    assert_eq!(
        space.values(&space.random(1, 1)).to_string(),
        r#"{"a":1,"b":{"c":[1,2],"d":"x","e":{}},"choice":{"of":3},"type":{"type":"net"}}"#
    );
}

#[test]
fn mistakes_are_named_with_their_line() {
    check_error(
        "a: 1\nlr: {type: double, minval: 1, maxval: 0}",
        "line 2: hyperparameters.lr.minval: 1 is above maxval 0",
    );
    check_error(
        "lr: {type: duoble, minval: 1, maxval: 2}",
        "line 1: hyperparameters.lr: type \"duoble\" is not known (did you mean \"double\"?)",
    );
    check_error(
        "lr: {type: double, minval: 1, maxvall: 2}",
        "line 1: unknown field \"maxvall\" in hyperparameters.lr (did you mean \"maxval\"?)",
    );
    check_error(
        "lr: {loguniform: {lower: 0, upper: 1}}",
        "line 1: hyperparameters.lr.lower: a logarithmic range begins above 0",
    );
    check_error(
        "x: 1\ndropout: {quniform: [0, 0.9, 0.5]}",
        "line 2: hyperparameters.dropout.upper: 0.9 is no multiple of q 0.5",
    );
    check_error(
        "x: {type: categorical, vals: []}",
        "line 1: hyperparameters.x.vals: write a list of the values to try",
    );
    check_error(
        "x: {type: int, minval: 0.5, maxval: 2}",
        "line 1: hyperparameters.x.minval: must be a whole number",
    );
    let error = valid("x: {type: double, minval: 0, maxval: 1}").grid().expect_err("no count");
    assert_eq!(
        error.to_string(),
        "line 1: hyperparameters.x: a grid needs a \"count\" of the values to try"
    );
}

#[test]
fn a_model_forbids_what_it_cannot_take() {
    let info = |name, kind, range| HparamInfo { name, kind, default: None, range, search: None };
    let any = AllowedRange::default();
    let known = [
        info("dropout", "f64", AllowedRange { min: Some(0.0), max: Some(0.9) }),
        info("width", "String", any),
        info("layers", "usize", any),
        info("shift", "Option<i64>", any),
        info("path", "PathBuf", any),
    ];
    let check = |text: &str, expected: &str| {
        let checked = valid(text).check(&known).map_err(|error| error.to_string());
        assert_eq!(checked.err().unwrap_or_default(), expected, "{text}");
    };
    check("dropout: {uniform: [0, 0.9]}\nwidth: {choice: [a, b]}", "");
    check(
        "dropout: {type: double, minval: 0, maxval: 1}",
        "line 1: hyperparameters.dropout: 0 to 1 is not within what the model takes, 0 to 0.9",
    );
    check(
        "dropuot: {uniform: [0, 0.5]}",
        "line 1: unknown field \"dropuot\" in hyperparameters (did you mean \"dropout\"?)",
    );
    check(
        "layers: {type: int, minval: 1, maxval: 3}\nshift: {choice: [null, -1]}\n\
           dropout: {choice: [0, 0.5]}\npath: {choice: [a, 1]}",
        "",
    );
    let wrong = |name: &str, value: &str, kind: &str| {
        format!("line 1: hyperparameters.{name}: it may be {value}, and the model takes {kind}")
    };
    check("layers: {uniform: [1, 3]}", &wrong("layers", "1.0", "usize"));
    check("layers: {type: int, minval: -1, maxval: 3}", &wrong("layers", "-1", "usize"));
    check("layers: {choice: [1, two]}", &wrong("layers", "\"two\"", "usize"));
    check("shift: {quniform: [1, 3, 1]}", &wrong("shift", "1.0", "Option<i64>"));
    check("dropout: {choice: [0.5, null]}", &wrong("dropout", "null", "f64"));
    check("width: {randint: [1, 3]}", &wrong("width", "1", "String"));
    check(
        "global_batch_size: {suggest_float: {low: 8, high: 16, step: 1}}",
        "line 1: hyperparameters.global_batch_size: a batch is a whole number of at least one record",
    );
    check(
        "global_batch_size: {choice: [0, 32]}",
        "line 1: hyperparameters.global_batch_size: a batch is a whole number of at least one record",
    );
}
