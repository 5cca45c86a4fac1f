//! `#[derive(Example)]`: a batch struct beside the example, and the two functions between them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    DeriveInput, Error, ExprArray, GenericArgument, Ident, Path, PathArguments, Result, Type,
};

use crate::buckets::{self, Buckets};
use crate::field::{Column, Tokenize, ValueScale};
use crate::keys::AttributeKind;
use crate::pictures;
use crate::several::{self, Several};
use crate::{is_named, option};

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let fields = crate::named_fields(&input, "Example")?;
    let columns = fields.iter().map(Column::parse).collect::<Result<Vec<_>>>()?;
    if columns.iter().all(|column| column.label) {
        let message = "an example needs at least one input: a field without #[label]";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let options = StructOptions::read(&input)?;
    if !options.unlabelled && !columns.iter().any(|column| column.label) {
        let name = &input.ident;
        let message = format!(
            "`{name}` has no #[label]: put it on the field that the loss compares with, or say \
             #[example(unlabelled)] where there is none"
        );
        return Err(Error::new_spanned(name, message));
    }
    let name = format_ident!("{}Batch", input.ident);
    let batch = batch_struct(&input, &name, &columns);
    let example = example_impl(&input, &name, &columns, options);
    Ok(quote!(#batch #example))
}

fn kind(column: &Column) -> TokenStream {
    let ty = &column.kind;
    match (&column.scale, column.buckets.is_some() || column.several.is_some()) {
        (Some(_), _) => quote!(::salamander::__private::Float),
        (None, true) => quote!(::salamander::__private::Int),
        (None, false) => quote!(<#ty as ::salamander::__private::Column>::Kind),
    }
}

fn batch_struct(input: &DeriveInput, name: &Ident, columns: &[Column]) -> TokenStream {
    let vis = &input.vis;
    let about = format!("Several [`{}`]s side by side.", input.ident);
    let fields = columns.iter().map(|column| {
        let (ident, rank, kind) = (&column.ident, column.shape.len() + 1, kind(column));
        let about = format!("`{ident}` of each record.");
        let tensor = match column.is_ragged() {
            _ if column.tokenize.is_some() => quote!(::salamander::__private::Tokens),
            true => quote!(::salamander::__private::Ragged),
            false => quote!(::salamander::__private::Tensor<#rank, #kind>),
        };
        quote!(#[doc = #about] pub #ident: #tensor)
    });
    let casts = columns.iter().map(|column| {
        let (ident, kind) = (&column.ident, kind(column));
        match column.label || column.is_no_tensor() {
            // Labels keep their digits: a regression target must not be rounded.
            true => quote!(#ident: self.#ident),
            false => quote! {
                #ident: <#kind as ::salamander::__private::Kind>::cast(self.#ident, dtype)
            },
        }
    });
    let records = columns.first().map(|column| {
        let ident = &column.ident;
        match column.is_no_tensor() {
            true => quote!(self.#ident.records()),
            false => quote!(self.#ident.dims()[0]),
        }
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

fn example_impl(
    input: &DeriveInput,
    batch: &Ident,
    columns: &[Column],
    options: StructOptions,
) -> TokenStream {
    let function = options.augment;
    let name = &input.ident;
    let idents: Vec<_> = columns.iter().map(|column| &column.ident).collect();
    let (decode, collate) = (columns.iter().map(decode), columns.iter().map(collate));
    let changes: Vec<TokenStream> = columns.iter().filter_map(pictures::augment).collect();
    let function = function.map(|function| quote!(#function(self, rng)));
    let augment = (function.is_some() || !changes.is_empty()).then(|| {
        quote! {
            fn augment(&mut self, rng: &mut ::salamander::__private::Rng) {
                #(#changes)*
                #function
            }
        }
    });
    let (numbers, mut assets) = assets(columns);
    assets.extend(options.files);
    let inputs = columns.iter().filter(|column| !column.label).map(input_spec);
    let class_names = columns.iter().find_map(class_names);
    let (packed, tokens) = (packed(columns), tokens(columns));
    let assertions = columns.iter().filter_map(|c| c.buckets.as_ref()).map(Buckets::assertion);
    quote! {
        const _: () = {
        #(#assertions)*
        #(#numbers)*

        impl ::salamander::__private::Example for #name {
            type Batch = #batch;
            const ASSETS: &'static [::salamander::__private::AssetSpec] = &[#(#assets),*];
            const INPUTS: &'static [::salamander::__private::InputSpec] = &[#(#inputs),*];

            fn decode(
                row: &::salamander::__private::Row<'_>,
                cx: &::salamander::__private::ExampleContext,
            ) -> ::std::result::Result<Self, ::salamander::__private::DecodeError> {
                let _ = cx;
                ::std::result::Result::Ok(Self { #(#idents: #decode),* })
            }

            fn collate(
                examples: &[Self],
                cx: &::salamander::__private::ExampleContext,
                device: &::salamander::__private::Device,
            ) -> ::std::result::Result<Self::Batch, ::salamander::__private::DecodeError> {
                let _ = cx;
                ::std::result::Result::Ok(#batch { #(#idents: #collate),* })
            }

            #class_names

            #packed

            #tokens

            #augment
        }
        };
    }
}

/// How many tokens an example has, if it has texts that become such. A text that is kept as it is has about one for
/// four letters, and two around it.
fn tokens(columns: &[Column]) -> Option<TokenStream> {
    let of = |column: &Column| {
        let ident = &column.ident;
        match (column.is_token_ids(), column.is_texts()) {
            (true, _) => quote!(self.#ident.len()),
            (_, true) => quote!(self.#ident.iter().map(|text| 2 + text.len() / 4).sum::<usize>()),
            _ => quote!(2 + self.#ident.len() / 4),
        }
    };
    let all: Vec<_> = columns.iter().filter(|column| column.tokenize.is_some()).map(of).collect();
    (!all.is_empty()).then(|| {
        quote! {
            fn tokens(&self) -> usize {
                0 #(+ #all)*
            }
        }
    })
}

/// How examples are kept as bytes, if all fields are of types that can be.
fn packed(columns: &[Column]) -> Option<TokenStream> {
    if !columns.iter().all(|column| is_packed(&column.kind)) {
        return None;
    }
    let private = quote!(::salamander::__private);
    let idents: Vec<_> = columns.iter().map(|column| &column.ident).collect();
    Some(quote! {
        const PACKED: bool = true;

        fn pack(&self, out: &mut ::std::vec::Vec<u8>) {
            #(#private::Packed::pack(&self.#idents, out);)*
        }

        fn unpack(bytes: &mut &[u8]) -> ::std::option::Option<Self> {
            ::std::option::Option::Some(Self { #(#idents: #private::Packed::unpack(bytes)?),* })
        }
    })
}

/// Numbers, text, and lists of them; other types may have more to them than their values.
fn is_packed(ty: &Type) -> bool {
    const PLAIN: [&str; 12] =
        ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "bool", "String"];
    match ty {
        Type::Array(array) => is_packed(&array.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| match &last.arguments {
            PathArguments::None => PLAIN.iter().any(|name| last.ident == name),
            PathArguments::AngleBracketed(inner) => {
                let all = inner.args.iter();
                last.ident == "Vec"
                    && all
                        .into_iter()
                        .all(|arg| matches!(arg, GenericArgument::Type(ty) if is_packed(ty)))
            }
            PathArguments::Parenthesized(_) => false,
        }),
        _ => false,
    }
}

/// The files that fields are read with, and a constant for each with its number among them.
fn assets(columns: &[Column]) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let found = columns.iter().filter_map(|column| Some((column, asset(column)?)));
    let with_number = |(number, (column, asset)): (usize, (&Column, TokenStream))| {
        let name = buckets::asset_name(&column.ident);
        (quote!(const #name: usize = #number;), asset)
    };
    found.enumerate().map(with_number).unzip()
}

fn asset(column: &Column) -> Option<TokenStream> {
    let (private, columns) = (quote!(::salamander::__private), &column.columns);
    let (file, kind) = match (&column.tokenize, &column.buckets, &column.scale) {
        (Some(Tokenize { file, max_length }), ..) => {
            (file, quote!(#private::AssetKind::Tokenizer { max_length: (#max_length) as usize }))
        }
        (_, Some(Buckets::Vocabulary { file, .. }), _) if column.label => {
            (file, quote!(#private::AssetKind::Classes))
        }
        (_, Some(Buckets::Vocabulary { file, oov }), _) => {
            let list = option(match &column.several {
                Some(Several::Ragged(Some(separator))) => {
                    Some(several::word_list(separator, column))
                }
                _ => None,
            });
            let missing = option(column.missing.as_ref().map(|missing| quote!(#missing)));
            let oov = quote!((#oov) as u64);
            let kind = quote! {
                #private::AssetKind::Vocabulary { oov: #oov, list: #list, missing: #missing }
            };
            (file, kind)
        }
        (.., Some(ValueScale::Measured(file))) => (file, quote!(#private::AssetKind::Statistics)),
        _ => return None,
    };
    let field = column.ident.to_string();
    Some(quote! {
        #private::AssetSpec { file: #file, field: #field, columns: &[#(#columns),*], kind: #kind }
    })
}

/// What is told of an input to those who ask a trained model.
fn input_spec(column: &Column) -> TokenStream {
    let (private, columns) = (quote!(::salamander::__private), &column.columns);
    let Column { ident, kind, shape, missing, .. } = column;
    let (field, ragged, optional) = (ident.to_string(), column.is_ragged(), missing.is_some());
    let is_text = column.is_text() || column.is_texts() || column.is_token_ids();
    let datatype = match is_text || is_named(kind, "Image") {
        true => quote!("BYTES"),
        false => quote! {
            <<#kind as #private::Column>::Item as #private::Number>::DATATYPE
        },
    };
    quote! {
        #private::InputSpec {
            field: #field,
            columns: &[#(#columns),*],
            datatype: #datatype,
            shape: &[#(#shape),*],
            ragged: #ragged,
            optional: #optional,
        }
    }
}

/// The names of a label's classes, if it is text.
fn class_names(column: &Column) -> Option<TokenStream> {
    let private = quote!(::salamander::__private);
    let names = match &column.buckets {
        Some(Buckets::Classes(classes)) if column.label => {
            quote!([#(#classes),*].map(::std::string::String::from).into())
        }
        Some(Buckets::Vocabulary { .. }) if column.label => {
            let asset = buckets::asset_name(&column.ident);
            quote!(assets.words(#asset))
        }
        _ => return None,
    };
    Some(quote! {
        fn class_names(assets: &#private::Assets) -> ::std::vec::Vec<::std::string::String> {
            let _ = assets;
            #names
        }
    })
}

/// The value of a field, from a row.
fn decode(column: &Column) -> TokenStream {
    let (private, columns, shape) =
        (quote!(::salamander::__private), &column.columns, &column.shape);
    let len = quote!(1 #(* (#shape))*);
    match (&column.missing, &column.several) {
        _ if column.is_token_ids() => {
            let (asset, name) = (buckets::asset_name(&column.ident), column.ident.to_string());
            quote!(cx.assets.token_ids(#asset, #name, row, &[#(#columns),*])?)
        }
        _ if column.label && column.is_text() => decode_class(column),
        _ if column.label => quote!(#private::label(row, &[#(#columns),*], cx.labels, #len)?),
        _ if column.is_text() || column.is_texts() => decode_text(column),
        (_, Some(Several::Ragged(_))) => quote!(#private::ragged_feature(row, &[#(#columns),*])?),
        // Ids are checked here already, so that the error of a wrong one names its record.
        (_, Some(Several::Concatenate(sizes))) => {
            let name = column.ident.to_string();
            quote! {{
                let ids = #private::Column::read(row, &[#(#columns),*])?;
                #private::shifted(#name, &ids, &[#((#sizes) as i64),*])?;
                ids
            }}
        }
        (Some(missing), None) => {
            quote!(#private::feature_or(row, &[#(#columns),*], (#missing) as f64, #len)?)
        }
        (None, None) => quote!(#private::Column::read(row, &[#(#columns),*])?),
    }
}

/// Text is looked up here already, so that the error of an unknown word names its record.
fn decode_text(column: &Column) -> TokenStream {
    let Column { ident, columns, missing, .. } = column;
    let empty = column.is_ragged().then(|| quote!(""));
    let missing = option(missing.as_ref().map(|missing| quote!(#missing)).or(empty));
    if column.is_texts() {
        // The compiler counts the columns.
        return quote!(::salamander::__private::texts(row, &[#(#columns),*], #missing)?);
    }
    let text = quote!(::salamander::__private::text(row, &[#(#columns),*], #missing)?);
    let number = match &column.buckets {
        Some(named @ (Buckets::Vocabulary { .. } | Buckets::Classes(_))) => {
            named.function(ident, true)
        }
        _ => return text,
    };
    let words = match &column.several {
        Some(Several::Ragged(Some(separator))) => {
            let list = several::word_list(separator, column);
            quote!((#list).words(&text))
        }
        _ => quote!([&text]),
    };
    quote! {{
        let text = #text;
        let number = #number;
        for word in #words {
            number(word)?;
        }
        text
    }}
}

/// A label's class is looked up here already, where labels are asked for.
fn decode_class(column: &Column) -> TokenStream {
    let Column { ident, columns, .. } = column;
    let number = column.buckets.as_ref().map(|buckets| buckets.function(ident, true));
    quote! {{
        let text = ::salamander::__private::label_text(row, &[#(#columns),*], cx.labels)?;
        if cx.labels {
            (#number)(&text)?;
        }
        text
    }}
}

/// The tensor of a field, from examples.
fn collate(column: &Column) -> TokenStream {
    let Column { ident, shape, kind, .. } = column;
    let values = quote!(examples.iter().map(|example| &example.#ident));
    if !is_named(kind, "Image") {
        return tensor(column, &values);
    }
    let tensor = tensor(column, &quote!(fitted.iter().map(|image| &**image)));
    quote! {{
        let fitted = ::salamander::__private::fitted(#values, [#(#shape),*]);
        #tensor
    }}
}

/// The tensor of a field, from an iterator over its values.
fn tensor(column: &Column, values: &TokenStream) -> TokenStream {
    let Column { ident, shape, columns, .. } = column;
    let (private, name) = (quote!(::salamander::__private), ident.to_string());
    let shape = quote!([examples.len() #(, #shape)*]);
    let target = quote!(#private::Target { name: #name, shape: #shape, device });
    if column.tokenize.is_some() {
        let asset = buckets::asset_name(ident);
        return match (column.is_token_ids(), column.is_texts()) {
            (true, _) => {
                let ids = quote!((#values).map(::std::vec::Vec::as_slice));
                quote!(#private::Tokens::of(#name, #ids, device)?)
            }
            (false, true) => quote!(cx.assets.token_pairs(#asset, #name, #values, device)?),
            (false, false) => quote!(cx.assets.tokens(#asset, #name, #values, device)?),
        };
    }
    if let Some(several) = &column.several {
        return several.collate(column, values, &target);
    }
    if let Some(buckets) = &column.buckets {
        let bucket = buckets.function(ident, column.is_text());
        return match buckets {
            _ if column.label => {
                quote!(#private::label_texts(#name, #values, cx.labels, #bucket, device)?)
            }
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
        Some(ValueScale::Measured(_)) => {
            let asset = buckets::asset_name(ident);
            let statistics = quote!(cx.assets.statistics(#asset, #name)?);
            quote!(#private::normalised_tensor(#target, #values, #statistics)?)
        }
        Some(ValueScale::Said { offset, scale }) => {
            let scale = quote!(#private::Scale { offset: #offset, scale: #scale });
            quote!(#private::float_tensor(#target, #values, #scale)?)
        }
        None => {
            let kind = kind(column);
            quote!(<#kind as #private::Kind>::tensor(#target, #values)?)
        }
    }
}

/// Specs of files that the model is built from.
fn files(list: ExprArray, optional: bool) -> Result<Vec<TokenStream>> {
    let private = quote!(::salamander::__private);
    let names = crate::field::names(&list)?;
    let spec = |file: String| {
        quote! {
            #private::AssetSpec {
                file: #file,
                field: "",
                columns: &[],
                kind: #private::AssetKind::File { optional: #optional },
            }
        }
    };
    Ok(names.into_iter().map(spec).collect())
}

/// What the struct itself says.
#[derive(Default)]
struct StructOptions {
    augment: Option<Path>,
    /// The specs of files that the model is built from.
    files: Vec<TokenStream>,
    unlabelled: bool,
}

impl StructOptions {
    fn read(input: &DeriveInput) -> Result<Self> {
        let mut options = Self::default();
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("example")) {
            attr.parse_nested_meta(|meta| {
                match AttributeKind::Example.key(&meta)?.as_str() {
                    "augment" => options.augment = Some(meta.value()?.parse()?),
                    "files" => options.files.extend(files(meta.value()?.parse()?, false)?),
                    "optional_files" => options.files.extend(files(meta.value()?.parse()?, true)?),
                    "unlabelled" => options.unlabelled = true,
                    _ => return Err(AttributeKind::Example.unknown(&meta)),
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}
