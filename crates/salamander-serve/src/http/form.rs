//! Forms as `curl -F` and browsers send them (RFC 7578), and as `curl -d` does: one record, a column for each part.

use std::borrow::Cow;
use std::collections::BTreeSet;

use salamander_data::JsonRecord;
use serde_json::{Map, Value as Json};

use super::json::OTHER_NAMES;
use super::query::unescape;
use crate::input::Input;
use crate::model::TensorInfo;

/// The most parts of a form.
const PARTS: usize = 1000;

/// What stands between the parts of a form; nothing where this is no form's type.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let mut words = content_type.split(';').map(str::trim);
    let kind = words.next()?;
    if !kind.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    words.find_map(|word| word.strip_prefix("boundary=")).map(|word| word.trim_matches('"'))
}

/// A part of a form.
struct FormPart<'a> {
    name: String,
    /// Whether it was a file: its bytes are taken as they are.
    file: bool,
    value: Cow<'a, [u8]>,
}

/// The record that a form is. `only` is the model's only input that is needed, which may be called `data` or `body`.
pub(super) fn record(body: &[u8], boundary: &str, only: Option<&str>) -> Result<Input, String> {
    of_parts(parts(body, boundary)?, only)
}

/// Whether a body is said to be a form in one line, as `curl -d` says of whatever it sends.
pub(super) fn is_one_line(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The record that a form in one line is, `data=a+film&age=42`; nothing where its first name is none that there is:
/// then it is no form but a value itself.
pub(super) fn line_record(
    body: &[u8],
    inputs: &[TensorInfo],
    only: Option<&str>,
) -> Option<Result<Input, String>> {
    let fields = body.split(|byte| *byte == b'&').filter(|field| !field.is_empty());
    let mut fields = fields.map(|field| {
        let end = field.iter().position(|byte| *byte == b'=')?;
        let name = String::from_utf8(unescape(&field[..end])).ok()?;
        Some(FormPart { name, file: false, value: unescape(&field[end + 1..]).into() })
    });
    let first = fields.next().flatten()?;
    let is_other = only.is_some() && OTHER_NAMES.contains(&first.name.as_str());
    if !is_other && !inputs.iter().any(|input| input.name == first.name) {
        return None;
    }
    let mut all = vec![first];
    for field in fields {
        match field {
            Some(part) if all.len() < PARTS => all.push(part),
            Some(_) => return Some(Err(format!("form: it has more than {PARTS} parts"))),
            None => return Some(Err("form: a part is no name=value: write & as %26".to_string())),
        }
    }
    Some(of_parts(all, only))
}

fn of_parts(parts: Vec<FormPart<'_>>, only: Option<&str>) -> Result<Input, String> {
    let (mut texts, mut files, mut names) = (Map::new(), Vec::new(), BTreeSet::new());
    for FormPart { name, file, value } in parts {
        let name = match only {
            Some(only) if OTHER_NAMES.contains(&name.as_str()) => only.to_string(),
            _ => name,
        };
        if !names.insert(name.clone()) {
            return Err(format!("form: \"{name}\" is there twice"));
        }
        match std::str::from_utf8(&value) {
            Ok(text) if !file => drop(texts.insert(name, Json::from(text))),
            _ => files.push((name, value.into_owned())),
        }
    }
    if names.is_empty() {
        return Err("form: it has no parts".to_string());
    }
    let record = JsonRecord::new(texts)?;
    let add =
        |record: JsonRecord, (name, bytes): (String, Vec<u8>)| record.with_bytes(&name, bytes);
    Ok(Input::Records(vec![files.into_iter().fold(record, add)]))
}

fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<FormPart<'a>>, String> {
    if boundary.is_empty() || boundary.len() > 70 {
        return Err("form: its boundary has no, or more than 70 characters".to_string());
    }
    let (line, mut parts) = (format!("--{boundary}"), Vec::new());
    let begin = find(body, line.as_bytes()).ok_or("form: its boundary is not in it")?;
    let mut rest = &body[begin + line.len()..];
    let between = format!("\r\n{line}");
    while !rest.starts_with(b"--") {
        let own = rest.strip_prefix(b"\r\n").ok_or("form: a line end is due after a boundary")?;
        let end = find(own, between.as_bytes()).ok_or("form: it ends within a part")?;
        parts.push(part(&own[..end])?);
        if parts.len() > PARTS {
            return Err(format!("form: it has more than {PARTS} parts"));
        }
        rest = &own[end + between.len()..];
    }
    Ok(parts)
}

