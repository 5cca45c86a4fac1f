//! What stands behind `when`: comparisons of values and references, joined by `and`, `or`, `not`.

use std::cmp::Ordering;

use salamander_core::yaml::{Error, Node, SourcePosition, Value};
use serde_json::Value as Json;

use super::template::{Known, Piece, Quoting, Reference, pieces, words};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Holds(Operand),
    Compare(Operand, Comparison, Operand),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Value(Json),
    Reference(Reference),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

const SIGNS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn sign(self) -> &'static str {
        SIGNS.iter().find(|(_, other)| *other == self).map_or("", |(sign, _)| sign)
    }

    /// Whether it asks which is larger.
    pub(crate) fn is_order(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::Unequal)
    }
}

/// What a condition came to, and the comparison that decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConditionVerdict {
    pub(crate) holds: bool,
    pub(crate) because: String,
}

impl Condition {
    pub(crate) fn read(node: &Node) -> Result<Self, Error> {
        let text = match &node.value {
            Value::Bool(value) => return Ok(Condition::Holds(Operand::Value((*value).into()))),
            Value::Text(text) => text,
            _ => return Err(Error::at(&node.place, "write a condition, as in ${test.loss} < 0.1")),
        };
        let mut parser = Parser { tokens: tokens(text, &node.place)?, at: 0, place: &node.place };
        let condition = parser.either()?;
        match parser.tokens.get(parser.at) {
            None => Ok(condition),
            Some(token) => Err(parser.unexpected(Some(token))),
        }
    }

    pub(crate) fn references(&self) -> Vec<&Reference> {
        match self {
            Condition::Holds(operand) => operand.reference().into_iter().collect(),
            Condition::Compare(left, _, right) => {
                left.reference().into_iter().chain(right.reference()).collect()
            }
            Condition::Not(inner) => inner.references(),
            Condition::And(left, right) | Condition::Or(left, right) => {
                [left.references(), right.references()].concat()
            }
        }
    }

    pub(crate) fn judge(
        &self,
        look: &dyn Fn(&Reference) -> Result<Known, String>,
    ) -> Result<ConditionVerdict, String> {
        match self {
            Condition::Holds(operand) => match operand.value(look)? {
                Json::Bool(holds) => {
                    Ok(ConditionVerdict { holds, because: format!("it is {holds}") })
                }
                other => Err(format!("{other} is neither true nor false: compare it")),
            },
            Condition::Compare(left, comparison, right) => {
                compare(&left.value(look)?, *comparison, &right.value(look)?)
            }
            Condition::Not(inner) => {
                inner.judge(look).map(|inner| ConditionVerdict { holds: !inner.holds, ..inner })
            }
            Condition::And(left, right) => {
                let left = left.judge(look)?;
                if left.holds { right.judge(look) } else { Ok(left) }
            }
            Condition::Or(left, right) => {
                let left = left.judge(look)?;
                if left.holds { Ok(left) } else { right.judge(look) }
            }
        }
    }
}

impl Operand {
    fn reference(&self) -> Option<&Reference> {
        match self {
            Operand::Reference(reference) => Some(reference),
            Operand::Value(_) => None,
        }
    }

    fn value(&self, look: &dyn Fn(&Reference) -> Result<Known, String>) -> Result<Json, String> {
        match self {
            Operand::Value(value) => Ok(value.clone()),
            Operand::Reference(reference) => look(reference).map(|known| known.real),
        }
    }
}

fn compare(left: &Json, comparison: Comparison, right: &Json) -> Result<ConditionVerdict, String> {
    let (sign, shown) = (comparison.sign(), |value| words(value, Quoting::Plain));
    let text = format!("{} {sign} {}", shown(left), shown(right));
    let order = match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.partial_cmp(&right),
        _ if comparison.is_order() => return Err(format!("{text}: only numbers have an order")),
        _ => Some(if left == right { Ordering::Equal } else { Ordering::Less }),
    };
    let holds = match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Unequal => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
    };
    Ok(ConditionVerdict { holds, because: format!("{text} is {holds}") })
}

#[derive(Clone, Debug, PartialEq)]
enum ConditionToken {
    Operand(Operand),
    Sign(Comparison),
    Word(&'static str),
}

const WORDS: [&str; 5] = ["and", "or", "not", "(", ")"];

fn tokens(text: &str, place: &SourcePosition) -> Result<Vec<ConditionToken>, Error> {
    let mut found = Vec::new();
    for piece in pieces(text, place)? {
        match piece {
            Piece::Value(reference) => {
                found.push(ConditionToken::Operand(Operand::Reference(reference)))
            }
            Piece::Text(text) => plain_tokens(&text, place, &mut found)?,
        }
    }
    Ok(found)
}

fn plain_tokens(
    text: &str,
    place: &SourcePosition,
    found: &mut Vec<ConditionToken>,
) -> Result<(), Error> {
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let sign = SIGNS.iter().find_map(|(sign, what)| Some((rest.strip_prefix(sign)?, *what)));
        let (token, after) = if let Some((after, comparison)) = sign {
            (ConditionToken::Sign(comparison), after)
        } else if let Some(bracket) = WORDS.iter().find(|word| **word == first.to_string()) {
            (ConditionToken::Word(bracket), &rest[1..])
        } else if first == '"' || first == '\'' {
            let (text, after) = rest[1..]
                .split_once(first)
                .ok_or_else(|| Error::at(place, "a quote is not closed"))?;
            (ConditionToken::Operand(Operand::Value(text.into())), after)
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "()<>=!\"'".contains(c));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            if word.is_empty() {
                return Err(Error::at(place, format!("\"{first}\" has no meaning in a condition")));
            }
            (word_token(word), after)
        };
        found.push(token);
        rest = after.trim_start();
    }
    Ok(())
}

