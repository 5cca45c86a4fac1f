//! `#[derive(Example)]`: a batch struct beside the example, and the two functions between them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{DeriveInput, Error, Path, Result};

use crate::buckets::{self, Buckets};
use crate::field::{Column, Scale};
use crate::pictures;
use crate::several::{self, Several};

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let fields = crate::named_fields(&input, "Example")?;
    let columns = fields.iter().map(Column::parse).collect::<Result<Vec<_>>>()?;
    if columns.iter().all(|column| column.label) {
        let message = "an example needs at least one input: a field without #[label]";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let batch = batch_struct(&input, &columns);
    let example = example_impl(&input, &columns)?;
    Ok(quote!(#batch #example))
}

fn batch_name(input: &DeriveInput) -> syn::Ident {
    format_ident!("{}Batch", input.ident)
}

fn kind(column: &Column) -> TokenStream {
    let ty = &column.kind;
    match (&column.scale, column.buckets.is_some() || column.several.is_some()) {
        (Some(_), _) => quote!(::salamander::__private::Float),
        (None, true) => quote!(::salamander::__private::Int),
        (None, false) => quote!(<#ty as ::salamander::__private::Column>::Kind),
    }
}

fn batch_struct(input: &DeriveInput, columns: &[Column]) -> TokenStream {
    let (name, vis) = (batch_name(input), &input.vis);
    let about = format!("Several [`{}`]s side by side.", input.ident);
    let fields = columns.iter().map(|column| {
        let (ident, rank, kind) = (&column.ident, column.rank(), kind(column));
        let about = format!("`{ident}` of each record.");
        let tensor = match column.is_ragged() {
            true => quote!(::salamander::__private::Ragged),
            false => quote!(::salamander::__private::Tensor<#rank, #kind>),
        };
        quote!(#[doc = #about] pub #ident: #tensor)
    });
    let casts = columns.iter().map(|column| {
        let (ident, kind) = (&column.ident, kind(column));
        match column.label || column.is_ragged() {
            // Labels keep their digits: a regression target must not be rounded.
            true => quote!(#ident: self.#ident),
            false => quote! {
                #ident: <#kind as ::salamander::__private::Kind>::cast(self.#ident, dtype)
            },
        }
    });
    let records = columns.first().map(|Column { ident, several, .. }| match several {
        Some(Several::Ragged(_)) => quote!(self.#ident.records()),
        _ => quote!(self.#ident.dims()[0]),
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #vis struct #name { #(#fields),* }

        impl ::salamander::__private::Batch for #name {
            fn records(&self) -> usize {
                #records
            }

            fn cast(self, dtype: ::salamander::__private::FloatDType) -> Self {
                Self { #(#casts),* }
            }
        }
    }
}

fn example_impl(input: &DeriveInput, columns: &[Column]) -> Result<TokenStream> {
    let (name, batch) = (&input.ident, batch_name(input));
    let decode = columns.iter().map(decode_field);
    let collate = columns.iter().map(collate_field);
    let changes: Vec<TokenStream> = columns.iter().filter_map(pictures::augment).collect();
    let function = augment(input)?.map(|function| quote!(#function(self, rng)));
    let augment = (function.is_some() || !changes.is_empty()).then(|| {
        quote! {
            fn augment(&mut self, rng: &mut ::salamander::__private::Rng) {
                #(#changes)*
                #function
            }
        }
    });
    let statics =
        columns.iter().filter_map(vocabulary).chain(columns.iter().filter_map(normaliser));
    let assertions = columns.iter().filter_map(|c| c.buckets.as_ref()).map(Buckets::assertion);
    Ok(quote! {
        const _: () = {
        #(#assertions)*
        #(#statics)*

        impl ::salamander::__private::Example for #name {
            type Batch = #batch;

            fn decode(
                row: &::salamander::__private::Row<'_>,
                labels: bool,
            ) -> ::std::result::Result<Self, ::salamander::__private::DecodeError> {
                let _ = labels;
                ::std::result::Result::Ok(Self { #(#decode),* })
            }

            fn collate(
                examples: &[Self],
                device: &::salamander::__private::Device,
            ) -> ::std::result::Result<Self::Batch, ::salamander::__private::DecodeError> {
                ::std::result::Result::Ok(#batch { #(#collate),* })
            }

            #augment
        }
        };
    })
}

/// The vocabulary of a field, shared by decoding and collating.
fn vocabulary(column: &Column) -> Option<TokenStream> {
    let Some(Buckets::Vocabulary { file, oov }) = &column.buckets else { return None };
    let lookup = buckets::held("VOCABULARY", &column.ident);
    Some(quote! {
        static #lookup: ::salamander::__private::Lookup =
            ::salamander::__private::Lookup::new(#file, (#oov) as u64);
    })
}

/// The statistics of a field.
fn normaliser(column: &Column) -> Option<TokenStream> {
    let Some(Scale::Measured(file)) = &column.scale else { return None };
    let (name, columns) = (buckets::held("NORMALISER", &column.ident), &column.columns);
    Some(quote! {
        static #name: ::salamander::__private::Normaliser =
            ::salamander::__private::Normaliser::new(#file, &[#(#columns),*]);
    })
}

fn decode_field(column: &Column) -> TokenStream {
    let Column { ident, columns, shape, .. } = column;
    match column.label {
        true => quote! {
            #ident: ::salamander::__private::label(row, &[#(#columns),*], labels, 1 #(* (#shape))*)?
        },
        false if column.is_text() => decode_text(column),
        false if column.is_texts() => decode_texts(column),
        false if column.several.is_some() => decode_several(column),
        false => match &column.missing {
            Some(missing) => quote! {
                #ident: ::salamander::__private::feature_or(
                    row, &[#(#columns),*], (#missing) as f64, 1 #(* (#shape))*,
                )?
            },
            None => quote!(#ident: ::salamander::__private::feature(row, &[#(#columns),*])?),
        },
    }
}

/// Ids are checked here already, so that the error of a wrong one names its record.
fn decode_several(column: &Column) -> TokenStream {
    let Column { ident, columns, .. } = column;
    let Some(Several::Concatenate(sizes)) = &column.several else {
        return quote!(#ident: ::salamander::__private::ragged_feature(row, &[#(#columns),*])?);
    };
    let name = ident.to_string();
    quote! {
        #ident: {
            let ids = ::salamander::__private::feature(row, &[#(#columns),*])?;
            ::salamander::__private::shifted(#name, &ids, &[#((#sizes) as i64),*])?;
            ids
        }
    }
}

/// Text is looked up here already, so that the error of an unknown word names its record.
fn decode_text(column: &Column) -> TokenStream {
    let Column { ident, columns, .. } = column;
    let missing = match &column.missing {
        Some(missing) => quote!(::std::option::Option::Some(#missing)),
        None if column.is_ragged() => quote!(::std::option::Option::Some("")),
        None => quote!(::std::option::Option::None),
    };
    let text = quote!(::salamander::__private::text(row, &[#(#columns),*], #missing)?);
    if !matches!(column.buckets, Some(Buckets::Vocabulary { .. })) {
        return quote!(#ident: #text);
    }
    let (lookup, name) = (buckets::held("VOCABULARY", ident), ident.to_string());
    let words = match &column.several {
        Some(Several::Ragged(Some(separator))) => {
            let list = several::word_list(separator, column);
            quote!((#list).words(&text))
        }
        _ => quote!([&text]),
    };
    quote! {
        #ident: {
            let text = #text;
            for word in #words {
                #lookup.number(#name, word)?;
            }
            text
        }
    }
}

/// A text of each column; the compiler counts them.
fn decode_texts(column: &Column) -> TokenStream {
    let Column { ident, columns, .. } = column;
    let missing = match &column.missing {
        Some(missing) => quote!(::std::option::Option::Some(#missing)),
        None => quote!(::std::option::Option::None),
    };
    quote!(#ident: ::salamander::__private::texts(row, &[#(#columns),*], #missing)?)
}

fn collate_field(column: &Column) -> TokenStream {
    let Column { ident, shape, kind, .. } = column;
    let values = quote!(examples.iter().map(|example| &example.#ident));
    if !pictures::is_image(kind) {
        let tensor = tensor(column, &values);
        return quote!(#ident: #tensor);
    }
    let tensor = tensor(column, &quote!(fitted.iter().map(|image| &**image)));
    quote! {
        #ident: {
            let fitted = ::salamander::__private::fitted(#values, [#(#shape),*]);
            #tensor
        }
    }
}

/// The tensor of a field, from an iterator over its values.
fn tensor(column: &Column, values: &TokenStream) -> TokenStream {
    let Column { ident, shape, columns, .. } = column;
    let (private, name) = (quote!(::salamander::__private), ident.to_string());
    let shape = quote!([examples.len() #(, #shape)*]);
    let target = quote!(#private::Target { name: #name, shape: #shape, device });
    if let Some(several) = &column.several {
        return several.collate(column, values, &target);
    }
    if let Some(buckets) = &column.buckets {
        let bucket = buckets.function(ident, column.is_text());
        return match buckets {
            _ if column.is_text() => {
                quote!(#private::bucket_texts(#name, #values, #bucket, device)?)
            }
            Buckets::Hash(buckets) if column.is_texts() => quote! {
                #private::hashed_columns(
                    #name, #values, &[#(#columns),*], (#buckets) as u64, device,
                )?
            },
            Buckets::Hash(_) => {
                quote!(#private::bucketed(#target, #values, #private::Column::ints, #bucket)?)
            }
            _ => quote!(#private::bucketed(#target, #values, #private::Column::floats, #bucket)?),
        };
    }
    match &column.scale {
        Some(Scale::Measured(_)) => {
            let normaliser = buckets::held("NORMALISER", ident);
            quote!(#private::normalised_tensor(#target, #values, &#normaliser)?)
        }
        Some(Scale::Said { offset, scale }) => {
            let scale = quote!(#private::Scale { offset: #offset, scale: #scale });
            quote!(#private::float_tensor(#target, #values, #scale)?)
        }
        None => {
            let kind = kind(column);
            quote!(<#kind as #private::Kind>::tensor(#target, #values)?)
        }
    }
}

fn augment(input: &DeriveInput) -> Result<Option<Path>> {
    let mut function = None;
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("example")) {
        attr.parse_nested_meta(|meta| match meta.path.is_ident("augment") {
            true => {
                function = Some(meta.value()?.parse()?);
                Ok(())
            }
            false => Err(meta.error("unknown key: write #[example(augment = function)]")),
        })?;
    }
    Ok(function)
}
