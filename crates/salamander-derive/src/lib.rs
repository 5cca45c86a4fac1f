//! Derive macros of Salamander: hyperparameters and examples, checked by the compiler.
//!
//! # Layout
//! - `hparams`: `#[derive(Hparams)]`
//! - `example`: `#[derive(Example)]`; `field`: the attributes of its fields, of which
//!   `buckets` has those that make integers, `several` those of several ids and `pictures` those of pictures
//! - `keys`: which keys there are, from `attributes.md`, the table that people read
//!
//! They are tested from the crate `salamander`, where their users are; so are the examples of their documentation
//! (`hparams.md`, `example.md`). What a procedural macro is tested with is built for the compiler's own use, apart from
//! all else: Burn a second time.

mod buckets;
mod example;
mod field;
mod hparams;
mod keys;
mod pictures;
mod several;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as TokenStream2;
use quote::quote;

/// Reads a struct of hyperparameters from an experiment file.
///
/// Every field may say `#[hparam(default = 0.1, min = 0.0, max = 1.0, name = "lr")]`, and what a search may try, as
/// `range = 1e-3..=0.1, log` or `choices = [..]`. One without a default must be in
/// the file; names that no field has are refused with the nearest one that there is.
#[doc = concat!("\n", include_str!("hparams.md"))]
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
/// wrote. The struct may say `#[example(augment = function)]` to be changed before training on it, and must say
/// `#[example(unlabelled)]` where nothing is a label.
///
/// A label that is text has classes: `#[label(classes = ["no", "yes"])] bought: String`, or one per line of a file,
/// `#[label(vocabulary = "classes.txt")]`. The batch has their numbers, reports and predictions their names.
///
/// An input becomes the integer of its bucket with one of `discretise = [18.0, 25.0]`, `log_round = 10.0` and
/// `round = 100` (numbers), `hash = 1000` (a `String` or integers) and `vocabulary = "words.txt", oov = 1` (a
/// `String`; the file has one word per line), or `classes = ["a", "b"]` for a few words. `missing = 0.0`, or
/// `missing = "none"` for a `String`, is the value of a column that is absent or empty.
///
/// Statistics and vocabularies are looked for beside the experiment file and then in the current folder when a run is
/// made. From then on they are part of the run, of its checkpoints and of its exports, and are read from there.
///
/// `#[input(tokenize = "tokenizer.json", max_length = 128)] text: String` makes tokens of a text by a tokenizer of
/// Hugging Face: the batch has `Tokens`, laid end to end without padding. As `text: Vec<i64>` the field also takes the
/// ids that `salamander data convert --tokenize` has written; with `columns = ["premise", "hypothesis"]` and
/// `texts: [String; 2]` the tokens are those of both texts, and `Tokens::types` says which.
/// `#[example(files = ["config.json"])]` names further files that the model is built from.
///
/// `ragged` is for any number of ids per record: `#[input(ragged)] tags: Vec<i64>`, or text cut at a separator,
/// `#[input(ragged = "|", hash = 1000)] genres: String`; the batch has a `Ragged` of all ids and their records.
/// `ignore = -1`, or `ignore = "none"` for text, leaves out a value that stands for nothing.
/// `#[input(columns = ["day", "hour"], concatenate = [7, 24])] when: [i64; 2]` moves the ids of each column past
/// those of the columns before it, so that all can share one embedding.
///
/// Pictures are planes, `#[input(shape = [3, 32, 32], augment = [flip, crop(4)])] image: Vec<u8>`, or of any size,
/// `#[input(shape = [3, 224, 224], augment = [resized_crop, flip])] image: Image`, from the bytes of a JPEG or PNG
/// file or from the rows of an image folder. `augment` changes them at random in training only: `flip` exchanges left
/// and right every second time, `crop(4)` puts four zeros around and cuts the size out anywhere, and `resized_crop`
/// resizes a random rectangle. An `Image` that was not cut to the shape is resized, and its middle is taken.
///
/// Beside `Person` there is a `PersonBatch` then, with a tensor per field, which `Trial::forward` and `Trial::loss`
/// take:
#[doc = concat!("\n", include_str!("example.md"))]
#[proc_macro_derive(Example, attributes(input, label, example))]
pub fn derive_example(input: TokenStream) -> TokenStream {
    expand(input, example::expand)
}

fn expand(
    input: TokenStream,
    expand: fn(syn::DeriveInput) -> syn::Result<TokenStream2>,
) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand(input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// The named fields of a struct, or an error that says what to write.
fn named_fields(input: &syn::DeriveInput, derive: &str) -> syn::Result<Vec<syn::Field>> {
    let name = &input.ident;
    let wrong = |needed: String| {
        Err(syn::Error::new_spanned(name, format!("#[derive({derive})] {needed}")))
    };
    match &input.data {
        syn::Data::Struct(syn::DataStruct { fields: syn::Fields::Named(fields), .. }) => {
            Ok(fields.named.iter().cloned().collect())
        }
        syn::Data::Struct(_) => wrong(format!("needs named fields: struct {name} {{ .. }}")),
        _ => wrong("works on structs".to_string()),
    }
}

/// The code of an `Option`.
fn option(value: Option<TokenStream2>) -> TokenStream2 {
    match value {
        Some(value) => quote!(::std::option::Option::Some(#value)),
        None => quote!(::std::option::Option::None),
    }
}

/// Whether the last word of a type's path is this one.
fn is_named(ty: &syn::Type, name: &str) -> bool {
    let syn::Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == name)
}
