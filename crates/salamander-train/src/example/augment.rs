//! Random changes of pictures in training, so that a model sees another picture of the same thing each time.

use salamander_core::seed::Rng;
#[cfg(feature = "images")]
use salamander_data::images::Image;

use super::Number;

/// A random change of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Augmentation {
    /// Left and right exchanged, every second time.
    Flip,
    /// So many zeros put around it, and its own size cut out anywhere, as He et al. train on CIFAR-10
    /// (<https://arxiv.org/abs/1512.03385>).
    Crop(usize),
    /// A random rectangle of it, resized to the shape, as Szegedy et al. train on ImageNet
    /// (<https://arxiv.org/abs/1409.4842>).
    ResizedCrop,
}

/// A field that holds a picture.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a picture",
    label = "`augment` changes an `Image`, a `Vec<T>` or a `[T; N]`"
)]
pub trait Augmented {
    /// Changes a picture of this shape (channels, height, width), one change after the other. One of another size is
    /// left alone: collating it says what is wrong.
    fn augment(&mut self, shape: [usize; 3], changes: &[Augmentation], rng: &mut Rng);
}

impl<T: Number> Augmented for Vec<T> {
    fn augment(&mut self, shape: [usize; 3], changes: &[Augmentation], rng: &mut Rng) {
        T::augment_all(self, shape, changes, rng);
    }
}

impl<T: Number, const N: usize> Augmented for [T; N] {
    fn augment(&mut self, shape: [usize; 3], changes: &[Augmentation], rng: &mut Rng) {
        T::augment_all(self, shape, changes, rng);
    }
}

#[cfg(feature = "images")]
impl Augmented for Image {
    fn augment(&mut self, [_, height, width]: [usize; 3], changes: &[Augmentation], rng: &mut Rng) {
        for change in changes {
            let image = std::mem::take(self);
            *self = match change {
                Augmentation::Flip => image.random_flip(rng),
                Augmentation::Crop(border) => image.random_shift(*border as u32, rng),
                Augmentation::ResizedCrop => {
                    image.random_resized_crop(width as u32, height as u32, rng)
                }
            };
        }
    }
}

/// Changes planes of pixels that follow each other.
pub(super) fn augment_planes<T: Copy + Default>(
    values: &mut [T],
    shape: [usize; 3],
    changes: &[Augmentation],
    rng: &mut Rng,
) {
    let [_, height, width] = shape;
    if values.len() != shape.iter().product::<usize>() || values.is_empty() {
        return;
    }
    for change in changes {
        match change {
            Augmentation::Flip if rng.below(2) == 1 => {
                values.chunks_exact_mut(width).for_each(<[T]>::reverse);
            }
            Augmentation::Crop(border) => {
                let [down, right] = [(); 2].map(|()| rng.below(2 * *border as u64 + 1) as usize);
                let offset = [down as isize - *border as isize, right as isize - *border as isize];
                values
                    .chunks_exact_mut(height * width)
                    .for_each(|plane| shift(plane, width, offset));
            }
            // A derive gives planes no other change.
            Augmentation::Flip | Augmentation::ResizedCrop => {}
        }
    }
}

/// Moves what is at an offset to the corner; what comes in from outside is zero.
fn shift<T: Copy + Default>(plane: &mut [T], width: usize, [down, right]: [isize; 2]) {
    let old = plane.to_vec();
    let height = plane.len() / width;
    for (at, value) in plane.iter_mut().enumerate() {
        let y = (at / width).checked_add_signed(down).filter(|y| *y < height);
        let x = (at % width).checked_add_signed(right).filter(|x| *x < width);
        *value = y.zip(x).map_or(T::default(), |(y, x)| old[y * width + x]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_moved_and_filled_with_zeros() {
        let check = |offset: [isize; 2], expected: [u8; 6]| {
            let mut plane = [1u8, 2, 3, 4, 5, 6];
            shift(&mut plane, 3, offset);
            assert_eq!(plane, expected, "{offset:?}");
        };
        check([0, 0], [1, 2, 3, 4, 5, 6]);
        check([1, 0], [4, 5, 6, 0, 0, 0]);
        check([0, -1], [0, 1, 2, 0, 4, 5]);
        check([-1, 1], [0, 0, 0, 2, 3, 0]);
        check([5, 5], [0; 6]);
    }

    #[test]
    fn the_same_draws_make_the_same_picture_in_all_channels() {
        let picture: Vec<f32> = (0..2 * 4 * 4).map(|at| (at % 16) as f32).collect();
        let changed = |seed: u64| {
            let mut changed = picture.clone();
            let changes = [Augmentation::Flip, Augmentation::Crop(1)];
            changed.augment([2, 4, 4], &changes, &mut Rng::new(seed));
            changed
        };
        let all: Vec<Vec<f32>> = (0..50).map(changed).collect();
        assert_eq!(all, (0..50).map(changed).collect::<Vec<_>>());
        assert!(all.iter().all(|picture| picture[..16] == picture[16..]));
        let mut different = all.clone();
        different.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        different.dedup();
        assert_eq!(different.len(), 18, "nine places, flipped or not");
    }

    #[test]
    fn a_picture_of_another_size_is_left_alone() {
        let mut short = vec![1u8, 2, 3];
        short.augment([1, 2, 2], &[Augmentation::Flip, Augmentation::Crop(3)], &mut Rng::new(1));
        assert_eq!(short, [1, 2, 3]);
    }
}
