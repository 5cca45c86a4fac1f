//! Inputs that become buckets: `discretise`, `log_round`, `round`, `hash`, `vocabulary` and `classes`; the last two are
//! for labels too.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::{Error, Expr, ExprArray, Ident, LitStr, Result, Type};

use crate::is_named;

/// How a value becomes the number of its bucket.
pub(crate) enum Buckets {
    Discretise(Vec<Expr>),
    LogRound(Expr),
    Round(Expr),
    Hash(Expr),
    Vocabulary { file: LitStr, oov: Expr },
    Classes(Vec<LitStr>),
}

/// What the attributes say about buckets, before it is known to fit together.
#[derive(Default)]
pub(crate) struct BucketAttributes {
    ways: Vec<Buckets>,
    oov: Option<Expr>,
}

impl BucketAttributes {
    /// Reads a key, if it is one of these.
    pub(crate) fn read(&mut self, key: &str, meta: &ParseNestedMeta<'_>) -> Result<bool> {
        let way = match key {
            "discretise" => {
                let list: ExprArray = meta.value()?.parse()?;
                Buckets::Discretise(list.elems.into_iter().collect())
            }
            "log_round" => Buckets::LogRound(meta.value()?.parse()?),
            "round" => Buckets::Round(meta.value()?.parse()?),
            "hash" => Buckets::Hash(meta.value()?.parse()?),
            "vocabulary" => {
                Buckets::Vocabulary { file: meta.value()?.parse()?, oov: syn::parse_quote!(0) }
            }
            "classes" => Buckets::Classes(classes(meta.value()?.parse()?)?),
            "oov" => {
                self.oov = Some(meta.value()?.parse()?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.ways.push(way);
        Ok(true)
    }

    /// Whether there is one.
    pub(crate) fn is_said(&self) -> bool {
        !self.ways.is_empty()
    }

    /// Whether words out of a vocabulary have numbers.
    pub(crate) fn has_oov(&self) -> bool {
        self.oov.is_some()
    }

    /// The one way there is, if it suits the field's type.
    pub(crate) fn check(mut self, ident: &Ident, ty: &Type) -> Result<Option<Buckets>> {
        let wrong = |message: String| Err(Error::new_spanned(ty, message));
        if self.ways.len() > 1 {
            return wrong(format!(
                "`{ident}` has two ways to its bucket: keep one of discretise, log_round, round, hash, \
                 vocabulary and classes"
            ));
        }
        let mut way = self.ways.pop();
        match (&mut way, self.oov) {
            (Some(Buckets::Vocabulary { oov, .. }), Some(said)) => *oov = said,
            (_, Some(_)) => {
                return wrong("oov goes with a vocabulary: add vocabulary = \"words.txt\"".into());
            }
            (_, None) => {}
        }
        match &way {
            Some(Buckets::Discretise(_) | Buckets::LogRound(_) | Buckets::Round(_))
                if is_text(ty) || is_texts(ty) =>
            {
                wrong(format!(
                    "`{ident}` is text: write hash = 1000 or vocabulary = \"words.txt\" instead"
                ))
            }
            Some(Buckets::Hash(_)) if holds(ty, "f32") || holds(ty, "f64") => wrong(format!(
                "`{ident}` is not whole: hash takes text or integers; write discretise = [..], \
                 log_round = 10.0 or round = 100 instead"
            )),
            Some(Buckets::Vocabulary { .. }) if !is_text(ty) => {
                wrong(format!("a vocabulary looks text up: make `{ident}` a String"))
            }
            Some(Buckets::Classes(_)) if !is_text(ty) => {
                wrong(format!("classes are text: make `{ident}` a String"))
            }
            _ => Ok(way),
        }
    }
}

impl Buckets {
    /// What must hold of the numbers given, checked while the user's code compiles.
    pub(crate) fn assertion(&self) -> TokenStream {
        match self {
            Self::Discretise(boundaries) => quote! {
                const _: () = ::std::assert!(
                    ::salamander::__private::ascending(&[#((#boundaries) as f32),*]),
                    "discretise: write the boundaries in ascending order",
                );
            },
            Self::LogRound(base) => quote! {
                const _: () =
                    ::std::assert!((#base) as f32 > 1.0, "log_round: write a base above 1");
            },
            Self::Round(max) => quote! {
                const _: () = ::std::assert!((#max) as i64 >= 0, "round: write a maximum from 0 on");
            },
            Self::Hash(buckets) => quote! {
                const _: () = ::std::assert!((#buckets) as i64 > 0, "hash: write at least one bucket");
            },
            Self::Vocabulary { .. } | Self::Classes(_) => TokenStream::new(),
        }
    }

    /// The function from a value to its bucket; `text` says what the value is.
    pub(crate) fn function(&self, ident: &Ident, text: bool) -> TokenStream {
        let private = quote!(::salamander::__private);
        match self {
            Self::Discretise(boundaries) => {
                quote!(|value| #private::discretise(value, &[#((#boundaries) as f32),*]))
            }
            Self::LogRound(base) => quote!(|value| #private::log_round(value, (#base) as f32)),
            Self::Round(max) => quote!(|value| #private::round_identity(value, (#max) as i64)),
            Self::Hash(buckets) if text => quote! {
                |word| ::std::result::Result::Ok(#private::hash(word, (#buckets) as u64))
            },
            Self::Hash(buckets) => quote!(|value| #private::hash_int(value, (#buckets) as u64)),
            Self::Vocabulary { .. } => {
                let (name, asset) = (ident.to_string(), asset_name(ident));
                quote!(|word: &str| cx.assets.number(#asset, #name, word))
            }
            Self::Classes(classes) => {
                let name = ident.to_string();
                quote!(|word: &str| #private::class_number(#name, &[#(#classes),*], word))
            }
        }
    }
}

/// The name of the constant with the number of a field's vocabulary or statistics.
pub(crate) fn asset_name(ident: &Ident) -> Ident {
    let name = ident.to_string().trim_start_matches("r#").to_uppercase();
    format_ident!("ASSET_{name}")
}

fn classes(list: ExprArray) -> Result<Vec<LitStr>> {
    let wrong = |item| Err(Error::new_spanned(item, "write classes = [\"no\", \"yes\"]"));
    let mut found: Vec<LitStr> = Vec::new();
    for item in list.elems {
        let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(class), .. }) = item else {
            return wrong(item);
        };
        if found.iter().any(|other| other.value() == class.value()) {
            return Err(Error::new_spanned(
                class,
                "this class is there already: remove one of them",
            ));
        }
        found.push(class);
    }
    Ok(found)
}

pub(crate) fn is_text(ty: &Type) -> bool {
    is_named(ty, "String")
}

/// Whether a type is a list of texts, one for each of several columns.
pub(crate) fn is_texts(ty: &Type) -> bool {
    matches!(ty, Type::Array(array) if is_text(&array.elem))
}

/// Whether a type is this one, or a list of it.
fn holds(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Array(array) => holds(&array.elem, name),
        Type::Path(path) => {
            let item = path.path.segments.last().and_then(|segment| match &segment.arguments {
                syn::PathArguments::AngleBracketed(list) => list.args.first(),
                _ => None,
            });
            match item {
                Some(syn::GenericArgument::Type(item)) => holds(item, name),
                _ => is_named(ty, name),
            }
        }
        _ => false,
    }
}
