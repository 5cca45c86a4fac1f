//! Every attribute that the derive macros know, used as it is meant: it compiles, and reads its values.

mod decoded_cache;

use std::borrow::Cow;

use salamander::__private::{Example as _, ExampleContext, Hparams as _, SearchRange};
use salamander::prelude::*;
use salamander_core::{hparams, yaml};
use salamander_data::{Row, Value};

#[derive(Hparams)]
struct Hp {
    #[hparam(default = 1, min = 0.0, max = 2, range = 1e-3..=1, log)]
    rate: f64,
    #[hparam(default = "relu", name = "activation-function", choices = ["relu", "tanh"])]
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
    let example = Everything::decode(&row(true), &labelled()).expect("complete");
    let batch = Everything::collate(&[example], &labelled(), &Device::flex()).expect("fits");
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
    let example = Everything::decode(&row(false), &ExampleContext::unlabelled())
        .expect("labels are not asked for");
    let batch = Everything::collate(&[example], &labelled(), &Device::flex()).expect("fits");
    assert_eq!(floats(batch.targets), [0.0, 0.0]);
    let error = Everything::decode(&row(false), &labelled()).err().expect("labels are asked for");
    assert_eq!(error.column, "class");
}

#[test]
fn augmentation_is_the_functions() {
    let mut example = Everything::decode(&row(true), &labelled()).expect("complete");
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
    let searched: Vec<_> = Hp::describe().into_iter().map(|info| info.search).collect();
    let between = SearchRange::Between { low: 1e-3, high: 1.0, log: true };
    let choices = SearchRange::Choices(vec!["relu".into(), "tanh".into()]);
    assert_eq!(searched, [Some(between), Some(choices), None, None, None]);
    let error = hparams::read::<Hp>(&yaml::Node::empty_map()).err().expect("one is missing");
    assert!(error.to_string().contains("\"required\" is missing"), "{error}");
}

#[derive(Example)]
#[example(unlabelled)]
struct Buckets {
    #[input(discretise = [18.0, 25.0], missing = 30.0)]
    age: f32,
    #[input(log_round = 10.0)]
    income: i64,
    #[input(round = 5, columns = ["rooms", "floors"], missing = -1)]
    house: [f32; 2],
    #[input(hash = 1000, missing = "none")]
    city: String,
    #[input(hash = 1000)]
    postcode: i64,
    #[input(vocabulary = "tests/words.txt", oov = 2)]
    genre: String,
}

/// The types of the batch's fields are the point: this must compile.
fn buckets(batch: BucketsBatch) -> ([Tensor<1, Int>; 5], Tensor<2, Int>) {
    ([batch.age, batch.income, batch.city, batch.postcode, batch.genre], batch.house)
}

/// Records with labels, of an example that needs no files.
fn labelled() -> ExampleContext {
    ExampleContext::labelled()
}

/// The same with the files of an example, from this crate's folder.
fn files<E: salamander::__private::Example>() -> ExampleContext {
    ExampleContext::of_current_folder::<E>(true).expect("files")
}

fn person(cells: &[(&'static str, &'static str)]) -> Row<'static> {
    let mut columns = vec![
        ("age", "18"),
        ("income", "90000"),
        ("rooms", "2.6"),
        ("floors", "70"),
        ("city", "Bern"),
        ("postcode", "3000"),
        ("genre", "soul"),
    ];
    for (name, text) in cells {
        columns.retain(|(column, _)| column != name);
        columns.push((name, text));
    }
    Row::new(columns.into_iter().map(|(name, text)| (name.into(), Value::Text(text))).collect())
}

fn ints<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i64> {
    tensor.into_data().iter::<i64>().collect()
}

#[test]
fn inputs_become_the_numbers_of_their_buckets() {
    let rows =
        [person(&[]), person(&[("age", ""), ("floors", ""), ("city", ""), ("genre", "polka")])];
    let examples: Vec<Buckets> = rows
        .iter()
        .map(|row| Buckets::decode(row, &files::<Buckets>()).expect("complete"))
        .collect();
    let batch = Buckets::collate(&examples, &files::<Buckets>(), &Device::flex()).expect("fits");
    let ([age, income, city, postcode, genre], house) = buckets(batch);
    assert_eq!(ints(age), [1, 2]);
    assert_eq!(ints(income), [5, 5]);
    assert_eq!(ints(house), [3, 5, 3, 0]);
    let hash = |word: &str, buckets| salamander_data::preprocess::hash(word, buckets);
    assert_eq!(ints(city), [hash("Bern", 1000), hash("none", 1000)]);
    assert_eq!(ints(postcode), [hash("3000", 1000); 2]);
    // Two words are in the file, and two buckets come after them.
    assert_eq!(ints(genre), [1, 2 + hash("polka", 2)]);
}

