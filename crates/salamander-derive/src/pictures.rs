//! Inputs that are pictures: those of type `Image`, and random changes of them (`augment`).

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, ExprArray, Result};

use crate::field::Column;
use crate::is_named;

/// A random change of a picture in training.
pub(crate) enum PictureChange {
    Flip,
    Crop(Box<Expr>),
    ResizedCrop,
}

/// The changes of an attribute: `[flip, crop(4)]`.
pub(crate) fn changes(list: ExprArray) -> Result<Vec<PictureChange>> {
    list.elems.into_iter().map(change).collect()
}

fn change(said: Expr) -> Result<PictureChange> {
    match &said {
        Expr::Path(path) if path.path.is_ident("flip") => Ok(PictureChange::Flip),
        Expr::Path(path) if path.path.is_ident("resized_crop") => Ok(PictureChange::ResizedCrop),
        Expr::Call(call) if call.args.len() == 1 && is_crop(&call.func) => {
            Ok(PictureChange::Crop(Box::new(call.args[0].clone())))
        }
        _ => Err(Error::new_spanned(said, "unknown change: write flip, crop(4) or resized_crop")),
    }
}

fn is_crop(function: &Expr) -> bool {
    matches!(function, Expr::Path(path) if path.path.is_ident("crop"))
}

/// Refuses a picture that cannot be one, and changes that do not suit it.
pub(crate) fn check(column: &Column) -> Result<()> {
    let Column { ident, kind, shape, changes, .. } = column;
    let wrong = |message: String| Err(Error::new_spanned(kind, message));
    let image = is_named(kind, "Image");
    if column.label && !changes.is_empty() {
        return wrong("a label stays as it is: put augment on an input".to_owned());
    }
    if (image || !changes.is_empty()) && shape.len() != 3 {
        return wrong(format!(
            "`{ident}` is a picture: say its channels, height and width, #[input(shape = [3, 224, 224])]"
        ));
    }
    if image && (column.buckets.is_some() || column.several.is_some() || column.missing.is_some()) {
        return wrong(format!(
            "`{ident}` is a picture: remove the buckets, ragged, concatenate and missing"
        ));
    }
    match changes.iter().any(|change| matches!(change, PictureChange::ResizedCrop)) && !image {
        true => wrong(format!("resized_crop needs the whole picture: make `{ident}` an Image")),
        false => Ok(()),
    }
}

/// The statement that changes a field in training, if it says so.
pub(crate) fn augment(column: &Column) -> Option<TokenStream> {
    let Column { ident, shape, changes, .. } = column;
    let changes = changes.iter().map(|change| match change {
        PictureChange::Flip => quote!(::salamander::__private::Augmentation::Flip),
        PictureChange::Crop(border) => {
            quote!(::salamander::__private::Augmentation::Crop((#border) as usize))
        }
        PictureChange::ResizedCrop => quote!(::salamander::__private::Augmentation::ResizedCrop),
    });
    (changes.len() > 0).then(|| {
        quote! {
            ::salamander::__private::Augmented::augment(
                &mut self.#ident, [#(#shape),*], &[#(#changes),*], rng,
            );
        }
    })
}
