//! Census Income (<https://archive.ics.uci.edu/dataset/2/adult>): the example that [`wide_deep`](super::wide_deep) and
//! [`dnn`](super::dnn) read, from `adult.data` or from what `salamander data generate census` writes.

use salamander::prelude::*;

/// Words of a person: columns that share one table.
pub const WORDS: usize = 8;
/// Numbers of a person.
pub const NUMBERS: usize = 5;
/// Ids of a person for a linear model: words, the age, and two crosses.
pub const WIDE: usize = WORDS + 3;

/// Words have ids below two to this power, so that two of them and an age fit into one id.
const WORD_BITS: u32 = 24;
/// Above these bits stands which cross an id is of.
const CROSS_BITS: u32 = 56;
/// Where the education and the occupation stand among the words.
const EDUCATION: usize = 1;
const OCCUPATION: usize = 3;

/// A person, and whether the income is above 50K.
#[derive(Example)]
pub struct Person {
    #[input(
        columns = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
                   "native_country"],
        hash = 1 << WORD_BITS,
        missing = "?"
    )]
    words: [String; WORDS],
    #[input(
        columns = ["age", "education_num", "hours_per_week", "capital_gain", "capital_loss"],
        missing = 0
    )]
    numbers: [f32; NUMBERS],
    #[input(
        column = "age",
        discretise = [18, 25, 30, 35, 40, 45, 50, 55, 60, 65],
        missing = 0
    )]
    age_group: f32,
    #[label]
    label: u8,
}

impl PersonBatch {
    /// The numbers, around zero and of about the same size: amounts of money as their logarithm.
    pub fn dense(&self) -> Tensor<2> {
        let (device, dtype) = (self.numbers.device(), self.numbers.dtype());
        let row = |values: [f32; 3]| Tensor::<2>::from_data([values], &device).cast(dtype);
        let usual = self.numbers.clone().narrow(1, 0, 3);
        let usual = (usual - row([38.6, 10.1, 40.4])) / row([13.6, 2.6, 12.4]);
        let money = self.numbers.clone().narrow(1, 3, 2).clamp_min(0.0).log1p() * 0.2;
        Tensor::cat(vec![usual, money], 1)
    }

    /// The ids of a linear model: the words, the group of the age, and the crosses of the paper, education with
    /// occupation, without and with the age.
    pub fn wide(&self) -> Tensor<2, Int> {
        let word = |at: usize| self.words.clone().narrow(1, at, 1);
        let age = self.age_group.clone().unsqueeze_dim::<2>(1);
        let pair = word(EDUCATION) * (1i64 << WORD_BITS) + word(OCCUPATION);
        let with_age = age.clone() * (1i64 << (2 * WORD_BITS)) + pair.clone();
        // Below zero, where no word's id is.
        let age = -age - 1;
        let (pair, with_age) = (pair + (1i64 << CROSS_BITS), with_age + (2i64 << CROSS_BITS));
        Tensor::cat(vec![self.words.clone(), age, pair, with_age], 1)
    }
}
