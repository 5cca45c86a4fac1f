//! What an example's inputs are called and hold, for those who ask a trained model.

/// A field of an example that is no label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The field.
    pub field: &'static str,
    /// The columns that it is read from, in their order.
    pub columns: &'static [&'static str],
    /// What its values are, in the words of the Open Inference Protocol: `FP32`, `INT64`, `BYTES` (text, or the bytes
    /// of a picture's file).
    pub datatype: &'static str,
    /// The shape of one record's values; nothing for a single one, and for any number of them.
    pub shape: &'static [usize],
    /// Whether there may be any number of values.
    pub ragged: bool,
    /// Whether the columns may be absent.
    pub optional: bool,
}

impl InputSpec {
    /// The shape of what one of the columns holds for one record: `-1` stands for any number.
    pub fn column_shape(&self) -> Vec<i64> {
        let values: usize = self.shape.iter().product();
        match self.columns.len() {
            _ if self.ragged => vec![-1],
            _ if self.datatype == "BYTES" => vec![1],
            1 if self.shape.is_empty() => vec![1],
            1 => self.shape.iter().map(|size| *size as i64).collect(),
            columns if columns == values => vec![1],
            _ => vec![-1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_columns_share_the_shape() {
        let check = |columns, shape, expected: &[i64]| {
            let spec = InputSpec {
                field: "x",
                columns,
                datatype: "FP32",
                shape,
                ragged: false,
                optional: false,
            };
            assert_eq!(spec.column_shape(), expected);
        };
        check(&["x"], &[], &[1]);
        check(&["x"], &[1, 28, 28], &[1, 28, 28]);
        check(&["x", "y"], &[2], &[1]);
        check(&["x", "y"], &[6], &[-1]);
    }
}