fn word_token(word: &str) -> ConditionToken {
    match WORDS.iter().find(|known| **known == word) {
        Some(word) => ConditionToken::Word(word),
        // Numbers, true and false are those of JSON; anything else is text.
        None => {
            let value = serde_json::from_str(word).unwrap_or_else(|_| Json::from(word));
            ConditionToken::Operand(Operand::Value(value))
        }
    }
}

struct Parser<'a> {
    tokens: Vec<ConditionToken>,
    at: usize,
    place: &'a SourcePosition,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<ConditionToken> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    fn take(&mut self, word: &str) -> bool {
        let found =
            matches!(self.tokens.get(self.at), Some(ConditionToken::Word(other)) if *other == word);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, token: Option<&ConditionToken>) -> Error {
        let shown = match token {
            None => "the condition ends too early".to_string(),
            Some(ConditionToken::Word(word)) => format!("\"{word}\" does not belong there"),
            Some(ConditionToken::Sign(sign)) => {
                format!("\"{}\" does not belong there", sign.sign())
            }
            Some(ConditionToken::Operand(Operand::Value(value))) => {
                format!("{value} does not belong there")
            }
            Some(ConditionToken::Operand(Operand::Reference(reference))) => {
                format!("{} does not belong there", reference.text())
            }
        };
        Error::at(self.place, format!("{shown}: write ${{test.loss}} < 0.1 and ${{params.ship}}"))
    }

    fn either(&mut self) -> Result<Condition, Error> {
        let mut left = self.both()?;
        while self.take("or") {
            left = Condition::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Condition, Error> {
        let mut left = self.one()?;
        while self.take("and") {
            left = Condition::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Condition, Error> {
        if self.take("not") {
            return self.one().map(|inner| Condition::Not(Box::new(inner)));
        }
        if self.take("(") {
            let inner = self.either()?;
            return match self.take(")") {
                true => Ok(inner),
                false => Err(Error::at(self.place, "a bracket is not closed")),
            };
        }
        let left = match self.next() {
            Some(ConditionToken::Operand(operand)) => operand,
            other => return Err(self.unexpected(other.as_ref())),
        };
        let Some(ConditionToken::Sign(comparison)) = self.tokens.get(self.at).cloned() else {
            return Ok(Condition::Holds(left));
        };
        self.at += 1;
        match self.next() {
            Some(ConditionToken::Operand(right)) => Ok(Condition::Compare(left, comparison, right)),
            other => Err(self.unexpected(other.as_ref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use salamander_core::yaml::parse;
    use serde_json::json;

    use super::super::template::{mark, unmark};
    use super::*;

    fn judge(text: &str) -> String {
        let node = parse(&mark(&format!("when: {text}"))).expect("YAML");
        let condition = match Condition::read(node.get("when").expect("there")) {
            Ok(condition) => condition,
            Err(error) => return unmark(&error.to_string()),
        };
        let look = |reference: &Reference| match reference.head() {
            "a" => Ok(Known::plain(json!(0.91))),
            "t" => Ok(Known::plain(json!("gpu"))),
            "b" => Ok(Known::plain(json!(true))),
            "nan" => Ok(Known::plain(Json::Null)),
            other => Err(format!("no {other}")),
        };
        match condition.judge(&look) {
            Ok(verdict) => verdict.because,
            Err(error) => error,
        }
    }

    #[test]
    fn conditions_say_what_decided() {
        let check = |text: &str, expected: &str| assert_eq!(judge(text), expected, "{text}");
        check("${a} > 0.97", "0.91 > 0.97 is false");
        check("${a}>=0.91", "0.91 >= 0.91 is true");
        check("${t} == gpu", "gpu == gpu is true");
        check("\"${t} != 'gpu'\"", "gpu != gpu is false");
        check("${b} and ${a} < 1", "0.91 < 1 is true");
        check("not ${b} or (${a} < 0.5 or ${a} > 0.9)", "0.91 > 0.9 is true");
        check("false", "it is false");
        check("${t} < 3", "gpu < 3: only numbers have an order");
        check("${nan} > 3", "null > 3: only numbers have an order");
        check("${a}", "0.91 is neither true nor false: compare it");
        let shape = "write ${test.loss} < 0.1 and ${params.ship}";
        check("${a} <", &format!("line 1: the condition ends too early: {shape}"));
        check("${a} 3", &format!("line 1: 3 does not belong there: {shape}"));
        check("(${a} < 1", "line 1: a bracket is not closed");
        check("[1]", "line 1: write a condition, as in ${test.loss} < 0.1");
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "[ -~é]{0,30}") {
            let place = SourcePosition::Line(1);
            let node = Node { value: Value::Text(mark(&text)), place };
            let _ = Condition::read(&node);
        }
    }
}
