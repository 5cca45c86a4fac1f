//! The formats of public data.

use super::*;

/// Each public format: what is read from it is written again, byte for byte.
#[test]
fn public_files_are_written_as_they_were() {
    let check = |name: &str, format: Format, content: &str| {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join(name), folder.path().join("again"));
        std::fs::write(&first, content).unwrap();
        let reader = open(&[first], Some(format)).unwrap();
        let mut sink = create(&second, format).unwrap();
        let records = reader.shards().unwrap()[0].records;
        reader.read(0, 0..records, &mut |_, row| sink.write(&row)).unwrap();
        sink.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&second).unwrap(), content, "{name}");
    };
    check("ratings.dat", Format::MovieLens, "1::1193::5::978300760\n6040::661::3::978302109\n");
    let tabs = |count: usize| "\t".repeat(count);
    check("train.txt", Format::Criteo, &format!("1\t-1{}68fd1e64{}\n", tabs(13), tabs(25)));
    let person =
        "39, ?, 77516, 11th, 7, Never-married, ?, Own-child, White, Male, 0, 0, 40, ?, >50K\n";
    check("adult.data", Format::Census, person);
}

#[test]
fn what_a_public_format_cannot_hold_is_refused() {
    let row =
        |name: &'static str, text: &'static str| Row::new(vec![(name.into(), Value::Text(text))]);
    let check = |row: Row<'_>, expected: &str| {
        assert_eq!(written("ratings.dat", Format::MovieLens, &[row]).unwrap_err(), expected);
    };
    check(
        row("genre", "soul"),
        "ratings.dat: record 0: column \"genre\": the format has no such column",
    );
    check(
        row("userId", "a:b"),
        "ratings.dat: record 0: column \"userId\": \"a:b\" has what separates fields, and this format has no \
         quotes",
    );
}
