//! `#[derive(Hparams)]`: one `take` per field, with its default and range.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Expr, ExprLit, ExprUnary, Field, Lit, LitStr, Result, Type};

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
    min: TokenStream,
    max: TokenStream,
}

impl Hparam {
    fn parse(field: &Field) -> Result<Self> {
        let ident = field.ident.clone().expect("fields are named");
        let none = quote!(::std::option::Option::None);
        let mut parsed = Self {
            name: ident.to_string(),
            ident,
            kind: field.ty.clone(),
            default: None,
            min: none.clone(),
            max: none,
        };
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("hparam")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    parsed.name = meta.value()?.parse::<LitStr>()?.value();
                } else if meta.path.is_ident("default") {
                    let value: Expr = meta.value()?.parse()?;
                    parsed.default = Some(default(&field.ty, &value));
                } else if meta.path.is_ident("min") {
                    let value: Expr = meta.value()?.parse()?;
                    parsed.min = quote!(::std::option::Option::Some((#value) as f64));
                } else if meta.path.is_ident("max") {
                    let value: Expr = meta.value()?.parse()?;
                    parsed.max = quote!(::std::option::Option::Some((#value) as f64));
                } else {
                    return Err(meta.error(
                        "unknown key: write #[hparam(default = .., min = .., max = .., name = ..)]",
                    ));
                }
                Ok(())
            })?;
        }
        Ok(parsed)
    }

    fn describe(&self) -> TokenStream {
        let Self { name, kind, min, max, .. } = self;
        let shown = quote!(#kind).to_string().replace(' ', "");
        let default = match &self.default {
            Some(value) => quote! {{
                let value: #kind = #value;
                ::std::option::Option::Some(
                    ::salamander::__private::HparamValue::to_json(&value).to_string(),
                )
            }},
            None => quote!(::std::option::Option::None),
        };
        quote! {
            ::salamander::__private::HparamInfo {
                name: #name,
                kind: #shown,
                default: #default,
                range: (#min, #max),
            }
        }
    }

    fn read(&self) -> TokenStream {
        let Self { ident, name, kind, min, max, .. } = self;
        let default = match &self.default {
            Some(value) => quote!(::std::option::Option::Some(#value)),
            None => quote!(::std::option::Option::None),
        };
        quote!(#ident: fields.take::<#kind>(#name, #default, (#min, #max))?)
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

/// Lets people write `default = "relu"` for a String and `default = 1` for a float.
fn default(kind: &Type, value: &Expr) -> TokenStream {
    let literal = match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        Expr::Unary(ExprUnary { expr, .. }) => match expr.as_ref() {
            Expr::Lit(ExprLit { lit, .. }) => Some(lit),
            _ => None,
        },
        _ => None,
    };
    let kind_name = quote!(#kind).to_string();
    match literal {
        Some(Lit::Str(_)) => quote!((#value).to_string()),
        Some(Lit::Int(_)) if kind_name == "f64" || kind_name == "f32" => quote!((#value) as #kind),
        _ => quote!(#value),
    }
}
