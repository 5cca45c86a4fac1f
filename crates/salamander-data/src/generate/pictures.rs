//! Pictures like those of CIFAR-10: stripes in one of ten directions, which is the class, in any colours, width and
//! place, under noise.

use std::f64::consts::{PI, TAU};

use salamander_core::seed::{self, Rng};

use crate::cifar::{CLASSES, PICTURE_BYTES};
use crate::{Row, Value};

/// Pixels of a row and of a column.
const SIDE: usize = 32;
/// How far noise goes to either side, in parts of the whole range.
const NOISE: f64 = 0.15;

/// A world of pictures; each is a pure function of its number.
#[derive(Clone, Debug)]
pub struct Pictures {
    seed: u64,
}

/// A picture and what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedPicture {
    /// The class.
    pub class: u8,
    /// Red, green and blue plane.
    pub pixels: Vec<u8>,
}

impl GeneratedPicture {
    /// The record as CIFAR-10's files have it.
    pub fn row(&self) -> Row<'_> {
        let label = Value::Ints(vec![i64::from(self.class)].into());
        Row::new(vec![("image".into(), Value::Bytes(&self.pixels)), ("label".into(), label)])
    }
}

impl Pictures {
    /// The world of a seed.
    pub fn new(seed: u64) -> Pictures {
        Pictures { seed }
    }

    /// A picture by its number.
    pub fn draw(&self, record: u64) -> GeneratedPicture {
        let rng = &mut Rng::new(seed::derive(self.seed, &[record]));
        let class = rng.below(u64::from(CLASSES)) as u8;
        // Directions of neighbouring classes are far enough apart to be told from each other.
        let angle = (f64::from(class) + 0.6 * (rng.uniform() - 0.5)) * PI / f64::from(CLASSES);
        let (across, down) = (libm::cos(angle), libm::sin(angle));
        let (width, phase) = (4.0 + 6.0 * rng.uniform(), TAU * rng.uniform());
        let colours: [[f64; 3]; 2] = [[0; 3]; 2].map(|colour| colour.map(|_: i32| rng.uniform()));
        let mut pixels = vec![0; PICTURE_BYTES];
        for (at, pixel) in pixels.iter_mut().enumerate() {
            let (plane, y, x) = (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
            let place = (x as f64 * across + y as f64 * down) / width;
            let share = 0.5 + 0.5 * libm::sin(TAU * place + phase);
            let clean = colours[0][plane] * share + colours[1][plane] * (1.0 - share);
            let value = clean + NOISE * (2.0 * rng.uniform() - 1.0);
            *pixel = (value.clamp(0.0, 1.0) * 255.0) as u8;
        }
        GeneratedPicture { class, pixels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_made_by_their_seed_and_number() {
        let (world, same, other) = (Pictures::new(3), Pictures::new(3), Pictures::new(4));
        assert_eq!(world.draw(1 << 40), same.draw(1 << 40));
        assert_ne!(world.draw(5), other.draw(5));
        assert_ne!(world.draw(5), world.draw(6));
        let mut seen = [0; CLASSES as usize];
        (0..500).for_each(|record| seen[usize::from(world.draw(record).class)] += 1);
        assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
        assert_eq!(world.draw(0).row().bytes("image").unwrap().len(), PICTURE_BYTES);
    }
}