/// `tests/stats.json` is the answer of `salamander data inspect people.csv --stats --json`, where people.csv is
/// "age,height,city\n30,1.5,Bern\n50,1.5,Chur\n".
#[derive(Example)]
#[example(unlabelled)]
struct Measured {
    #[input(normalise = "tests/stats.json")]
    age: f32,
    #[input(normalise = "tests/stats.json", columns = ["height", "age"])]
    both: [f32; 2],
}

#[derive(Example)]
#[example(unlabelled)]
struct Unmeasured {
    #[input(normalise = "tests/stats.json")]
    city: f32,
}

#[derive(Example)]
#[example(unlabelled)]
struct Unmade {
    #[input(normalise = "tests/words.txt")]
    age: f32,
}

#[test]
fn statistics_of_the_data_normalise_inputs() {
    let row = |age: &'static str| {
        let columns = [("age", age), ("height", "1.5"), ("city", "7")];
        Row::new(columns.map(|(name, text)| (name.into(), Value::Text(text))).into())
    };
    let examples: Vec<Measured> = ["30", "50", "60"]
        .iter()
        .map(|age| Measured::decode(&row(age), &files::<Measured>()).expect("complete"))
        .collect();
    let MeasuredBatch { age, both } =
        Measured::collate(&examples, &files::<Measured>(), &Device::flex()).expect("fits");
    assert_eq!(floats(age), [-1.0, 1.0, 2.0]);
    // The height is the same in all records: it says nothing.
    assert_eq!(floats(both), [0.0, -1.0, 0.0, 1.0, 0.0, 2.0]);

    let error = ExampleContext::of_current_folder::<Unmeasured>(true).expect_err("no statistics");
    assert_eq!(
        error.to_string(),
        "tests/stats.json has no numbers of \"city\", by which `city` is normalised (it has: age, height)"
    );
    let error = ExampleContext::of_current_folder::<Unmade>(true).expect_err("no statistics");
    assert!(error.to_string().contains("`salamander data inspect DATA --stats --json`"), "{error}");
    let example = Measured::decode(&row("30"), &labelled()).expect("a number");
    let error =
        Measured::collate(&[example], &labelled(), &Device::flex()).expect_err("not loaded");
    assert!(error.to_string().starts_with("column \"age\": its statistics"), "{error}");
}

#[derive(Example)]
#[example(unlabelled)]
struct Several {
    #[input(ragged)]
    tags: Vec<i64>,
    #[input(ragged = "|", hash = 1000)]
    genres: String,
    #[input(ragged = " ", vocabulary = "tests/words.txt")]
    known: String,
    #[input(columns = ["day", "hour"], concatenate = [7, 24])]
    when: [i64; 2],
}

