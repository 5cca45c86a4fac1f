//! Ratings like those of MovieLens: users and films have latent factors, and their product says who likes what.

use salamander_core::seed::{self, Rng};

use super::draw::{bias, happens, power_law, sigmoid, weight};
use super::{Drawn, World};
use crate::{Format, MOVIELENS_COLUMNS};

/// The share of ratings of 4 and 5 in MovieLens-1M.
const LIKED: f64 = 0.57;
/// How many factors a user and a film have.
const FACTORS: u64 = 4;
/// How much users differ.
const USERS: f64 = 0.6;
/// How much films differ.
const FILMS: f64 = 0.9;
/// How much tastes differ.
const TASTES: f64 = 1.2;
/// The first second of the ratings, as in MovieLens-1M.
const FIRST_SECOND: u64 = 956_703_932;
/// How many seconds there are.
const SECONDS: u64 = 89_750_648;

/// A world of users who rate films. A rating of 4 or 5 is a positive label; a pair may be rated again.
#[derive(Clone, Debug)]
pub struct MovieLens {
    seed: u64,
    users: u64,
    films: u64,
    bias: f64,
}

impl MovieLens {
    /// A world of so many users and films; MovieLens-1M has 6,040 and 3,706.
    pub fn new(seed: u64, users: u64, films: u64) -> MovieLens {
        let (users, films) = (users.max(1), films.max(1));
        let mut world = MovieLens { seed, users, films, bias: 0.0 };
        world.bias = bias(LIKED, |record| world.pair(record).1);
        world
    }

    /// Who rates what in a record, from 0, and the score of it.
    fn pair(&self, record: u64) -> ((u64, u64), f64) {
        let rng = &mut Rng::new(seed::derive(self.seed, &[PAIRS, record]));
        // Some users rate far more than others, and some films are seen by far more.
        let user = power_law(rng, self.users, 0.6);
        let film = power_law(rng, self.films, 0.8);
        let own = |kind: u64, id: u64, factor: u64| weight(self.seed, &[kind, id, factor]);
        let taste: f64 = (1..=FACTORS)
            .map(|factor| own(OF_USERS, user, factor) * own(OF_FILMS, film, factor))
            .sum();
        let score = USERS * own(OF_USERS, user, 0)
            + FILMS * own(OF_FILMS, film, 0)
            + TASTES * taste / libm::sqrt(FACTORS as f64);
        ((user, film), score)
    }
}

/// The streams of draws: records, what follows from them, and the truth about users and films.
const PAIRS: u64 = 1;
const RATINGS: u64 = 2;
const OF_USERS: u64 = 3;
const OF_FILMS: u64 = 4;

impl World for MovieLens {
    fn columns(&self) -> &'static [&'static str] {
        &MOVIELENS_COLUMNS
    }

    fn format(&self) -> Format {
        Format::MovieLens
    }

    fn draw(&self, record: u64) -> Drawn {
        let ((user, film), score) = self.pair(record);
        let rng = &mut Rng::new(seed::derive(self.seed, &[RATINGS, record]));
        let probability = sigmoid(score + self.bias);
        let label = happens(rng, probability);
        let rating = match (label, rng.uniform()) {
            (true, share) if share < 0.39 => 5,
            (true, _) => 4,
            (false, share) if share < 0.62 => 3,
            (false, share) if share < 0.87 => 2,
            (false, _) => 1,
        };
        let second = FIRST_SECOND + rng.below(SECONDS);
        let cells = [user + 1, film + 1, rating, second];
        Drawn { cells: cells.iter().map(u64::to_string).collect(), probability, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratings_are_those_of_their_label() {
        let world = MovieLens::new(1, 50, 40);
        let (mut liked, mut first) = (0, [0; 2]);
        for record in 0..5000 {
            let Drawn { cells, label, .. } = world.draw(record);
            let number = |at: usize| cells[at].parse::<u64>().unwrap();
            assert!((1..=50).contains(&number(0)) && (1..=40).contains(&number(1)));
            assert_eq!(number(2) >= 4, label);
            liked += u32::from(label);
            first = [first[0] + u32::from(number(0) == 1), first[1] + u32::from(number(1) == 1)];
        }
        assert!((2600..3100).contains(&liked), "{liked}");
        // Far more than an equal share of 100 and 125.
        assert!(first[0] > 250 && first[1] > 500, "{first:?}");
    }
}
