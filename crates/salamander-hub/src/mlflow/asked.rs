//! What a client asks, from a body of JSON or from the address: both have the same fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::refusal::MlflowRefusal;

/// The fields of a request.
#[derive(Debug, Default)]
pub(super) struct Asked(Map<String, Value>);

impl Asked {
    /// From a body.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, MlflowRefusal> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(MlflowRefusal::invalid("the body is no JSON object")),
            Err(error) => Err(MlflowRefusal::invalid(format!("the body is no JSON: {error}"))),
        }
    }

    /// From the part of an address behind the question mark; what stands there twice is a list.
    pub(super) fn from_query(query: &str) -> Self {
        let mut fields = Map::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name), Value::String(decoded(value)));
            match fields.get_mut(&name) {
                None => drop(fields.insert(name, value)),
                Some(Value::Array(all)) => all.push(value),
                Some(one) => *one = Value::Array(vec![one.take(), value]),
            }
        }
        Self(fields)
    }

    /// Adds a field that is part of the path.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_string(), value.into());
        self
    }

    /// A text, if it is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// A text that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, MlflowRefusal> {
        let missing =
            || MlflowRefusal::invalid(format!("Missing value for required parameter '{name}'."));
        self.text(name).ok_or_else(missing)
    }

    /// A text of any length that must be there.
    pub(super) fn value(&self, name: &str) -> Result<&str, MlflowRefusal> {
        let missing =
            || MlflowRefusal::invalid(format!("Missing value for required parameter '{name}'."));
        self.0.get(name).and_then(Value::as_str).ok_or_else(missing)
    }

    /// The run, by the name of today or of before.
    pub(super) fn run(&self) -> Result<&str, MlflowRefusal> {
        self.text("run_id").map_or_else(|| self.required("run_uuid"), Ok)
    }

    /// A whole number, which clients may also send as text.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, MlflowRefusal> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        match whole(value) {
            Some(number) => Ok(Some(number)),
            None => Err(MlflowRefusal::invalid(format!("'{name}' is no whole number: {value}"))),
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }

    /// Objects of a list.
    pub(super) fn objects(&self, name: &str) -> Vec<Asked> {
        let all = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|value| value.as_object().cloned().map(Self)).collect()
    }

    /// Texts of a list; one alone is a list of one.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).map(String::from).collect()
            }
            Some(Value::String(one)) => vec![one.clone()],
            _ => Vec::new(),
        }
    }

    /// Pairs of key and value.
    pub(super) fn pairs(&self, name: &str) -> Result<BTreeMap<String, String>, MlflowRefusal> {
        let pair =
            |one: Asked| Ok((one.required("key")?.to_string(), one.value("value")?.to_string()));
        self.objects(name).into_iter().map(pair).collect()
    }

    /// A number that may be infinite or none at all.
    pub(super) fn decimal(&self, name: &str) -> Result<f64, MlflowRefusal> {
        let value = self.0.get(name).unwrap_or(&Value::Null);
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::MAX),
                "-Infinity" => Some(f64::MIN),
                text => text.parse().ok(),
            },
            _ => None,
        };
        number.ok_or_else(|| MlflowRefusal::invalid(format!("'{name}' is no number: {value}")))
    }

    /// A field as it is.
    pub(super) fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => {
            let rounded =
                number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e18);
            number.as_i64().or(rounded.map(|value| value as i64))
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Undoes the escapes of an address; what is not UTF-8 is replaced.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let code = text.get(place + 1..place + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[place], code) {
            (b'%', Some(code)) => {
                plain.push(code);
                place += 3;
                continue;
            }
            (b'+', _) => plain.push(b' '),
            (byte, _) => plain.push(byte),
        }
        place += 1;
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_body_ask_the_same() {
        let query = Asked::from_query("name=a%20b+c&stages=x&stages=y&max_results=7&bad=%zz");
        assert_eq!(query.text("name"), Some("a b c"));
        assert_eq!(query.list("stages"), ["x", "y"]);
        assert_eq!(query.number("max_results"), Ok(Some(7)));
        assert_eq!(query.text("bad"), Some("%zz"));
        let body = br#"{"run_uuid": "r", "value": "NaN", "step": "5", "tags": [{"key": "k", "value": ""}]}"#;
        let body = Asked::from_body(body).expect("JSON");
        assert_eq!(body.run(), Ok("r"));
        assert!(body.decimal("value").expect("none").is_nan());
        assert_eq!(body.number("step"), Ok(Some(5)));
        assert_eq!(body.pairs("tags").expect("pairs")["k"], "");
        assert!(body.number("value").is_err() && body.required("name").is_err());
        assert!(Asked::from_body(b"[1]").is_err() && Asked::from_body(b"{").is_err());
    }
}
