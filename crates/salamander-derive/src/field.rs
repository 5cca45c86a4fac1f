//! The fields of an example: what their attributes say.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, ExprArray, Field, Ident, LitStr, Result, Type};

use crate::buckets::{self, Buckets, is_text, is_texts};
use crate::is_named;
use crate::keys::AttributeKind;
use crate::pictures::{self, PictureChange};
use crate::several::{self, Several};

/// An input or a label.
pub(crate) struct Column {
    pub(crate) ident: Ident,
    pub(crate) kind: Type,
    pub(crate) label: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) shape: Vec<Expr>,
    /// When the values become floats.
    pub(crate) scale: Option<ValueScale>,
    /// When the values become integers of buckets.
    pub(crate) buckets: Option<Buckets>,
    /// Stands in for a column that is absent or empty.
    pub(crate) missing: Option<Expr>,
    /// When there are several ids.
    pub(crate) several: Option<Several>,
    /// The id that stands for nothing.
    pub(crate) ignore: Option<Expr>,
    /// Random changes in training.
    pub(crate) changes: Vec<PictureChange>,
    /// When a text becomes tokens.
    pub(crate) tokenize: Option<Tokenize>,
}

/// How a text becomes tokens.
pub(crate) struct Tokenize {
    pub(crate) file: LitStr,
    pub(crate) max_length: Expr,
}

/// How a value becomes a float.
pub(crate) enum ValueScale {
    /// `(value - offset) * scale`.
    Said { offset: TokenStream, scale: TokenStream },
    /// By the statistics in this file.
    Measured(LitStr),
}

impl Column {
    pub(crate) fn parse(field: &Field) -> Result<Self> {
        let ident = field.ident.clone().expect("fields are named");
        let mut said = FieldAttributes::default();
        let mut label = false;
        for attr in &field.attrs {
            label |= attr.path().is_ident("label");
            if attr.path().is_ident("input") || attr.path().is_ident("label") {
                said.read(attr)?;
            }
        }
        let wrong = |message: &str| Err(Error::new_spanned(&field.ty, message));
        if label && (said.said_scale() || said.normalise.is_some()) {
            return wrong("a label is not scaled: put this on an input");
        }
        if label && said.buckets.has_oov() {
            return wrong("a label is one of its classes: remove oov");
        }
        let (scale, missing) = (said.scale(&field.ty)?, said.missing(&field.ty)?);
        let tokenize = said.tokenize(&field.ty, label, scale.is_some())?;
        let buckets = said.buckets.check(&ident, &field.ty)?;
        let named = matches!(&buckets, Some(Buckets::Vocabulary { .. } | Buckets::Classes(_)));
        if label && ((buckets.is_some() && !named) || missing.is_some()) {
            return wrong("a label stays as it is: put buckets and missing on an input");
        }
        if buckets.is_some() && scale.is_some() {
            return wrong("buckets are integers: remove scale, offset, mean, std and normalise");
        }
        let columns = said.columns.unwrap_or_else(|| vec![ident.to_string()]);
        let is_one = is_text(&field.ty) || (tokenize.is_some() && !is_texts(&field.ty));
        let shape = match is_one && (buckets.is_some() || tokenize.is_some()) {
            true => text_shape(&field.ty, said.shape, &columns)?,
            false if matches!(said.several, Some(Several::Ragged(_))) => Vec::new(),
            false => shape(&ident, &field.ty, said.shape, label)?,
        };
        if is_texts(&field.ty) && tokenize.is_some() && columns.len() != 2 {
            return wrong(
                "tokens of two texts have two columns: say columns = [\"premise\", \"hypothesis\"]",
            );
        }
        if is_texts(&field.ty) && buckets.is_none() && tokenize.is_none() {
            return wrong(&format!("`{ident}` is text: say #[input(hash = 1u64 << 40)]"));
        }
        let column = Self {
            columns,
            shape,
            ident,
            kind: field.ty.clone(),
            label,
            scale,
            buckets,
            missing,
            several: said.several,
            ignore: said.ignore,
            changes: said.changes,
            tokenize,
        };
        several::check(&column)?;
        pictures::check(&column)?;
        Ok(column)
    }

