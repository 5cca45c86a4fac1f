//! The words and signs of a filter, and the names that it is made of.

use super::Field;
use crate::mlflow::refusal::MlflowRefusal;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterToken {
    Word(String),
    /// A name between backticks or double quotes.
    Quoted(String),
    Text(String),
    Number(f64),
    Sign(&'static str),
}

pub(super) fn unexpected(token: &FilterToken) -> MlflowRefusal {
    MlflowRefusal::invalid(format!("the filter makes no sense at {token:?}"))
}

pub(super) struct Tokens(std::iter::Peekable<std::vec::IntoIter<FilterToken>>);

const SIGNS: [&str; 11] = ["!=", "<=", ">=", "==", "=", "<", ">", "(", ")", ",", "."];

impl Tokens {
    pub(super) fn of(text: &str) -> Result<Self, MlflowRefusal> {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let (token, length) = match first {
                '\'' => {
                    let (text, length) = quoted(rest, '\'')?;
                    (FilterToken::Text(text), length)
                }
                '`' | '"' => {
                    let (text, length) = quoted(rest, first)?;
                    (FilterToken::Quoted(text), length)
                }
                _ if is_number_start(rest, tokens.last()) => {
                    let ends =
                        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
                    let length = rest.find(ends).unwrap_or(rest.len());
                    let number: Result<f64, _> = rest[..length].parse();
                    match number {
                        Ok(number) => (FilterToken::Number(number), length),
                        Err(_) => (FilterToken::Word(rest[..length].to_string()), length),
                    }
                }
                _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                    Some(sign) => (FilterToken::Sign(sign), sign.len()),
                    None => {
                        let ends = |c: char| c.is_whitespace() || "=<>!(),.'\"`".contains(c);
                        let length = rest.find(ends).unwrap_or(rest.len());
                        if length == 0 {
                            let reason = format!("the filter makes no sense at {first:?}");
                            return Err(MlflowRefusal::invalid(reason));
                        }
                        (FilterToken::Word(rest[..length].to_string()), length)
                    }
                },
            };
            tokens.push(token);
            rest = rest[length..].trim_start();
        }
        Ok(Self(tokens.into_iter().peekable()))
    }

    pub(super) fn next(&mut self) -> Option<FilterToken> {
        self.0.next()
    }

    pub(super) fn is_done(&mut self) -> bool {
        self.0.peek().is_none()
    }

    pub(super) fn required(&mut self) -> Result<FilterToken, MlflowRefusal> {
        self.next()
            .ok_or_else(|| MlflowRefusal::invalid("the filter ends in the middle".to_string()))
    }

    pub(super) fn expect_word(&mut self, wanted: &str) -> Result<(), MlflowRefusal> {
        match self.required()? {
            FilterToken::Word(word) if word.eq_ignore_ascii_case(wanted) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn is_word(&mut self, wanted: &str) -> bool {
        matches!(self.0.peek(), Some(FilterToken::Word(word)) if word.eq_ignore_ascii_case(wanted))
    }

    /// `metrics.loss`, `` tags.`a b` ``, or an attribute alone.
    pub(super) fn identifier(&mut self) -> Result<(Field, String), MlflowRefusal> {
        let first = match self.required()? {
            FilterToken::Word(word) => word,
            FilterToken::Quoted(name) => return Ok((Field::Attribute, name)),
            other => return Err(unexpected(&other)),
        };
        if self.0.peek() != Some(&FilterToken::Sign(".")) {
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
                return Err(MlflowRefusal::invalid(reason));
            }
        };
        self.next();
        // A key may have dots of its own.
        let mut key = self.key_part()?;
        while self.0.peek() == Some(&FilterToken::Sign(".")) {
            self.next();
            key = format!("{key}.{}", self.key_part()?);
        }
        Ok((field, key))
    }

    fn key_part(&mut self) -> Result<String, MlflowRefusal> {
        match self.required()? {
            FilterToken::Word(word) | FilterToken::Quoted(word) => Ok(word),
            FilterToken::Number(number) => Ok(number.to_string()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn list(&mut self) -> Result<Vec<String>, MlflowRefusal> {
        match self.required()? {
            FilterToken::Sign("(") => {}
            other => return Err(unexpected(&other)),
        }
        let mut all = Vec::new();
        loop {
            match self.required()? {
                FilterToken::Text(text) | FilterToken::Quoted(text) => all.push(text),
                FilterToken::Number(number) => all.push(number.to_string()),
                FilterToken::Sign(")") => return Ok(all),
                other => return Err(unexpected(&other)),
            }
            match self.required()? {
                FilterToken::Sign(",") => {}
                FilterToken::Sign(")") => return Ok(all),
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// Whether a number begins here, after what stands before it.
fn is_number_start(rest: &str, before: Option<&FilterToken>) -> bool {
    let mut signs = rest.chars();
    match signs.next() {
        Some(first) if first.is_ascii_digit() => true,
        // Behind a comparison a point is that of a number, and behind a word it is one between names.
        Some('.') => {
            let compared =
                matches!(before, Some(FilterToken::Sign(sign)) if *sign != "." && *sign != ")");
            compared && signs.next().is_some_and(|c| c.is_ascii_digit())
        }
        Some('-' | '+') => signs.next().is_some_and(|c| c.is_ascii_digit() || c == '.'),
        _ => false,
    }
}

/// What is between two quotes; a quote in it stands twice or behind a backslash.
fn quoted(rest: &str, quote: char) -> Result<(String, usize), MlflowRefusal> {
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
    Err(MlflowRefusal::invalid(format!("the filter has a {quote} that is not closed")))
}
