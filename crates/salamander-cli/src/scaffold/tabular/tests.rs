//! What a crate of a table holds, by table.

use super::*;

#[test]
fn labels_are_classes_or_a_quantity() {
    let check = |values: &[&str], expected: Option<&[&str]>| {
        let found = classes("y", values.iter().copied()).expect("a label");
        let found = found.as_ref().map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected);
    };
    check(&[">50K", "<=50K", ">50K"], Some(&["<=50K", ">50K"]));
    check(&["10", "9", "10"], Some(&["9", "10"]));
    check(&["1.0", "0.0", "1.0"], Some(&["0.0", "1.0"]));
    check(&["1.5", "2", "3"], None);
    check(&["1", "1.0", "2"], None);
    assert!(classes("y", ["a", "a"].into_iter()).is_err());
}

#[test]
fn words_for_missing_values_leave_a_column_of_numbers_one() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("penguins.csv");
    let rows = (0..50).map(|i| match i % 5 {
        0 => format!("NA,NA,{}\n", i % 2),
        _ => format!("{}.5,male,{}\n", 30 + i, i % 2),
    });
    fs::write(&file, format!("bill,sex,species\n{}?,female,NA\n", rows.collect::<String>()))
        .expect("written");
    let dataset = open(&file, None, CsvSettings::default()).expect("read");
    let target = LabelColumn::read(&dataset, "species").expect("a label");
    assert_eq!(target.missing, 1, "a label that is missing");
    let (columns, train) = (["bill", "sex"].map(String::from), place.path().join("train.csv"));
    let all: Vec<u64> = target.records.iter().map(|(record, _)| *record).collect();
    let sink = create_csv(&train, None).expect("made");
    let emptied = target.write(&dataset, &columns, &all, sink).expect("written");
    assert_eq!(emptied, 20);
    let written = open(&train, None, own_csv(&CsvSettings::default())).expect("read");
    let stats = Stats::of(&written, |_| {}).expect("read");
    let found = columns::find(&stats, "species", Vec::new());
    assert!(matches!(found.fields[0].kind, columns::ColumnKind::Number { .. }));
    assert!(matches!(found.fields[1].kind, columns::ColumnKind::Vocabulary { words: 1, .. }));
}

#[test]
fn a_file_becomes_a_crate_that_names_its_columns() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("people.csv");
    let mut text = String::from("id,age,capital-gain,city,type,same,income\n");
    for i in 0..100 {
        let (age, gain) = (20 + i % 50, if i % 3 == 0 { String::new() } else { i.to_string() });
        let (city, income) = (["Bern", "Chur"][i % 2], [" >50K", " <=50K"][i % 2]);
        text += &format!("n{i},{age},{gain},{city},k{},1,{income}\n", i % 7);
    }
    fs::write(&file, text).expect("written");
    let dataset = open(&file, None, CsvSettings::default()).expect("read");
    let columns = usable(&Stats::of(&dataset, |_| {}).expect("read"));
    let target = LabelColumn::read(&dataset, "income").expect("a label");
    assert_eq!(target.classes.as_deref().expect("classes"), ["<=50K", ">50K"]);
    let parts = target.divide().expect("two parts");
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 100);
    let train = place.path().join("train.csv");
    let sink = create_csv(&train, None).expect("made");
    target.write(&dataset, &columns, &parts[0], sink).expect("written");
    let head = fs::read_to_string(&train).expect("read");
    assert!(head.starts_with("id,age,capital-gain,city,type,same,income\n"), "{head}");
    assert!(head.contains(",<=50K\n"), "classes keep their names: {head}");

    let written = open(&train, None, own_csv(&CsvSettings::default())).expect("read");
    let stats = Stats::of(&written, |_| {}).expect("read");
    let found = columns::find(&stats, "income", Vec::new());
    let left: Vec<&str> = found.left_out.iter().map(|(column, _)| column.as_str()).collect();
    assert_eq!(left, ["id", "same"]);
    let source = source::program(&file, &target, &found.fields);
    for expected in [
        "    #[input(normalise = \"stats.json\", missing = ",
        "    #[input(column = \"capital-gain\", normalise = \"stats.json\", missing = ",
        "    #[input(vocabulary = \"vocabulary/city.txt\", oov = 1, missing = \"none\")]\n    city: String,",
        "    #[input(column = \"type\", vocabulary = \"vocabulary/type_.txt\", oov = 1, missing = \"none\")]\n",
        "    type_: String,\n",
        "    #[label(classes = [\"<=50K\", \">50K\"])]\n    income: String,",
        "const WORDS: [usize; 2] = [3, 8];",
    ] {
        assert!(source.contains(expected), "{expected} in\n{source}");
    }
}
/// As spreadsheets and pandas write tables: semicolons, row numbers without a name, names that are numbers.
#[test]
fn tables_are_read_as_it_is_said() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("sales.txt");
    let rows = (0..60).map(|i| format!("{i};{};{};{}.0\n", i % 7, 100 + i % 9, i % 2));
    fs::write(&file, format!(";1.5;2;sold\n{}", rows.collect::<String>())).expect("written");
    let csv = CsvSettings { separator: ";".parse().ok(), ..own_csv(&CsvSettings::default()) };
    let dataset = open(&file, Some(Format::Csv), csv).expect("read");
    let columns = usable(&Stats::of(&dataset, |_| {}).expect("read"));
    assert_eq!(columns, ["", "1.5", "2", "sold"]);
    let target = LabelColumn::read(&dataset, "sold").expect("a label");
    assert_eq!(target.classes.as_deref().expect("classes"), ["0.0", "1.0"]);
    let all: Vec<u64> = (0..60).collect();
    let train = place.path().join("train.csv");
    let sink = create_csv(&train, None).expect("made");
    target.write(&dataset, &columns, &all, sink).expect("written");
    let stats = open(&train, None, own_csv(&CsvSettings::default())).expect("read");
    let stats = Stats::of(&stats, |_| {}).expect("read");
    let found = columns::find(&stats, "sold", Vec::new());
    let idents: Vec<&str> = found.fields.iter().map(|field| field.ident.as_str()).collect();
    assert_eq!(idents, ["column_1_5", "column_2"]);
    assert_eq!(found.left_out.len(), 1, "row numbers");
    let text = source::experiment("sales", &target, &columns, &CsvSettings::default());
    assert!(text.contains("  csv: {header: yes}\n"), "{text}");
    let plain = ["sold".to_string()];
    let plain = source::experiment("sales", &target, &plain, &CsvSettings::default());
    assert!(!plain.contains("csv:"), "{plain}");
}

