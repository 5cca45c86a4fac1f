//! The words and signs of a filter, and the names that it is made of.

use super::Field;
use crate::mlflow::refusal::Refusal;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// A name between backticks or double quotes.
    Quoted(String),
    Text(String),
    Number(f64),
    Sign(&'static str),
}

pub(super) fn unexpected(token: &Token) -> Refusal {
    Refusal::invalid(format!("the filter makes no sense at {token:?}"))
}

pub(super) struct Tokens(std::iter::Peekable<std::vec::IntoIter<Token>>);

const SIGNS: [&str; 11] = ["!=", "<=", ">=", "==", "=", "<", ">", "(", ")", ",", "."];

impl Tokens {
    pub(super) fn of(text: &str) -> Result<Self, Refusal> {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let (token, length) = match first {
                '\'' => {
                    let (text, length) = quoted(rest, '\'')?;
                    (Token::Text(text), length)
                }
                '`' | '"' => {
                    let (text, length) = quoted(rest, first)?;
                    (Token::Quoted(text), length)
                }
                _ if is_number_start(rest) => {
                    let ends =
                        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
                    let length = rest.find(ends).unwrap_or(rest.len());
                    let number: Result<f64, _> = rest[..length].parse();
                    match number {
                        Ok(number) => (Token::Number(number), length),
                        Err(_) => (Token::Word(rest[..length].to_string()), length),
                    }
                }
                _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                    Some(sign) => (Token::Sign(sign), sign.len()),
                    None => {
                        let ends = |c: char| c.is_whitespace() || "=<>!(),.'\"`".contains(c);
                        let length = rest.find(ends).unwrap_or(rest.len());
                        if length == 0 {
                            let reason = format!("the filter makes no sense at {first:?}");
                            return Err(Refusal::invalid(reason));
                        }
                        (Token::Word(rest[..length].to_string()), length)
                    }
                },
            };
            tokens.push(token);
            rest = rest[length..].trim_start();
        }
        Ok(Self(tokens.into_iter().peekable()))
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        self.0.next()
    }

    pub(super) fn is_done(&mut self) -> bool {
        self.0.peek().is_none()
    }

    pub(super) fn required(&mut self) -> Result<Token, Refusal> {
        self.next().ok_or_else(|| Refusal::invalid("the filter ends in the middle".to_string()))
    }

    pub(super) fn expect_word(&mut self, wanted: &str) -> Result<(), Refusal> {
        match self.required()? {
            Token::Word(word) if word.eq_ignore_ascii_case(wanted) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn is_word(&mut self, wanted: &str) -> bool {
        matches!(self.0.peek(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(wanted))
    }

    /// `metrics.loss`, `` tags.`a b` ``, or an attribute alone.
    pub(super) fn identifier(&mut self) -> Result<(Field, String), Refusal> {
        let first = match self.required()? {
            Token::Word(word) => word,
            Token::Quoted(name) => return Ok((Field::Attribute, name)),
            other => return Err(unexpected(&other)),
        };
        if self.0.peek() != Some(&Token::Sign(".")) {
            return Ok((Field::Attribute, first));
        }
        let field = match first.to_ascii_lowercase().as_str() {
            "metric" | "metrics" => Field::Metric,
            "param" | "params" | "parameter" | "parameters" => Field::Param,
            "tag" | "tags" => Field::Tag,
            "dataset" | "datasets" => Field::Dataset,
            "attr" | "attribute" | "attributes" | "run" => Field::Attribute,
            other => {
                let reason = format!(
                    "there are metrics, params, tags, datasets and attributes, and no {other:?}"
                );
                return Err(Refusal::invalid(reason));
            }
        };
        self.next();
        // A key may have dots of its own.
        let mut key = self.key_part()?;
        while self.0.peek() == Some(&Token::Sign(".")) {
            self.next();
            key = format!("{key}.{}", self.key_part()?);
        }
        Ok((field, key))
    }

    fn key_part(&mut self) -> Result<String, Refusal> {
        match self.required()? {
            Token::Word(word) | Token::Quoted(word) => Ok(word),
            Token::Number(number) => Ok(number.to_string()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn list(&mut self) -> Result<Vec<String>, Refusal> {
        match self.required()? {
            Token::Sign("(") => {}
            other => return Err(unexpected(&other)),
        }
        let mut all = Vec::new();
        loop {
            match self.required()? {
                Token::Text(text) | Token::Quoted(text) => all.push(text),
                Token::Number(number) => all.push(number.to_string()),
                Token::Sign(")") => return Ok(all),
                other => return Err(unexpected(&other)),
            }
            match self.required()? {
                Token::Sign(",") => {}
                Token::Sign(")") => return Ok(all),
                other => return Err(unexpected(&other)),
            }
        }
    }
}

fn is_number_start(rest: &str) -> bool {
    let mut signs = rest.chars();
    match signs.next() {
        Some(first) if first.is_ascii_digit() => true,
        Some('-' | '+') => signs.next().is_some_and(|c| c.is_ascii_digit() || c == '.'),
        _ => false,
    }
}

/// What is between two quotes; a quote in it stands twice or behind a backslash.
fn quoted(rest: &str, quote: char) -> Result<(String, usize), Refusal> {
    let mut text = String::new();
    let mut signs = rest.char_indices().skip(1).peekable();
    while let Some((place, sign)) = signs.next() {
        let next = signs.peek().map(|(_, next)| *next);
        if (sign == quote || sign == '\\') && next == Some(quote) {
            text.push(quote);
            signs.next();
        } else if sign == quote {
            return Ok((text, place + quote.len_utf8()));
        } else {
            text.push(sign);
        }
    }
    Err(Refusal::invalid(format!("the filter has a {quote} that is not closed")))
}
