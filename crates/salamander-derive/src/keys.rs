//! The keys that attributes take, from the table that people read (`attributes.md`, which the guide copies): a key that
//! is not in it is refused, so no key goes undocumented.

use syn::meta::ParseNestedMeta;
use syn::{Error, Ident, Result};

const TABLE: &str = include_str!("attributes.md");

/// An attribute, by what its heading in the table begins with.
#[derive(Clone, Copy)]
pub(crate) enum AttributeKind {
    Hparam,
    /// `input` and `label`.
    Field,
    Example,
}

impl AttributeKind {
    fn shown(self) -> &'static str {
        match self {
            AttributeKind::Hparam => "#[hparam(..)]",
            AttributeKind::Field => "#[input(..)]",
            AttributeKind::Example => "#[example(..)]",
        }
    }

    /// The key of a list's item, if the table has it.
    pub(crate) fn key(self, meta: &ParseNestedMeta<'_>) -> Result<String> {
        let key = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
        match self.names().any(|name| name == key) {
            true => Ok(key),
            false => Err(self.unknown(meta)),
        }
    }

    /// Refuses a key with those that there are.
    pub(crate) fn unknown(self, meta: &ParseNestedMeta<'_>) -> Error {
        let names: Vec<&str> = self.names().collect();
        let list = match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => names.concat(),
        };
        meta.error(format!("unknown key: {} takes {list}", self.shown()))
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        let heading = format!("## `{}`", self.shown());
        let lines = TABLE.lines().skip_while(move |line| !line.starts_with(&heading)).skip(1);
        let lines = lines.take_while(|line| !line.starts_with("## "));
        let code = lines.filter_map(|line| line.strip_prefix("| `"));
        code.filter_map(|code| code.split([' ', '`']).next())
    }
}
