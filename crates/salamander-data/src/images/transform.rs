//! Resizing, cropping and flipping, with the numbers that torchvision uses, so that published recipes carry over.

use std::borrow::Cow;

use image::RgbImage;
use image::imageops::{self, FilterType};
use salamander_core::seed::Rng;

use super::Image;

/// Share of the area that a random crop has.
const SCALE: (f64, f64) = (0.08, 1.0);
/// Width over height that a random crop has.
const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);
/// How often a random crop is drawn before the middle is taken.
const TRIES: usize = 10;

/// A rectangle of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crop {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl Image {
    /// Exactly this size, at least one pixel, by bilinear interpolation over all pixels that fall together.
    #[must_use]
    fn resize(self, width: u32, height: u32) -> Image {
        let (width, height) = (width.max(1), height.max(1));
        if (width, height) == (self.width, self.height) || self.pixels.is_empty() {
            return self;
        }
        from_buffer(imageops::resize(&into_buffer(self), width, height, FilterType::Triangle))
    }

    /// The shorter side has `side` pixels afterwards; the shape stays.
    #[must_use]
    fn resize_shorter(self, side: u32) -> Image {
        let (shorter, longer) = (self.width.min(self.height), self.width.max(self.height));
        let scaled = u64::from(side) * u64::from(longer) / u64::from(shorter.max(1));
        let longer = u32::try_from(scaled).unwrap_or(u32::MAX);
        match self.width <= self.height {
            true => self.resize(side, longer),
            false => self.resize(longer, side),
        }
    }

    /// This size, as published recipes look at a picture when they do not train on it: the shorter side is brought to
    /// 8/7 of the size, and the middle is taken.
    #[must_use]
    pub fn fit(&self, width: u32, height: u32) -> Cow<'_, Image> {
        if (width, height) == (self.width, self.height) {
            return Cow::Borrowed(self);
        }
        let side = (f64::from(width.max(height)) * 8.0 / 7.0).round() as u32;
        let middle = self.clone().resize_shorter(side).center_crop(width, height);
        Cow::Owned(middle.resize(width, height))
    }

    /// The middle; an image that is smaller keeps its own size in that direction.
    #[must_use]
    fn center_crop(self, width: u32, height: u32) -> Image {
        let (width, height) = (width.min(self.width), height.min(self.height));
        let (x, y) = (half(self.width - width), half(self.height - height));
        self.crop(Crop { x, y, width, height })
    }

    /// A random rectangle of 8 to 100 % of the area and a shape between 3:4 and 4:3, resized to this size
    /// (Szegedy et al., <https://arxiv.org/abs/1409.4842>).
    #[must_use]
    pub fn random_resized_crop(self, width: u32, height: u32, rng: &mut Rng) -> Image {
        let crop = random_crop(self.width, self.height, rng);
        self.crop(crop).resize(width, height)
    }

    /// Its own size, cut out anywhere after so many black pixels were put around it.
    #[must_use]
    pub fn random_shift(self, border: u32, rng: &mut Rng) -> Image {
        let [down, right] = [(); 2].map(|()| rng.below(2 * u64::from(border) + 1) as i64);
        let (border, pixels) = (i64::from(border), into_buffer(self));
        let mut shifted = RgbImage::new(pixels.width(), pixels.height());
        imageops::replace(&mut shifted, &pixels, border - right, border - down);
        from_buffer(shifted)
    }

    /// Left and right exchanged.
    #[must_use]
    fn flip(mut self) -> Image {
        let line = 3 * self.width.max(1) as usize;
        for row in self.pixels.chunks_exact_mut(line) {
            row.reverse();
            // Reversing the bytes has also exchanged red and blue.
            row.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        }
        self
    }

    /// Flipped every second time.
    #[must_use]
    pub fn random_flip(self, rng: &mut Rng) -> Image {
        if rng.below(2) == 0 { self } else { self.flip() }
    }

    fn crop(self, crop: Crop) -> Image {
        let Crop { x, y, width, height } = crop;
        if (width, height) == (self.width, self.height) {
            return self;
        }
        let (line, length) = (3 * self.width as usize, 3 * width as usize);
        let mut pixels = Vec::with_capacity(length * height as usize);
        for row in self.pixels.chunks_exact(line).skip(y as usize).take(height as usize) {
            pixels.extend_from_slice(&row[3 * x as usize..][..length]);
        }
        Image { width, height, pixels }
    }
}

/// Half of a number, and between two the even one, as Python rounds.
fn half(number: u32) -> u32 {
    let half = number / 2;
    half + (number % 2) * (half % 2)
}

fn random_crop(width: u32, height: u32, rng: &mut Rng) -> Crop {
    let area = f64::from(width) * f64::from(height);
    let between = |(low, high): (f64, f64), share: f64| low + (high - low) * share;
    for _ in 0..TRIES {
        let target = area * between(SCALE, rng.uniform());
        let ratio = between((RATIO.0.ln(), RATIO.1.ln()), rng.uniform()).exp();
        let w = (target * ratio).sqrt().round() as u32;
        let h = (target / ratio).sqrt().round() as u32;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let x = rng.below(u64::from(width - w) + 1) as u32;
            let y = rng.below(u64::from(height - h) + 1) as u32;
            return Crop { x, y, width: w, height: h };
        }
    }
    let shape = f64::from(width) / f64::from(height.max(1));
    let (w, h) = match shape {
        _ if shape < RATIO.0 => (width, (f64::from(width) / RATIO.0).round() as u32),
        _ if shape > RATIO.1 => ((f64::from(height) * RATIO.1).round() as u32, height),
        _ => (width, height),
    };
    let (w, h) = (w.min(width), h.min(height));
    Crop { x: (width - w) / 2, y: (height - h) / 2, width: w, height: h }
}

