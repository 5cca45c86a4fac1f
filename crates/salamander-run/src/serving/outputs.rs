//! What a model says, as named tensors: what `predict` writes, and what it was made from.

use salamander_serve::{DataType, Tensor, TensorInfo, Values};
use salamander_train::inference::{Answers, Rows};

use crate::predict::{Prediction, class, softmax};

/// Makes outputs of answers.
pub(super) struct Outputs {
    /// Names of classes where labels are text: predictions are such.
    labels: Vec<String>,
    /// Names of classes for people.
    classes: Vec<String>,
}

impl Outputs {
    pub(super) fn new(labels: Vec<String>, classes: Vec<String>) -> Self {
        Self { labels, classes }
    }

    /// The outputs that there will be; sizes are known once something was answered.
    pub(super) fn describe(&self, answers: Option<&Answers>) -> Vec<TensorInfo> {
        let info = |name: &str, datatype, shape: Vec<i64>| TensorInfo {
            name: name.to_string(),
            datatype,
            shape,
            optional: false,
        };
        let Some(answers) = answers else {
            return vec![info("scores", DataType::Fp32, vec![-1])];
        };
        let tensors = self.tensors(answers.clone());
        let shape =
            |tensor: &Tensor| tensor.shape.iter().skip(1).map(|size| *size as i64).collect();
        tensors.iter().map(|tensor| info(&tensor.name, tensor.datatype, shape(tensor))).collect()
    }

    /// `prediction` and `scores` are as `predict` writes them; `label`, `probabilities` and `logits` are there for
    /// classes.
    pub(super) fn tensors(&self, answers: Answers) -> Vec<Tensor> {
        let Answers { records, classes, values, raw } = answers;
        let mut tensors = Vec::new();
        if classes {
            tensors.push(self.predictions(records, &values));
            if !self.classes.is_empty() && values.width > 1 {
                let name = |row: &[f32]| {
                    let class = class(row);
                    self.classes.get(class).cloned().unwrap_or_else(|| class.to_string())
                };
                let names = rows(&values).map(|row| name(row).into()).collect();
                let (shape, values) = (vec![records], Values::Texts(names));
                tensors.push(tensor("label", DataType::Bytes, shape, values));
            }
        }
        let floats = |name: &str, Rows { width, values }: Rows| {
            tensor(name, DataType::Fp32, vec![records, width], Values::Floats(values))
        };
        tensors.push(floats("scores", values));
        if let Some(raw) = raw.filter(|_| classes) {
            if raw.width > 1 {
                tensors.push(floats("probabilities", probabilities(&raw)));
            }
            tensors.push(floats("logits", raw));
        }
        tensors
    }

    fn predictions(&self, records: usize, values: &Rows) -> Tensor {
        let (mut numbers, mut classes, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows(values) {
            match Prediction::of(row, &self.labels) {
                Prediction::Value(value) => numbers.push(value),
                Prediction::Class(class) => classes.push(class as i64),
                Prediction::Name(name) => texts.push(name.to_string().into()),
            }
        }
        let (datatype, values) = match (numbers.len(), texts.len()) {
            (1.., _) => (DataType::Fp32, Values::Floats(numbers)),
            (_, 1..) if classes.is_empty() => (DataType::Bytes, Values::Texts(texts)),
            _ => (DataType::Int64, Values::Ints(classes)),
        };
        tensor("prediction", datatype, vec![records], values)
    }
}

fn tensor(name: &str, datatype: DataType, shape: Vec<usize>, values: Values) -> Tensor {
    Tensor { name: name.to_string(), datatype, shape, values }
}

fn rows(values: &Rows) -> impl Iterator<Item = &[f32]> {
    values.values.chunks(values.width.max(1))
}

/// Softmax of each row.
fn probabilities(logits: &Rows) -> Rows {
    let mut values = Vec::with_capacity(logits.values.len());
    for row in rows(logits) {
        values.extend(softmax(row));
    }
    Rows { width: logits.width, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(classes: bool, width: usize) -> Answers {
        let rows = Rows { width, values: [0.0, 1.0, 3.0, 2.0].repeat(width) };
        let raw = Some(rows.clone());
        Answers { records: 4, classes, values: rows, raw }
    }

    fn names(outputs: &Outputs, answers: &Answers) -> String {
        let show =
            |info: TensorInfo| format!("{} {} {:?}", info.name, info.datatype.name(), info.shape);
        let all: Vec<String> = outputs.describe(Some(answers)).into_iter().map(show).collect();
        all.join(", ")
    }

    #[test]
    fn outputs_follow_from_what_the_model_says() {
        let words = || vec!["a".to_string(), "b".to_string()];
        let check = |outputs: Outputs, answers: Answers, expected: &str| {
            assert_eq!(names(&outputs, &answers), expected);
        };
        let none = || Outputs::new(Vec::new(), Vec::new());
        check(none(), answers(false, 2), "scores FP32 [2]");
        check(none(), answers(true, 1), "prediction FP32 [], scores FP32 [1], logits FP32 [1]");
        check(
            none(),
            answers(true, 2),
            "prediction INT64 [], scores FP32 [2], probabilities FP32 [2], logits FP32 [2]",
        );
        check(
            Outputs::new(words(), words()),
            answers(true, 2),
            "prediction BYTES [], label BYTES [], scores FP32 [2], probabilities FP32 [2], logits FP32 [2]",
        );
    }

    #[test]
    fn classes_are_those_of_the_greatest_score() {
        let outputs = Outputs::new(vec!["no".to_string(), "yes".to_string()], Vec::new());
        let found = outputs.tensors(answers(true, 2));
        assert_eq!(
            found[0].values,
            Values::Texts(vec!["yes".into(), "no".into(), "yes".into(), "no".into()])
        );
        let Values::Floats(shares) = &found[2].values else { panic!("floats are due") };
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-6 && shares[1] > shares[0]);
    }
}