fn evening(tags: Value<'static>, genres: &'static str, known: &'static str) -> Row<'static> {
    let columns = [
        ("tags", tags),
        ("genres", Value::Text(genres)),
        ("known", Value::Text(known)),
        ("day", Value::Ints(Cow::Borrowed(&[6]))),
        ("hour", Value::Text("20")),
    ];
    Row::new(columns.map(|(name, value)| (name.into(), value)).into())
}

#[test]
fn several_ids_become_one_row_of_ids() {
    let rows = [
        evening(Value::Ints(Cow::Borrowed(&[5, 7])), "soul|jazz", "soul"),
        evening(Value::Ints(Cow::Borrowed(&[])), "", ""),
        evening(Value::Text("9"), "polka", "soul soul"),
    ];
    let examples: Vec<Several> = rows
        .iter()
        .map(|row| Several::decode(row, &files::<Several>()).expect("complete"))
        .collect();
    let batch = Several::collate(&examples, &files::<Several>(), &Device::flex()).expect("fits");
    assert_eq!(salamander::__private::Batch::records(&batch), 3);
    let SeveralBatch { tags, genres, known, when } = batch;
    assert_eq!((ints(tags.values), ints(tags.rows)), (vec![5, 7, 9], vec![0, 0, 2]));
    let hash = |word: &str| salamander_data::preprocess::hash(word, 1000);
    assert_eq!(ints(genres.values), [hash("soul"), hash("jazz"), hash("polka")]);
    assert_eq!((ints(known.values), ints(known.rows)), (vec![1, 1, 1], vec![0, 2, 2]));
    assert_eq!(ints(when), [6, 27, 6, 27, 6, 27]);

    let nothing =
        Several::decode(&evening(Value::Text(""), "", ""), &files::<Several>()).expect("complete");
    let batch = Several::collate(&[nothing], &files::<Several>(), &Device::flex()).expect("fits");
    assert_eq!((batch.tags.records(), ints(batch.tags.values)), (1, vec![]));
}

#[derive(Example)]
#[example(unlabelled)]
struct Sparse {
    #[input(ragged, ignore = -1)]
    tags: Vec<i64>,
    #[input(ragged = "|", hash = 1000, ignore = "none")]
    genres: String,
    #[input(ragged = " ", vocabulary = "tests/words.txt", ignore = "-")]
    known: String,
}

#[test]
fn ids_that_stand_for_nothing_are_left_out() {
    let rows = [
        evening(Value::Ints(Cow::Borrowed(&[-1, 5, -1, 0])), "none|jazz|none", "- soul -"),
        evening(Value::Text("-1 -1"), "none", "-"),
    ];
    let examples: Vec<Sparse> =
        rows.iter().map(|row| Sparse::decode(row, &files::<Sparse>()).expect("complete")).collect();
    let SparseBatch { tags, genres, known } =
        Sparse::collate(&examples, &files::<Sparse>(), &Device::flex()).expect("fits");
    assert_eq!((tags.records(), ints(tags.values), ints(tags.rows)), (2, vec![5, 0], vec![0, 0]));
    let jazz = salamander::data::preprocess::hash("jazz", 1000);
    assert_eq!((ints(genres.values), ints(genres.rows)), (vec![jazz], vec![0]));
    assert_eq!((ints(known.values), ints(known.rows)), (vec![1], vec![0]));
}

#[derive(Example)]
#[example(augment = brighten, unlabelled)]
struct Pictures {
    #[input(shape = [1, 2, 3], augment = [flip, crop(1)])]
    planes: Vec<u8>,
    #[input(column = "image", shape = [3, 4, 6], scale = 0.5, augment = [resized_crop, flip])]
    photo: Image,
    #[input(column = "image", shape = [3, 2, 2], augment = [crop(2)])]
    thumbnail: Image,
    bright: i64,
}

fn brighten(example: &mut Pictures, _rng: &mut Rng) {
    example.bright += 1;
}

/// Planes of 2 x 3 pixels, and a photo of 8 x 6 as an image folder gives it, all of one colour.
fn picture() -> Row<'static> {
    let columns = [
        ("planes", Value::Bytes(&[1, 2, 3, 4, 5, 6])),
        ("image", Value::Bytes(&[8; 3 * 8 * 6])),
        ("height", Value::Ints(Cow::Borrowed(&[6]))),
        ("width", Value::Ints(Cow::Borrowed(&[8]))),
        ("bright", Value::Ints(Cow::Borrowed(&[0]))),
    ];
    Row::new(columns.map(|(name, value)| (name.into(), value)).into())
}

fn collated(seed: Option<u64>) -> PicturesBatch {
    let mut example = Pictures::decode(&picture(), &labelled()).expect("complete");
    if let Some(seed) = seed {
        example.augment(&mut Rng::new(seed));
    }
    Pictures::collate(&[example], &labelled(), &Device::flex()).expect("fits")
}

#[test]
fn pictures_are_changed_in_training_only() {
    let PicturesBatch { planes, photo, thumbnail, bright } = collated(None);
    assert_eq!((planes.dims(), photo.dims()), ([1, 1, 2, 3], [1, 3, 4, 6]));
    assert_eq!(thumbnail.dims(), [1, 3, 2, 2]);
    assert_eq!((floats(planes), ints(bright)), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0]));
    assert!(floats(photo).iter().all(|value| *value == 4.0));

    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let batch = collated(Some(seed));
        assert_eq!((batch.photo.dims(), batch.thumbnail.dims()), ([1, 3, 4, 6], [1, 3, 2, 2]));
        assert!(floats(batch.photo).iter().all(|value| *value == 4.0));
        assert_eq!(ints(batch.bright), [1], "the function comes after the fields");
        let planes = floats(batch.planes);
        assert_eq!(planes, floats(collated(Some(seed)).planes), "the draws are the seed's");
        seen.insert(planes.iter().map(|value| *value as u8).collect::<Vec<_>>());
    }
    assert!(
        seen.contains([1, 2, 3, 4, 5, 6].as_slice())
            && seen.contains([3, 2, 1, 6, 5, 4].as_slice())
    );
    assert!(seen.contains([5, 6, 0, 0, 0, 0].as_slice()), "{seen:?}");
    assert_eq!(seen.len(), 18, "nine places, flipped or not");
}

#[derive(Example)]
#[example(unlabelled)]
struct Shared {
    #[input(columns = ["from", "to"], hash = 1u64 << 40, missing = "nowhere")]
    cities: [String; 2],
}