/// What a crate's experiment says of CSV files reads its own and the table that they are of.
#[test]
fn the_experiment_reads_the_table_itself() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("cells.csv");
    let rows = (0..60).map(|i| match i {
        0 => "NA;\"a;b\";0\n".to_string(),
        _ => format!("{}.5; a;{}\n", i % 7, i % 2),
    });
    fs::write(&file, format!("size;kind;ill\n{}", rows.collect::<String>())).expect("written");
    let csv = CsvSettings { separator: ";".parse().ok(), trim: true, ..CsvSettings::default() };
    let dataset = open(&file, None, csv.clone()).expect("read");
    let columns = ["size", "kind", "ill"].map(String::from);
    let target = LabelColumn::read(&dataset, "ill").expect("a label");
    let all: Vec<u64> = (0..60).collect();
    let train = place.path().join("train.csv");
    let sink = create_csv(&train, csv.separator).expect("made");
    let emptied = target.write(&dataset, &columns, &all, sink).expect("written");
    assert_eq!(emptied, 1);
    let head = fs::read_to_string(&train).expect("read");
    assert!(head.starts_with("size;kind;ill\n;"), "{head}");

    let text = source::experiment("cells", &target, &columns, &to_read(&csv, emptied));
    let experiment = salamander_core::experiment::Experiment::parse(&text, &[]).expect(&text);
    let read = &experiment.data.csv;
    assert_eq!((read.separator, read.trim), (csv.separator, true), "{text}");
    let cells = |path: &Path| {
        let dataset = open(path, None, read.clone()).expect("read");
        let mut cells = Vec::new();
        let read = dataset.read(&all, &mut |_, row| {
            cells.push(["size", "kind", "ill"].map(|name| row.text(name).ok().map(str::to_string)));
            Ok(())
        });
        read.expect("read");
        cells
    };
    assert_eq!(cells(&file), cells(&train));
    assert_eq!(cells(&file)[0][0].as_deref(), Some(""), "a word for a missing value");
}

#[test]
fn what_is_no_number_is_missing() {
    assert!(is_missing(&Value::Floats(vec![f32::NAN].into())));
    assert!(!is_missing(&Value::Floats(vec![1.0].into())));
    assert_eq!(text(&Value::Floats(vec![f32::NAN].into())), None);
}
