//! The part of an address behind its question mark.

/// Names and values, as they were meant.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(name), unescape(value))
        };
        Self(pairs.map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Percent signs with two digits stand for bytes, plus signs for spaces; what is neither stays.
fn unescape(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let escaped = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        at += 1;
        plain.push(match (byte, escaped) {
            (b'%', Some(escaped)) => {
                at += 2;
                escaped
            }
            (b'+', _) => b' ',
            (byte, _) => byte,
        });
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_values() {
        let query = Query::parse(Some("url=model%3Am%40best&model_name=a+b&empty=&bare&cut=%4"));
        assert_eq!(query.get("url"), Some("model:m@best"));
        assert_eq!(query.get("model_name"), Some("a b"));
        assert_eq!((query.get("empty"), query.get("bare"), query.get("other")), (None, None, None));
        assert_eq!(query.get("cut"), Some("%4"));
        assert_eq!(Query::parse(None).get("url"), None);
    }
}