#[test]
fn columns_of_text_share_a_table() {
    let row = |from: &'static str, to: &'static str| {
        Row::new(vec![("from".into(), Value::Text(from)), ("to".into(), Value::Text(to))])
    };
    let examples: Vec<Shared> = [row("Bern", "Bern"), row("", "Chur")]
        .iter()
        .map(|row| Shared::decode(row, &labelled()).expect("complete"))
        .collect();
    let SharedBatch { cities } =
        Shared::collate(&examples, &labelled(), &Device::flex()).expect("fits");
    assert_eq!(cities.dims(), [2, 2]);
    // More than 32 bits can hold.
    assert!(ints(cities.clone()).iter().any(|id| *id > i64::from(u32::MAX)));
    let hash = |text: &str| salamander_data::preprocess::hash(text, 1 << 40);
    let expected = ["from=Bern", "to=Bern", "from=nowhere", "to=Chur"].map(hash);
    assert_eq!(ints(cities), expected);
}

#[test]
fn an_id_past_its_column_is_named() {
    let row = Row::new(vec![
        ("day".into(), Value::Ints(Cow::Borrowed(&[7]))),
        ("hour".into(), Value::Ints(Cow::Borrowed(&[1]))),
    ]);
    let error = Several::decode(&row, &files::<Several>()).err().expect("there is no eighth day");
    assert!(error.to_string().contains("id 7 is not below its size 7"), "{error}");
}

#[derive(Example)]
#[example(unlabelled)]
struct Strict {
    #[input(vocabulary = "tests/words.txt")]
    genre: String,
}

#[derive(Example)]
#[example(unlabelled)]
struct Lost {
    #[input(vocabulary = "tests/no_words.txt")]
    genre: String,
}

#[test]
fn words_that_cannot_be_looked_up_are_named() {
    let check = |result: Option<salamander::__private::DecodeError>, expected: &str| {
        assert_eq!(result.expect("refused").to_string(), expected);
    };
    assert_eq!(Strict::decode(&person(&[]), &files::<Strict>()).expect("known").genre, "soul");
    check(
        Strict::decode(&person(&[("genre", "polka")]), &files::<Strict>()).err(),
        "column \"genre\": \"polka\" is not in tests/words.txt: add it, or say oov = 1",
    );
    let error = ExampleContext::of_current_folder::<Lost>(true).expect_err("there is no file");
    assert_eq!(
        error.to_string(),
        "tests/no_words.txt, which `genre` is read with, is not in the current folder"
    );
}

#[derive(Example)]
struct Shopper {
    #[input(classes = ["a", "b"])]
    group: String,
    #[label(classes = ["no", "yes"])]
    bought: String,
}

#[derive(Example)]
struct Listener {
    age: f32,
    #[label(vocabulary = "tests/words.txt")]
    genre: String,
}

#[test]
fn labels_of_text_become_the_numbers_of_their_classes() {
    let row = |group: &'static str, bought: &'static str| {
        let columns = [("group", group), ("bought", bought)];
        Row::new(columns.map(|(name, text)| (name.into(), Value::Text(text))).into())
    };
    let cx = labelled();
    let rows = [row("b", "yes"), row("a", "no")];
    let examples: Vec<Shopper> =
        rows.iter().map(|row| Shopper::decode(row, &cx).expect("complete")).collect();
    let ShopperBatch { group, bought } =
        Shopper::collate(&examples, &cx, &Device::flex()).expect("fits");
    assert_eq!((ints(group), ints(bought)), (vec![1, 0], vec![1, 0]));
    assert_eq!(Shopper::class_names(&cx.assets), ["no", "yes"]);
    let error = Shopper::decode(&row("a", "perhaps"), &cx).err().expect("no class").to_string();
    assert_eq!(error, "column \"bought\": \"perhaps\" is none of its classes: no, yes");
    let error = Shopper::decode(&row("c", "no"), &cx).err().expect("no class").to_string();
    assert_eq!(error, "column \"group\": \"c\" is none of its classes: a, b");

    let cx = files::<Listener>();
    let example = Listener::decode(&person(&[]), &cx).expect("complete");
    let batch = Listener::collate(&[example], &cx, &Device::flex()).expect("fits");
    assert_eq!((floats(batch.age), ints(batch.genre)), (vec![18.0], vec![1]));
    assert_eq!(Listener::class_names(&cx.assets)[1], "soul");
    assert!(Listener::decode(&person(&[("genre", "polka")]), &cx).is_err());
    let unasked = ExampleContext { labels: false, ..cx };
    assert!(Listener::decode(&person(&[("genre", "polka")]), &unasked).is_ok());
}
