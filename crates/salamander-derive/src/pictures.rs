//! Inputs that are pictures: those of type `Image`, and random changes of them (`augment`).

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, ExprArray, Result, Type};

use crate::field::Column;

/// A random change of a picture in training.
pub(crate) enum Change {
    Flip,
    Crop(Box<Expr>),
    ResizedCrop,
}

/// The changes of an attribute: `[flip, crop(4)]`.
pub(crate) fn changes(list: ExprArray) -> Result<Vec<Change>> {
    list.elems.into_iter().map(change).collect()
}

fn change(said: Expr) -> Result<Change> {
    let name = match &said {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.get_ident(),
            _ => None,
        },
        _ => None,
    };
    let name = name.map(ToString::to_string).unwrap_or_default();
    match (name.as_str(), &said) {
        ("flip", Expr::Path(_)) => Ok(Change::Flip),
        ("resized_crop", Expr::Path(_)) => Ok(Change::ResizedCrop),
        ("crop", Expr::Call(call)) if call.args.len() == 1 => {
            Ok(Change::Crop(Box::new(call.args[0].clone())))
        }
        _ => Err(Error::new_spanned(said, "unknown change: write flip, crop(4) or resized_crop")),
    }
}

/// Whether a field holds a picture of any size.
pub(crate) fn is_image(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Image")
}

/// Refuses a picture that cannot be one, and changes that do not suit it.
pub(crate) fn check(column: &Column) -> Result<()> {
    let Column { ident, kind, shape, changes, .. } = column;
    let wrong = |message: String| Err(Error::new_spanned(kind, message));
    let image = is_image(kind);
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
    match changes.iter().any(|change| matches!(change, Change::ResizedCrop)) && !image {
        true => wrong(format!("resized_crop needs the whole picture: make `{ident}` an Image")),
        false => Ok(()),
    }
}

/// The statement that changes a field in training, if it says so.
pub(crate) fn augment(column: &Column) -> Option<TokenStream> {
    let Column { ident, shape, changes, .. } = column;
    let changes = changes.iter().map(|change| match change {
        Change::Flip => quote!(::salamander::__private::Augmentation::Flip),
        Change::Crop(border) => {
            quote!(::salamander::__private::Augmentation::Crop((#border) as usize))
        }
        Change::ResizedCrop => quote!(::salamander::__private::Augmentation::ResizedCrop),
    });
    (changes.len() > 0).then(|| {
        quote! {
            ::salamander::__private::Augmented::augment(
                &mut self.#ident, [#(#shape),*], &[#(#changes),*], rng,
            );
        }
    })
}
