//! The colours of a report, chosen so that text can be read on each of them.

use std::fmt;

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Color(pub(super) [u8; 3]);

/// As SVG writes it: `#08306b`.
impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Color([red, green, blue]) = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

pub(super) const PAPER: Color = Color([255; 3]);
pub(super) const INK: Color = Color([38, 38, 46]);

/// From no sample to all samples of a row; light to dark, so that it survives a grey print.
const RAMP: [[u8; 3]; 5] =
    [[247, 251, 255], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]];

/// The colour of a share between 0 and 1.
pub(super) fn color_of(share: f64) -> Color {
    // Errors are a few percent of a row; on a linear ramp they would all look like zero.
    let at = share.clamp(0.0, 1.0).powf(0.6) * (RAMP.len() - 1) as f64;
    let below = (at as usize).min(RAMP.len() - 2);
    let part = at - below as f64;
    let mix = |low: u8, high: u8| (f64::from(low) * (1.0 - part) + f64::from(high) * part) as u8;
    Color(std::array::from_fn(|channel| mix(RAMP[below][channel], RAMP[below + 1][channel])))
}

/// The colour of text that can be read on a background.
pub(super) fn ink_on(Color([red, green, blue]): Color) -> Color {
    let brightness = (299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue)) / 1000;
    if brightness < 145 { PAPER } else { INK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_dark_on_light_and_light_on_dark() {
        assert_eq!(ink_on(color_of(0.0)), INK);
        assert_eq!(ink_on(color_of(1.0)), PAPER);
    }

    #[test]
    fn larger_shares_are_darker() {
        let brightness = |percent: i32| -> u32 {
            color_of(f64::from(percent) / 100.0).0.map(u32::from).iter().sum()
        };
        assert!((0..100).all(|percent| brightness(percent) > brightness(percent + 1)));
        assert_eq!(color_of(0.0), Color(RAMP[0]));
        assert_eq!(color_of(1.0).to_string(), "#08306b");
    }
}
