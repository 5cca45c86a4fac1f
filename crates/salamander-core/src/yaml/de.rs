//! Tree to typed values: a serde deserializer that adds place and path to every mistake.

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

use super::{Error, Key, Node, Value};

/// Reads a typed value from a tree.
pub fn from_node<T: DeserializeOwned>(node: &Node) -> Result<T, Error> {
    T::deserialize(Tree(node)).map_err(|error| error.or_at(&node.place))
}

struct Tree<'a>(&'a Node);

impl<'de> Deserializer<'de> for Tree<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) if *value >= 0 => visitor.visit_u64(*value as u64),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::List(items) => visitor.visit_seq(Items { items, at: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries { entries, at: 0 }),
        };
        result.map_err(|error| error.or_at(&self.0.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let one_of = || Error::anywhere(format!("write one of: {}", variants.join(", ")));
        let result = match &self.0.value {
            Value::Text(name) => visitor.visit_enum(name.clone().into_deserializer()),
            Value::Map(entries) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(Variant { key, node }),
                _ => Err(one_of()),
            },
            _ => Err(one_of()),
        };
        result.map_err(|error: Error| error.or_at(&self.0.place))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a> {
    items: &'a [Node],
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(node) = self.items.get(self.at) else {
            return Ok(None);
        };
        let name = self.at.to_string();
        self.at += 1;
        seed.deserialize(Tree(node)).map(Some).map_err(|error| error.within(&name))
    }
}

struct Entries<'a> {
    entries: &'a [(Key, Node)],
    at: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((key, _)) = self.entries.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        name_of(seed, key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (key, node) = &self.entries[self.at - 1];
        seed.deserialize(Tree(node)).map_err(|error| error.or_at(&node.place).within(&key.name))
    }
}

struct Variant<'a> {
    key: &'a Key,
    node: &'a Node,
}

impl Variant<'_> {
    fn within(&self, error: Error) -> Error {
        error.or_at(&self.node.place).within(&self.key.name)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((name_of(seed, self.key)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.node.value {
            Value::Null => Ok(()),
            _ => Err(self.within(Error::anywhere("takes no value"))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Tree(self.node)).map_err(|error| self.within(error))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        Tree(self.node).deserialize_any(visitor).map_err(|error| self.within(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // `cosine:` with nothing below means all defaults.
        let empty = Node { value: Value::Map(Vec::new()), place: self.node.place.clone() };
        let node = if self.node.value == Value::Null { &empty } else { self.node };
        Tree(node).deserialize_any(visitor).map_err(|error| self.within(error))
    }
}

fn name_of<'de, S: DeserializeSeed<'de>>(seed: S, key: &Key) -> Result<S::Value, Error> {
    let text: StringDeserializer<Error> = key.name.clone().into_deserializer();
    seed.deserialize(text).map_err(|error| error.or_at(&key.place))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::parse;
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the errors are looked at")]
    struct Outer {
        learning_rate: Option<f64>,
        inner: Option<Inner>,
        length: Option<Length>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the errors are looked at")]
    struct Inner {
        count: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "only the errors are looked at")]
    enum Length {
        Batches(u64),
        Epochs(u64),
    }

    fn check(text: &str, expected: &str) {
        let got = parse(text).and_then(|node| from_node::<Outer>(&node));
        let got = got.map(|_| "ok".to_string()).unwrap_or_else(|error| error.to_string());
        assert_eq!(got, expected, "for {text:?}");
    }

    #[test]
    fn mistakes_name_line_path_and_the_nearest_name() {
        check("learning_rate: 1\ninner: {count: 3}\nlength: {epochs: 2}", "ok");
        check(
            "\nlerning_rate: 1",
            "line 2: unknown field \"lerning_rate\" (did you mean \"learning_rate\"?)",
        );
        check(
            "inner:\n  count: 1\n  zzz: 2",
            "line 3: unknown field \"zzz\" in inner (known: count)",
        );
        check(
            "inner:\n  count: -1",
            "line 2: inner.count: invalid value: integer `-1`, expected u32",
        );
        check("inner: {}", "line 1: inner: the field \"count\" is missing");
        check(
            "length: {epoch: 2}",
            "line 1: length: \"epoch\" is not known here (did you mean \"epochs\"?)",
        );
        check("length: 3", "line 1: length: write one of: batches, epochs");
    }
}