    /// Whether the field holds text, which only buckets make a tensor of.
    pub(crate) fn is_text(&self) -> bool {
        is_text(&self.kind)
    }

    /// Whether the field holds a text of each of several columns.
    pub(crate) fn is_texts(&self) -> bool {
        is_texts(&self.kind)
    }

    /// Whether the field holds the tokens of a text, not the text.
    pub(crate) fn is_token_ids(&self) -> bool {
        self.tokenize.is_some() && is_ids(&self.kind)
    }

    /// Whether the batch has something else than one tensor.
    pub(crate) fn is_no_tensor(&self) -> bool {
        self.is_ragged() || self.tokenize.is_some()
    }

    /// Whether there are any number of values.
    pub(crate) fn is_ragged(&self) -> bool {
        matches!(self.several, Some(Several::Ragged(_)))
    }
}

#[derive(Default)]
struct FieldAttributes {
    columns: Option<Vec<String>>,
    shape: Option<Vec<Expr>>,
    offset: Option<Expr>,
    scale: Option<Expr>,
    std: Option<Expr>,
    normalise: Option<LitStr>,
    missing: Option<Expr>,
    buckets: buckets::BucketAttributes,
    several: Option<Several>,
    ignore: Option<Expr>,
    changes: Vec<PictureChange>,
    tokenize: Option<LitStr>,
    max_length: Option<Expr>,
}

impl FieldAttributes {
    fn read(&mut self, attr: &Attribute) -> Result<()> {
        if matches!(attr.meta, syn::Meta::Path(_)) {
            return Ok(());
        }
        attr.parse_nested_meta(|meta| {
            let key = AttributeKind::Field.key(&meta)?;
            match key.as_str() {
                "column" => {
                    self.columns = Some(vec![meta.value()?.parse::<LitStr>()?.value()]);
                }
                "columns" => self.columns = Some(names(&meta.value()?.parse()?)?),
                "shape" => {
                    let list: ExprArray = meta.value()?.parse()?;
                    self.shape = Some(list.elems.into_iter().collect());
                }
                "offset" | "mean" => self.offset = Some(meta.value()?.parse()?),
                "scale" => self.scale = Some(meta.value()?.parse()?),
                "std" => self.std = Some(meta.value()?.parse()?),
                "normalise" => self.normalise = Some(meta.value()?.parse()?),
                "missing" => self.missing = Some(meta.value()?.parse()?),
                "ignore" => self.ignore = Some(meta.value()?.parse()?),
                "tokenize" => self.tokenize = Some(meta.value()?.parse()?),
                "max_length" => self.max_length = Some(meta.value()?.parse()?),
                "augment" => self.changes = pictures::changes(meta.value()?.parse()?)?,
                _ if self.buckets.read(&key, &meta)? => {}
                _ => match Several::read(&key, &meta)? {
                    Some(several) => self.several = Some(several),
                    None => return Err(AttributeKind::Field.unknown(&meta)),
                },
            }
            Ok(())
        })
    }

    /// How a text becomes tokens, if it is one that does and nothing else.
    fn tokenize(&self, ty: &Type, label: bool, scaled: bool) -> Result<Option<Tokenize>> {
        let wrong = |message: &str| Err(Error::new_spanned(ty, message));
        let Some(file) = self.tokenize.clone() else {
            return match self.max_length {
                Some(_) => wrong("max_length goes with tokenize = \"tokenizer.json\""),
                None => Ok(None),
            };
        };
        if !(is_text(ty) || is_texts(ty) || is_ids(ty)) || label {
            return wrong("tokenize takes a text: make it a String that is an input");
        }
        if is_ids(ty) && self.missing.is_some() {
            return wrong("a text that may be missing is a String");
        }
        if scaled || self.buckets.is_said() || self.several.is_some() {
            return wrong(
                "a text becomes tokens or something else: remove buckets, scale and ragged",
            );
        }
        let max_length = self.max_length.clone().unwrap_or_else(|| syn::parse_quote!(128));
        Ok(Some(Tokenize { file, max_length }))
    }