fn part(bytes: &[u8]) -> Result<FormPart<'_>, String> {
    let head = find(bytes, b"\r\n\r\n").ok_or("form: a part has no head")?;
    let (head, value) = (&bytes[..head], &bytes[head + 4..]);
    let head = std::str::from_utf8(head).map_err(|_| "form: the head of a part is no text")?;
    let said = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let said = said.ok_or("form: a part has no content-disposition")?;
    let word = |key: &str| {
        let mut words = said.split(';').map(str::trim);
        words.find_map(|word| Some(word.strip_prefix(key)?.trim_matches('"').to_string()))
    };
    let name = word("name=").filter(|name| !name.is_empty());
    let name = name.ok_or("form: a part has no name")?;
    Ok(FormPart { name, file: word("filename=").is_some(), value: value.into() })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // By the first byte, which most places do not have.
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &str, only: Option<&str>) -> Result<Vec<String>, String> {
        cells(&record(body.as_bytes(), "XX", only)?)
    }

    fn cells(input: &Input) -> Result<Vec<String>, String> {
        let mut cells = Vec::new();
        input.each(&mut |row| {
            cells.extend(row.columns().map(|(name, value)| format!("{name}={value:?}")));
            Ok(())
        })?;
        Ok(cells)
    }

    #[test]
    fn parts_are_columns() {
        let form = "preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"age\"\r\n\r\n42\r\n--XX\r\n\
            content-disposition: form-data; name=\"data\"; filename=\"a.bin\"\r\nContent-Type: x/y\r\n\r\n\
            a\r\n--X\r\n--XX--\r\n";
        let cells = read(form, Some("image")).unwrap();
        assert_eq!(cells[0], "age=Text(\"42\")");
        assert_eq!(cells[1], "image=Bytes([97, 13, 10, 45, 45, 88])");
        assert!(read(form, None).unwrap()[1].starts_with("data="));
    }

    #[test]
    fn a_form_in_one_line_begins_with_a_known_name() {
        assert!(is_one_line("application/x-www-form-urlencoded; charset=utf-8"));
        assert!(!is_one_line("text/plain"));
        let input = TensorInfo {
            name: "text".to_string(),
            datatype: crate::tensor::DataType::Bytes,
            shape: vec![1],
            optional: false,
        };
        let read = |body: &[u8], only| {
            let record = line_record(body, std::slice::from_ref(&input), only)?;
            Some(record.and_then(|record| cells(&record)).map(|cells| cells.join(" ")))
        };
        let only = Some("text");
        let check = |body: &[u8], only, expected: Option<&str>| {
            assert_eq!(read(body, only), expected.map(|cells| Ok(cells.to_string())));
        };
        check(b"data=a film", only, Some("text=Text(\"a film\")"));
        check(b"body=a+film%26", only, Some("text=Text(\"a film&\")"));
        check(b"text=a&age=42&", None, Some("text=Text(\"a\") age=Text(\"42\")"));
        check(b"data=%FF%00", only, Some("text=Bytes([255, 0])"));
        check(b"data=a", None, None);
        check(b"a film", only, None);
        check(b"1 + 1 = 2", only, None);
        check(b"", only, None);
        let wrong = |body: &[u8]| read(body, only).and_then(Result::err).unwrap();
        assert!(wrong(b"data=salt & pepper").contains("write & as %26"));
        assert!(wrong(b"data=a&text=b").contains("is there twice"));
        assert!(wrong(&b"text=a&".repeat(PARTS + 1)).contains("more than 1000 parts"));
    }

    #[test]
    fn faults_are_named() {
        let check = |form: &str, expected: &str| {
            let error = read(form, None).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("nothing", "its boundary is not in it");
        check("--XX--", "it has no parts");
        check("--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n1", "ends within a part");
        check("--XX\r\nA: b\r\n\r\n1\r\n--XX--", "no content-disposition");
        let twice = "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n";
        check(&format!("{twice}{twice}--XX--"), "\"a\" is there twice");
    }

    #[test]
    fn a_forms_type_names_its_boundary() {
        assert_eq!(boundary("multipart/form-data; boundary=ab"), Some("ab"));
        assert_eq!(boundary("Multipart/Form-Data; charset=x; boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("application/json"), None);
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in "(--XX(--)?|\r\n|name=|content-disposition: |[a-z;\"]){0,40}") {
            let _ = record(body.as_bytes(), "XX", Some("x"));
            let _ = line_record(body.as_bytes(), &[], Some("x"));
        }
    }
}
