//! Inputs of several ids: `ragged` (any number of them) and `concatenate` (columns that share one embedding).

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Error, Expr, ExprArray, LitStr, Result, Token};

use crate::buckets::Buckets;
use crate::field::{Column, is_quoted};
use crate::option;

/// How several ids become a tensor.
pub(crate) enum Several {
    /// Any number of them; text is cut at the separator.
    Ragged(Option<LitStr>),
    /// How many ids each column can have.
    Concatenate(Vec<Expr>),
}

impl Several {
    /// Reads a key, if it is one of these.
    pub(crate) fn read(key: &str, meta: &ParseNestedMeta<'_>) -> Result<Option<Self>> {
        Ok(match key {
            "ragged" if meta.input.peek(Token![=]) => {
                Some(Self::Ragged(Some(meta.value()?.parse()?)))
            }
            "ragged" => Some(Self::Ragged(None)),
            "concatenate" => {
                let sizes: ExprArray = meta.value()?.parse()?;
                Some(Self::Concatenate(sizes.elems.into_iter().collect()))
            }
            _ => None,
        })
    }

    /// Refuses a field that this does not suit.
    fn check(&self, column: &Column) -> Result<()> {
        let Column { ident, columns, buckets, .. } = column;
        let wrong = |message: &str| Err(Error::new_spanned(&column.kind, message));
        if column.label || column.scale.is_some() || column.missing.is_some() {
            return wrong(
                "ids stay as they are: put ragged and concatenate on an input, without scale, mean, std, \
                 normalise and missing",
            );
        }
        if let Some(ignore) =
            column.ignore.as_ref().filter(|said| is_quoted(said) != column.is_text())
        {
            let message = "ignore what the field holds: ignore = -1, or ignore = \"none\" for text";
            return Err(Error::new_spanned(ignore, message));
        }
        if column.is_texts() {
            return wrong(
                "the hash of several columns keeps them apart: remove ragged and concatenate",
            );
        }
        match self {
            Self::Concatenate(sizes) if sizes.len() != columns.len() => wrong(&format!(
                "concatenate has {} sizes for {} columns: write one for each",
                sizes.len(),
                columns.len()
            )),
            Self::Concatenate(_) if buckets.is_some() || column.is_text() => {
                wrong("concatenate takes integers as they are: remove the buckets")
            }
            Self::Concatenate(_) => Ok(()),
            Self::Ragged(separator) if column.is_text() != separator.is_some() => wrong(&format!(
                "text is cut at a separator and a Vec is not: write #[input(ragged = \"|\", hash = 1000)] \
                 {ident}: String, or #[input(ragged)] {ident}: Vec<i64>"
            )),
            Self::Ragged(_) => match buckets {
                None | Some(Buckets::Hash(_) | Buckets::Vocabulary { .. }) => Ok(()),
                Some(_) => wrong("ragged goes with hash or vocabulary"),
            },
        }
    }

    /// The tensors of a column, from an iterator over its values.
    pub(crate) fn collate(
        &self,
        column: &Column,
        values: &TokenStream,
        target: &TokenStream,
    ) -> TokenStream {
        let Column { ident, buckets, .. } = column;
        let (private, name) = (quote!(::salamander::__private), ident.to_string());
        let bucket = buckets.as_ref().map(|buckets| buckets.function(ident, column.is_text()));
        match self {
            Self::Concatenate(sizes) => quote! {
                #private::concatenated(#target, #values, &[#((#sizes) as i64),*])?
            },
            Self::Ragged(Some(separator)) => {
                let list = word_list(separator, column);
                quote!(#private::ragged_texts(#name, #values, #list, #bucket, device)?)
            }
            Self::Ragged(None) => {
                let bucket = bucket.unwrap_or_else(|| quote!(|id| id));
                let ignored = option(column.ignore.as_ref().map(|id| quote!((#id) as i64)));
                quote!(#private::ragged_ints(#name, #values, #ignored, #bucket, device)?)
            }
        }
    }
}

/// Refuses what does not fit together about several ids.
pub(crate) fn check(column: &Column) -> Result<()> {
    if let Some(ignore) = column.ignore.as_ref().filter(|_| !column.is_ragged()) {
        let message = "ignore goes with ragged: write #[input(ragged, ignore = -1)]";
        return Err(Error::new_spanned(ignore, message));
    }
    column.several.as_ref().map_or(Ok(()), |several| several.check(column))
}

/// How a text is cut into words.
pub(crate) fn word_list(separator: &LitStr, column: &Column) -> TokenStream {
    let ignored = option(column.ignore.as_ref().map(|word| quote!(#word)));
    quote!(::salamander::__private::WordList { separator: #separator, ignored: #ignored })
}