    /// The stand-in, if it is of the field's type.
    fn missing(&self, ty: &Type) -> Result<Option<Expr>> {
        let text = is_text(ty) || is_texts(ty);
        match &self.missing {
            Some(missing) if text && !is_quoted(missing) => {
                Err(Error::new_spanned(missing, "text is missing: write missing = \"none\""))
            }
            Some(missing) if !text && is_quoted(missing) => {
                Err(Error::new_spanned(missing, "a number is missing: write missing = 0.0"))
            }
            missing => Ok(missing.clone()),
        }
    }

    /// Whether numbers say how.
    fn said_scale(&self) -> bool {
        self.offset.is_some() || self.scale.is_some() || self.std.is_some()
    }

    fn scale(&self, ty: &Type) -> Result<Option<ValueScale>> {
        match (&self.normalise, self.said_scale()) {
            (None, false) => return Ok(None),
            (Some(file), false) => return Ok(Some(ValueScale::Measured(file.clone()))),
            (Some(_), true) => {
                let message = "normalise takes mean and std from its file: remove the numbers";
                return Err(Error::new_spanned(ty, message));
            }
            (None, true) => {}
        }
        let number = |said: &Option<Expr>| said.as_ref().map(|said| quote!(((#said) as f32)));
        let offset = number(&self.offset).unwrap_or_else(|| quote!(0.0));
        let scale = number(&self.scale).unwrap_or_else(|| quote!(1.0));
        let divisor = number(&self.std).map(|std| quote!(/ #std));
        Ok(Some(ValueScale::Said { offset, scale: quote!(#scale #divisor) }))
    }
}

/// Whether a type is that of the ids of a text.
fn is_ids(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| {
        let syn::PathArguments::AngleBracketed(inner) = &last.arguments else { return false };
        let of_i64 = |arg: &syn::GenericArgument| {
            matches!(arg, syn::GenericArgument::Type(ty) if is_named(ty, "i64"))
        };
        last.ident == "Vec" && inner.args.iter().all(of_i64)
    }))
}

/// Whether an expression is text in quotes.
pub(crate) fn is_quoted(said: &Expr) -> bool {
    matches!(said, Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(_), .. }))
}

/// The names of a list in quotes.
pub(crate) fn names(list: &ExprArray) -> Result<Vec<String>> {
    let name = |item: &Expr| match item {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. }) => Ok(name.value()),
        other => Err(Error::new_spanned(other, "write names in quotes: columns = [\"x\", \"y\"]")),
    };
    list.elems.iter().map(name).collect()
}

/// Text is one value of one column.
fn text_shape(ty: &Type, said: Option<Vec<Expr>>, columns: &[String]) -> Result<Vec<Expr>> {
    if said.is_some() || columns.len() != 1 {
        let message = "text is one value of one column: remove shape and columns";
        return Err(Error::new_spanned(ty, message));
    }
    Ok(Vec::new())
}

/// The shape of one record: said, or known from the type.
fn shape(ident: &Ident, kind: &Type, said: Option<Vec<Expr>>, label: bool) -> Result<Vec<Expr>> {
    if let Some(shape) = said {
        return Ok(shape);
    }
    let wrong = |message: String| Err(Error::new(kind.span(), message));
    match kind {
        Type::Array(array) => Ok(vec![array.len.clone()]),
        _ if is_text(kind) && label => wrong(format!(
            "`{ident}` is text: say its classes, #[label(classes = [\"no\", \"yes\"])] or \
             #[label(vocabulary = \"classes.txt\")]"
        )),
        _ if is_text(kind) => wrong(format!(
            "`{ident}` is text: use a number, bool, `[T; N]` or `Vec<T>`, or say #[input(hash = 1000)], \
             #[input(vocabulary = \"words.txt\")] or #[input(tokenize = \"tokenizer.json\")]"
        )),
        _ if is_named(kind, "Vec") => {
            let word = if label { "label" } else { "input" };
            wrong(format!("`{ident}` is a Vec: say its shape, #[{word}(shape = [1, 28, 28])]"))
        }
        _ => Ok(Vec::new()),
    }
}
