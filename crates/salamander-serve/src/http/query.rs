//! The part of an address behind its question mark.

/// Names and values, as they were meant.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (plain(name), plain(value))
        };
        Self(pairs.map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

fn plain(escaped: &str) -> String {
    String::from_utf8_lossy(&unescape(escaped.as_bytes())).into_owned()
}

/// Percent signs with two digits stand for bytes, plus signs for spaces; what is neither stays.
pub(super) fn unescape(bytes: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::new(), 0);
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    while let Some(&byte) = bytes.get(at) {
        let high = bytes.get(at + 1).and_then(digit);
        let low = bytes.get(at + 2).and_then(digit);
        at += 1;
        plain.push(match (byte, high.zip(low)) {
            (b'%', Some((high, low))) => {
                at += 2;
                (high * 16 + low) as u8
            }
            (b'+', _) => b' ',
            (byte, _) => byte,
        });
    }
    plain
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
        assert_eq!(unescape(b"%FF%+1%c3%A9"), b"\xff% 1\xc3\xa9");
        assert_eq!(Query::parse(None).get("url"), None);
    }
}
