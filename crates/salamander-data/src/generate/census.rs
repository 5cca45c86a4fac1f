//! Incomes like those of UCI's Census Income: a few numbers, words with the frequencies of the real file, and a truth
//! with crossed words, which is what the wide half of Wide & Deep looks for. The truth does not look at race.

use salamander_core::seed::{self, Rng};

use super::draw::{bias, happens, normal, pick, sigmoid, weight};
use super::{Drawn, World};
use crate::{CENSUS_COLUMNS, Format};

/// The share of incomes above 50K in the real file.
const ABOVE: f64 = 0.24;

type Words = [(&'static str, f64)];

const WORKCLASSES: &Words = &[
    ("Private", 0.697),
    ("Self-emp-not-inc", 0.078),
    ("Local-gov", 0.064),
    ("", 0.056),
    ("State-gov", 0.04),
    ("Self-emp-inc", 0.034),
    ("Federal-gov", 0.03),
    ("Without-pay", 0.001),
];

/// With the number of the level.
const EDUCATIONS: &[((&str, u64), f64)] = &[
    (("HS-grad", 9), 0.322),
    (("Some-college", 10), 0.224),
    (("Bachelors", 13), 0.165),
    (("Masters", 14), 0.053),
    (("Assoc-voc", 11), 0.042),
    (("11th", 7), 0.036),
    (("Assoc-acdm", 12), 0.033),
    (("10th", 6), 0.029),
    (("7th-8th", 4), 0.02),
    (("Prof-school", 15), 0.018),
    (("9th", 5), 0.016),
    (("12th", 8), 0.013),
    (("Doctorate", 16), 0.013),
    (("5th-6th", 3), 0.01),
    (("1st-4th", 2), 0.005),
    (("Preschool", 1), 0.001),
];

const MARITAL_STATUSES: &Words = &[
    ("Married-civ-spouse", 0.46),
    ("Never-married", 0.328),
    ("Divorced", 0.136),
    ("Separated", 0.031),
    ("Widowed", 0.031),
    ("Married-spouse-absent", 0.013),
    ("Married-AF-spouse", 0.001),
];

/// With what an occupation says about the income.
const OCCUPATIONS: &[((&str, f64), f64)] = &[
    (("Prof-specialty", 0.6), 0.127),
    (("Craft-repair", 0.1), 0.126),
    (("Exec-managerial", 0.9), 0.125),
    (("Adm-clerical", 0.0), 0.116),
    (("Sales", 0.3), 0.112),
    (("Other-service", -0.9), 0.101),
    (("Machine-op-inspct", -0.3), 0.061),
    (("", -0.4), 0.056),
    (("Transport-moving", -0.1), 0.049),
    (("Handlers-cleaners", -0.8), 0.042),
    (("Farming-fishing", -1.0), 0.031),
    (("Tech-support", 0.6), 0.029),
    (("Protective-serv", 0.5), 0.02),
    (("Priv-house-serv", -1.5), 0.005),
];

const OTHER_RELATIONSHIPS: &Words =
    &[("Not-in-family", 0.47), ("Own-child", 0.29), ("Unmarried", 0.19), ("Other-relative", 0.05)];

const RACES: &Words = &[
    ("White", 0.854),
    ("Black", 0.096),
    ("Asian-Pac-Islander", 0.032),
    ("Amer-Indian-Eskimo", 0.01),
    ("Other", 0.008),
];

const COUNTRIES: &Words = &[
    ("United-States", 0.896),
    ("Mexico", 0.02),
    ("", 0.018),
    ("Philippines", 0.006),
    ("Germany", 0.004),
    ("Canada", 0.004),
    ("Puerto-Rico", 0.004),
    ("El-Salvador", 0.003),
    ("India", 0.003),
    ("Cuba", 0.003),
    ("England", 0.003),
    ("Jamaica", 0.003),
    ("China", 0.002),
    ("Italy", 0.002),
];

/// How much education and occupation say together.
const CROSS_SAYS: f64 = 0.8;

/// The streams of draws: records, their labels, and the truth about crossed words.
const RECORDS: u64 = 1;
const LABELS: u64 = 2;
const OF_CROSSES: u64 = 3;

/// A world of people who earn above or below 50K.
#[derive(Clone, Debug)]
pub struct Census {
    seed: u64,
    bias: f64,
}

struct Person {
    age: u64,
    workclass: &'static str,
    fnlwgt: u64,
    education: (&'static str, u64),
    marital_status: &'static str,
    occupation: (&'static str, f64),
    relationship: &'static str,
    race: &'static str,
    sex: &'static str,
    capital_gain: u64,
    capital_loss: u64,
    hours: u64,
    country: &'static str,
}

impl Census {
    /// The world of a seed.
    pub fn new(seed: u64) -> Census {
        let mut world = Census { seed, bias: 0.0 };
        world.bias = bias(ABOVE, |record| world.score(&world.person(record)));
        world
    }

    fn person(&self, record: u64) -> Person {
        let rng = &mut Rng::new(seed::derive(self.seed, &[RECORDS, record]));
        let age = (38.6 + 13.6 * normal(rng)).clamp(17.0, 90.0) as u64;
        let marital_status = match age {
            ..22 if happens(rng, 0.9) => "Never-married",
            _ => pick(rng, MARITAL_STATUSES),
        };
        let sex = if happens(rng, 0.67) { "Male" } else { "Female" };
        let relationship = match (marital_status, sex) {
            ("Married-civ-spouse", "Male") => "Husband",
            ("Married-civ-spouse", _) => "Wife",
            _ => pick(rng, OTHER_RELATIONSHIPS),
        };
        let hours = match rng.uniform() {
            share if share < 0.47 => 40,
            _ => (40.0 + 14.0 * normal(rng)).clamp(1.0, 99.0) as u64,
        };
        let amount = |rng: &mut Rng, mean: f64| libm::exp(mean + 0.5 * normal(rng)) as u64;
        Person {
            age,
            workclass: pick(rng, WORKCLASSES),
            fnlwgt: libm::exp(12.0 + 0.5 * normal(rng)) as u64,
            education: pick(rng, EDUCATIONS),
            marital_status,
            occupation: pick(rng, OCCUPATIONS),
            relationship,
            race: pick(rng, RACES),
            sex,
            capital_gain: if happens(rng, 0.083) { amount(rng, 8.8) } else { 0 },
            capital_loss: if happens(rng, 0.047) { amount(rng, 7.5) } else { 0 },
            hours,
            country: pick(rng, COUNTRIES),
        }
    }

    fn score(&self, person: &Person) -> f64 {
        let years = (person.age as f64 - 48.0) / 16.0;
        let married = if person.marital_status.starts_with("Married-civ") { 1.7 } else { 0.0 };
        let gain = libm::log1p(person.capital_gain as f64 / 1000.0);
        let loss = libm::log1p(person.capital_loss as f64 / 1000.0);
        // Education as its place in the list, and occupation as its name's: both are parts of the truth's name.
        let education = person.education.1;
        let occupation = OCCUPATIONS.iter().position(|known| known.0.0 == person.occupation.0);
        let cross = weight(self.seed, &[OF_CROSSES, education, occupation.unwrap_or(0) as u64]);
        0.28 * (education as f64 - 10.0) + person.occupation.1 - years * years
            + married
            + 0.03 * (person.hours as f64 - 40.0)
            + 1.2 * gain
            + 0.6 * loss
            + CROSS_SAYS * cross
    }
}

impl World for Census {
    fn columns(&self) -> &'static [&'static str] {
        &CENSUS_COLUMNS
    }

    fn format(&self) -> Format {
        Format::Census
    }

    fn draw(&self, record: u64) -> Drawn {
        let person = self.person(record);
        let probability = sigmoid(self.score(&person) + self.bias);
        let rng = &mut Rng::new(seed::derive(self.seed, &[LABELS, record]));
        let label = happens(rng, probability);
        let cells = vec![
            person.age.to_string(),
            person.workclass.to_owned(),
            person.fnlwgt.to_string(),
            person.education.0.to_owned(),
            person.education.1.to_string(),
            person.marital_status.to_owned(),
            person.occupation.0.to_owned(),
            person.relationship.to_owned(),
            person.race.to_owned(),
            person.sex.to_owned(),
            person.capital_gain.to_string(),
            person.capital_loss.to_string(),
            person.hours.to_string(),
            person.country.to_owned(),
            u8::from(label).to_string(),
        ];
        Drawn { cells, probability, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_frequent_as_in_the_real_file() {
        let world = Census::new(1);
        let records: Vec<Drawn> = (0..8000).map(|record| world.draw(record)).collect();
        let check = |column: &str, word: &str, share: f64| {
            let at = CENSUS_COLUMNS.iter().position(|name| *name == column).unwrap();
            let found = records.iter().filter(|drawn| drawn.cells[at] == word).count();
            let found = found as f64 / records.len() as f64;
            assert!((found - share).abs() < 0.025, "{column}={word}: {found}");
        };
        check("workclass", "Private", 0.697);
        check("workclass", "", 0.056);
        check("education", "Bachelors", 0.165);
        check("education_num", "13", 0.165);
        check("occupation", "Sales", 0.112);
        check("sex", "Male", 0.67);
        check("capital_gain", "0", 0.917);
        check("native_country", "United-States", 0.896);
        check("label", "1", ABOVE);
    }

    #[test]
    fn husbands_are_married_men() {
        let world = Census::new(2);
        let people: Vec<Person> = (0..2000).map(|record| world.person(record)).collect();
        let husbands: Vec<&Person> =
            people.iter().filter(|person| person.relationship == "Husband").collect();
        assert!(husbands.len() > 300);
        assert!(
            husbands.iter().all(|p| p.sex == "Male" && p.marital_status.starts_with("Married"))
        );
        assert!(people.iter().all(|person| (17..=90).contains(&person.age)));
    }
}
