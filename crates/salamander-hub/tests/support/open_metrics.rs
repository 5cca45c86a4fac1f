//! Whether a page of figures is one that Prometheus reads: looked at as strictly as `promtool check metrics` does.

use std::collections::{BTreeMap, BTreeSet};

/// The figures that follow each other under one name.
struct Figures<'a> {
    name: &'a str,
    kind: &'a str,
}

/// Looks at a whole page, whose figures all have this prefix; gives how many values it has.
pub(crate) fn check(page: &str, prefix: &str) -> usize {
    let lines = page.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end:\n{page}"));
    assert!(lines.is_empty() || lines.ends_with('\n'), "{page}");
    let (mut named, mut helped) = (BTreeSet::new(), BTreeSet::new());
    let mut now: Option<Figures<'_>> = None;
    let mut values: BTreeMap<String, f64> = BTreeMap::new();
    for line in lines.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            let mut words = about.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} ends early"));
            let (what, name, rest) = (word(), word(), word());
            assert!(is_name(name) && name.starts_with(prefix), "{line}");
            match what {
                "HELP" => assert!(helped.insert(name) && !rest.is_empty(), "{line}"),
                "TYPE" => {
                    let known = ["counter", "gauge", "histogram", "info", "unknown"];
                    assert!(known.contains(&rest), "{line}");
                    assert!(named.insert(name), "{line}: its figures do not follow each other");
                    now = Some(Figures { name, kind: rest });
                }
                "UNIT" => assert!(name.ends_with(rest), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let figures = now.as_ref().unwrap_or_else(|| panic!("{line}: a value without a type"));
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}: no number"));
        let (name, labels) = series.split_once('{').map_or((series, Vec::new()), |(name, rest)| {
            let labels = rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
            (name, pairs(labels).unwrap_or_else(|| panic!("{line}: wrong labels")))
        });
        let ending = name.strip_prefix(figures.name);
        let ending = ending.unwrap_or_else(|| panic!("{line} is not of {}", figures.name));
        let endings: &[&str] = match figures.kind {
            "counter" => &["_total", "_created"],
            "histogram" => &["_sum", "_count", "_bucket", "_created"],
            "info" => &["_info"],
            _ => &[""],
        };
        assert!(endings.contains(&ending), "{line} of a {}", figures.kind);
        assert!(figures.kind == "gauge" || value >= 0.0, "{line} counts below nothing");
        let keys: BTreeSet<&String> = labels.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), labels.len(), "{line} has a label twice");
        assert_eq!(ending == "_bucket", keys.contains(&"le".to_string()), "{line}");
        assert!(values.insert(series.to_string(), value).is_none(), "{line} is there twice");
    }
    check_buckets(&values);
    values.len()
}

/// Each bucket has what the smaller ones have, and the last one has all.
fn check_buckets(values: &BTreeMap<String, f64>) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, value) in values.iter().filter(|(series, _)| series.contains("_bucket{")) {
        let (name, labels) = series.split_once("_bucket{").expect("a bucket");
        let mut labels = pairs(labels.trim_end_matches('}')).expect("labels");
        labels.sort();
        let at = labels.iter().position(|(key, _)| key == "le").expect("an end");
        let (_, end) = labels.remove(at);
        let end = end.parse().unwrap_or_else(|_| panic!("{series}"));
        buckets.entry(format!("{name} {labels:?}")).or_default().push((end, *value));
    }
    for (name, mut all) in buckets {
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name}: {all:?}");
        assert_eq!(all.last().map(|last| last.0), Some(f64::INFINITY), "{name}");
    }
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Labels and their values; nothing where they are not written as they must be.
fn pairs(labels: &str) -> Option<Vec<(String, String)>> {
    let (mut found, mut rest) = (Vec::new(), labels);
    while !rest.is_empty() {
        let (key, behind) = rest.split_once("=\"")?;
        let (mut value, mut escaped, mut end) = (String::new(), false, None);
        for (at, sign) in behind.char_indices() {
            match (escaped, sign) {
                (true, '\\' | '"') => value.push(sign),
                (true, 'n') => value.push('\n'),
                (true, _) => return None,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, '\\') => {}
                (false, '\n') => return None,
                (false, sign) => value.push(sign),
            }
            escaped = !escaped && sign == '\\';
        }
        rest = &behind[end? + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if rest.is_empty() => rest,
            _ => return None,
        };
        is_name(key).then(|| found.push((key.to_string(), value)))?;
    }
    Some(found)
}
