//! `#[derive(Hparams)]`: one `take` per field, with its default and range.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    DeriveInput, Error, Expr, ExprArray, ExprLit, ExprRange, ExprUnary, Field, Lit, LitStr,
    RangeLimits, Result, Type,
};

use crate::keys::AttributeKind;
use crate::{is_named, option};

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let fields = crate::named_fields(&input, "Hparams")?;
    let fields = fields.iter().map(Hparam::parse).collect::<Result<Vec<_>>>()?;
    let (describe, read, json): (Vec<_>, Vec<_>, Vec<_>) =
        fields.iter().map(|field| (field.describe(), field.read(), field.json())).collect();
    Ok(quote! {
        impl ::salamander::__private::Hparams for #name {
            fn describe() -> ::std::vec::Vec<::salamander::__private::HparamInfo> {
                ::std::vec![#(#describe),*]
            }

            fn read(
                fields: &::salamander::__private::Fields<'_>,
            ) -> ::std::result::Result<Self, ::salamander::__private::YamlError> {
                ::std::result::Result::Ok(Self { #(#read),* })
            }

            fn to_json(&self) -> ::salamander::__private::Json {
                let mut map = ::salamander::__private::JsonMap::new();
                #(#json)*
                ::salamander::__private::Json::Object(map)
            }
        }
    })
}

struct Hparam {
    ident: syn::Ident,
    kind: Type,
    name: String,
    default: Option<TokenStream>,
    /// The least and the greatest value that are allowed.
    range: TokenStream,
    /// What a search draws it from, if that is said.
    search: Option<TokenStream>,
}

impl Hparam {
    fn parse(field: &Field) -> Result<Self> {
        let ident = field.ident.clone().expect("fields are named");
        let mut name = ident.to_string();
        let (mut default, mut min, mut max) = (None, None, None);
        let (mut search, mut log) = (None, None);
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("hparam")) {
            attr.parse_nested_meta(|meta| {
                let key = AttributeKind::Hparam.key(&meta)?;
                match key.as_str() {
                    "name" => name = meta.value()?.parse::<LitStr>()?.value(),
                    "default" => default = Some(typed(&field.ty, &meta.value()?.parse()?)),
                    "min" => min = Some(bound(meta.value()?.parse()?)),
                    "max" => max = Some(bound(meta.value()?.parse()?)),
                    "log" => log = Some(meta.path.clone()),
                    "range" | "choices" if search.is_some() => {
                        return Err(meta.error("a field has one range or one list of choices"));
                    }
                    "range" => {
                        search = Some(SearchedField::range(&field.ty, meta.value()?.parse()?)?)
                    }
                    "choices" => search = Some(SearchedField::Choices(meta.value()?.parse()?)),
                    _ => return Err(AttributeKind::Hparam.unknown(&meta)),
                }
                Ok(())
            })?;
        }
        let (min, max) = (option(min), option(max));
        let search = match (search, log) {
            (Some(SearchedField::Choices(_)) | None, Some(log)) => {
                return Err(Error::new_spanned(log, "log goes with a range"));
            }
            (search, log) => search.map(|search| search.tokens(&field.ty, log.is_some())),
        };
        let range = quote!(::salamander::__private::AllowedRange { min: #min, max: #max });
        let kind = field.ty.clone();
        Ok(Self { ident, kind, name, default, range, search })
    }

    fn describe(&self) -> TokenStream {
        let Self { name, kind, range, .. } = self;
        let search = option(self.search.clone());
        let shown = quote!(#kind).to_string().replace(' ', "");
        let default = option(self.default.as_ref().map(|value| {
            quote! {{
                let value: #kind = #value;
                ::salamander::__private::HparamValue::to_json(&value).to_string()
            }}
        }));
        quote! {
            ::salamander::__private::HparamInfo {
                name: #name,
                kind: #shown,
                default: #default,
                range: #range,
                search: #search,
            }
        }
    }

    fn read(&self) -> TokenStream {
        let Self { ident, name, kind, range, default, .. } = self;
        let default = option(default.clone());
        quote!(#ident: fields.take::<#kind>(#name, #default, #range)?)
    }

    fn json(&self) -> TokenStream {
        let Self { ident, name, .. } = self;
        quote! {
            map.insert(
                #name.to_string(),
                ::salamander::__private::HparamValue::to_json(&self.#ident),
            );
        }
    }
}

/// What a search draws a field from.
enum SearchedField {
    Range(Box<Expr>, Box<Expr>),
    Choices(ExprArray),
}

impl SearchedField {
    fn range(kind: &Type, value: Expr) -> Result<Self> {
        if is_named(kind, "String") || is_named(kind, "bool") || is_named(kind, "Vec") {
            let message = "only a number has a range: write choices = [..]";
            return Err(Error::new_spanned(value, message));
        }
        match value {
            Expr::Range(ExprRange {
                start: Some(low),
                limits: RangeLimits::Closed(_),
                end: Some(high),
                ..
            }) => Ok(Self::Range(low, high)),
            other => Err(Error::new_spanned(other, "write both ends, as in range = 0.1..=1.0")),
        }
    }

    fn tokens(&self, kind: &Type, log: bool) -> TokenStream {
        let range = quote!(::salamander::__private::SearchRange);
        match self {
            Self::Range(low, high) => {
                let (low, high) = (bound((**low).clone()), bound((**high).clone()));
                quote!(#range::Between { low: #low, high: #high, log: #log })
            }
            Self::Choices(values) => {
                let values = values.elems.iter().map(|value| {
                    let value = typed(kind, value);
                    quote! {{
                        let value: #kind = #value;
                        ::salamander::__private::HparamValue::to_json(&value)
                    }}
                });
                quote!(#range::Choices(::std::vec![#(#values),*]))
            }
        }
    }
}

fn bound(value: Expr) -> TokenStream {
    quote!((#value) as f64)
}

/// Lets people write `default = "relu"` for a String and `default = 1` for a float.
fn typed(kind: &Type, value: &Expr) -> TokenStream {
    let unsigned = match value {
        Expr::Unary(ExprUnary { expr, .. }) => expr,
        other => other,
    };
    let is_float = is_named(kind, "f64") || is_named(kind, "f32");
    match unsigned {
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => quote!((#value).to_string()),
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) if is_float => quote!((#value) as #kind),
        _ => quote!(#value),
    }
}
