//! Forms as `curl -F` and browsers send them (RFC 7578): one record, a column for each part.

use std::collections::BTreeSet;

use salamander_data::JsonRecord;
use serde_json::{Map, Value as Json};

use super::json::OTHER_NAMES;
use crate::input::Input;

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
    value: &'a [u8],
}

/// The record that a form is. `only` is the model's only input that is needed, which may be called `data` or `body`.
pub(super) fn record(body: &[u8], boundary: &str, only: Option<&str>) -> Result<Input, String> {
    let (mut texts, mut files, mut names) = (Map::new(), Vec::new(), BTreeSet::new());
    for FormPart { name, file, value } in parts(body, boundary)? {
        let name = match only {
            Some(only) if OTHER_NAMES.contains(&name.as_str()) => only.to_string(),
            _ => name,
        };
        if !names.insert(name.clone()) {
            return Err(format!("form: \"{name}\" is there twice"));
        }
        match std::str::from_utf8(value) {
            Ok(text) if !file => drop(texts.insert(name, Json::from(text))),
            _ => files.push((name, value.to_vec())),
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
    Ok(FormPart { name, file: word("filename=").is_some(), value })
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
        let input = record(body.as_bytes(), "XX", only)?;
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
        }
    }
}
