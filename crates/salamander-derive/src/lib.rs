//! Derive macros of Salamander: hyperparameters and examples, checked by the compiler.
//!
//! # Layout
//! - `hparams`: `#[derive(Hparams)]`
//! - `example`: `#[derive(Example)]`; `field`: the attributes of its fields, of which
//!   `buckets` has those that make integers and `several` those of several ids
//!
//! They are tested from the crate `salamander`, where their users are.

mod buckets;
mod example;
mod field;
mod hparams;
mod several;

use proc_macro::TokenStream;

/// Reads a struct of hyperparameters from an experiment file.
///
/// Every field may say `#[hparam(default = 0.1, min = 0.0, max = 1.0, name = "lr")]`.
#[proc_macro_derive(Hparams, attributes(hparam))]
pub fn derive_hparams(input: TokenStream) -> TokenStream {
    expand(input, hparams::expand)
}

/// Decodes a record and collates a batch.
///
/// Fields are inputs unless they say `#[label]`. Both may say `column = "x"` or
/// `columns = ["x", "y"]` (the field's name by default) and `shape = [1, 28, 28]` (needed for a
/// `Vec`), written as `#[input(..)]`; inputs also `scale`, `offset`, `mean` and `std`, or `normalise = "stats.json"`
/// to take each column's mean and deviation from what `salamander data inspect DATA --stats --json > stats.json`
/// wrote. The struct may say `#[example(augment = function)]` to be changed before training on it.
///
/// An input becomes the integer of its bucket with one of `discretise = [18.0, 25.0]`, `log_round = 10.0` and
/// `round = 100` (numbers), `hash = 1000` (a `String` or integers) and `vocabulary = "words.txt", oov = 1` (a
/// `String`; the file has one word per line and is looked for in the current folder). `missing = 0.0`, or
/// `missing = "none"` for a `String`, is the value of a column that is absent or empty.
///
/// `ragged` is for any number of ids per record: `#[input(ragged)] tags: Vec<i64>`, or text cut at a separator,
/// `#[input(ragged = "|", hash = 1000)] genres: String`; the batch has a `Ragged` of all ids and their records.
/// `#[input(columns = ["day", "hour"], concatenate = [7, 24])] when: [i64; 2]` moves the ids of each column past
/// those of the columns before it, so that all can share one embedding.
#[proc_macro_derive(Example, attributes(input, label, example))]
pub fn derive_example(input: TokenStream) -> TokenStream {
    expand(input, example::expand)
}

fn expand(
    input: TokenStream,
    expand: fn(syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand(input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// The named fields of a struct, or an error that says what to write.
fn named_fields(input: &syn::DeriveInput, derive: &str) -> syn::Result<Vec<syn::Field>> {
    match &input.data {
        syn::Data::Struct(data) => match &data.fields {
            syn::Fields::Named(fields) => Ok(fields.named.iter().cloned().collect()),
            _ => Err(syn::Error::new_spanned(
                &input.ident,
                format!("#[derive({derive})] needs named fields: struct {} {{ .. }}", input.ident),
            )),
        },
        _ => Err(syn::Error::new_spanned(
            &input.ident,
            format!("#[derive({derive})] works on structs"),
        )),
    }
}