/// # Panics
///
/// When the number of pixels is not that of width and height.
fn into_buffer(image: Image) -> RgbImage {
    let Image { width, height, pixels } = image;
    RgbImage::from_raw(width, height, pixels).expect("an image has three bytes per pixel")
}

fn from_buffer(buffer: RgbImage) -> Image {
    let (width, height) = buffer.dimensions();
    Image { width, height, pixels: buffer.into_raw() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Image, Rng, random_crop};

    /// Red tells x, green tells y.
    fn chart(width: u32, height: u32) -> Image {
        let at = |n: u32| [(n % width) as u8, (n / width) as u8, 7];
        Image { width, height, pixels: (0..width * height).flat_map(at).collect() }
    }

    fn pixel(image: &Image, x: u32, y: u32) -> [u8; 3] {
        let at = 3 * (y as usize * image.width as usize + x as usize);
        [image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]]
    }

    #[test]
    fn crops_take_the_middle() {
        let check = |(width, height), (w, h), expected: (u32, u32, [u8; 3])| {
            let found = chart(width, height).center_crop(w, h);
            assert_eq!((found.width, found.height, pixel(&found, 0, 0)), expected);
            assert_eq!(found.pixels.len(), 3 * (found.width * found.height) as usize);
        };
        check((10, 8), (4, 4), (4, 4, [3, 2, 7]));
        check((10, 8), (10, 8), (10, 8, [0, 0, 7]));
        check((10, 8), (20, 2), (10, 2, [0, 3, 7]));
        // Halves are torchvision's.
        check((11, 9), (10, 4), (10, 4, [0, 2, 7]));
        check((13, 9), (10, 2), (10, 2, [2, 4, 7]));
    }

    #[test]
    fn a_flip_exchanges_left_and_right() {
        let flipped = chart(5, 2).flip();
        assert_eq!((pixel(&flipped, 0, 0), pixel(&flipped, 4, 1)), ([4, 0, 7], [0, 1, 7]));
        assert_eq!(flipped.flip(), chart(5, 2));
        let mut rng = Rng::new(1);
        let flips = (0..1000).filter(|_| chart(2, 1).random_flip(&mut rng) != chart(2, 1)).count();
        assert!((430..570).contains(&flips), "{flips}");
    }

    #[test]
    fn a_shift_brings_black_pixels_in() {
        let shifted = |seed| chart(3, 3).random_shift(1, &mut Rng::new(seed));
        let middles: std::collections::BTreeSet<[u8; 3]> =
            (0..200).map(|seed| pixel(&shifted(seed), 1, 1)).collect();
        let expected = (0..9).map(|at| [at / 3, at % 3, 7]).collect();
        assert_eq!(middles, expected, "any of the nine pixels comes to the middle");
        let black =
            |image: &Image| image.pixels.as_chunks::<3>().0.iter().filter(|p| p[2] == 0).count();
        assert!((0..200).all(|seed| [0, 3, 5].contains(&black(&shifted(seed)))));
    }

    #[test]
    fn the_shorter_side_gets_the_size() {
        let check = |(width, height), side, expected| {
            let found = chart(width, height).resize_shorter(side);
            assert_eq!((found.width, found.height), expected);
        };
        check((100, 50), 25, (50, 25));
        check((50, 101), 25, (25, 50));
        check((7, 7), 14, (14, 14));
        check((1, 200), 2, (2, 400));
    }

    #[test]
    fn an_even_colour_stays_even() {
        let grey = Image { width: 9, height: 7, pixels: vec![90; 9 * 7 * 3] };
        assert!(grey.resize(4, 12).pixels.iter().all(|&value| value == 90));
    }

    #[test]
    fn a_picture_is_fitted_by_its_middle() {
        let check = |(width, height), (w, h)| {
            let found = chart(width, height);
            let found = found.fit(w, h);
            assert_eq!((found.width, found.height), (w, h));
        };
        check((70, 40), (28, 28));
        check((3, 90), (28, 28));
        check((10, 10), (20, 5));
        // Of 40 rows 35 stay, so that two or three are cut off at each side: two above, as torchvision does.
        let wide = chart(80, 40);
        let middle = wide.fit(35, 35);
        assert_eq!((pixel(&middle, 0, 0), pixel(&middle, 34, 34)), ([22, 2, 7], [56, 36, 7]));
        assert!(matches!(wide.fit(80, 40), std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn planes_follow_each_other() {
        let image = Image { width: 2, height: 1, pixels: vec![1, 2, 3, 4, 5, 6] };
        assert!(image.planes().eq([1, 4, 2, 5, 3, 6]));
    }

    proptest! {
        #[test]
        fn random_crops_stay_inside(width in 1u32..300, height in 1u32..300, seed: u64) {
            let crop = random_crop(width, height, &mut Rng::new(seed));
            prop_assert!(crop.width > 0 && crop.x + crop.width <= width, "{:?}", crop);
            prop_assert!(crop.height > 0 && crop.y + crop.height <= height, "{:?}", crop);
        }

        #[test]
        fn random_crops_have_the_size(width in 1u32..60, height in 1u32..60, side in 1u32..40, seed: u64) {
            let found = chart(width, height).random_resized_crop(side, side, &mut Rng::new(seed));
            prop_assert_eq!((found.width, found.height), (side, side));
            prop_assert_eq!(found.pixels.len(), 3 * (side * side) as usize);
            let again = chart(width, height).random_resized_crop(side, side, &mut Rng::new(seed));
            prop_assert_eq!(found, again);
        }
    }
}
