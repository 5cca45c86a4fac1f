//! Precision, recall and F1 per class, because one accuracy hides the class that is never found.

use std::fmt;

use serde::Serialize;

/// The quality of a classifier, per class and on average.
///
/// ```
/// use salamander_run::report::ClassReport;
///
/// let names = ["cat".to_owned(), "dog".to_owned()];
/// let report = ClassReport::from_confusion(&names, &[8, 2, 1, 9]);
/// assert_eq!(report.accuracy, 0.85);
/// println!("{report:.4}");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassReport {
    /// One row per class, in the order of the names.
    pub rows: Vec<ClassRow>,
    /// The share of all samples that were predicted right.
    pub accuracy: f64,
    /// The mean over the classes, each counting the same.
    pub macro_avg: ClassRow,
    /// The mean over the classes, each counting as much as it has samples.
    pub weighted_avg: ClassRow,
}

/// One line of a [`ClassReport`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassRow {
    /// The class, or the kind of average.
    pub name: String,
    /// Of the samples predicted as this class, the share that belongs to it.
    pub precision: f64,
    /// Of the samples of this class, the share that was predicted as it.
    pub recall: f64,
    /// The harmonic mean of precision and recall.
    pub f1: f64,
    /// How many samples belong to this class.
    pub support: u64,
}

impl ClassReport {
    /// Builds the report from row-major counts, truth by prediction. As in scikit-learn, a ratio
    /// whose denominator is zero is 0.0, and classes without samples count in the macro average.
    ///
    /// # Panics
    /// If `counts` does not hold one count per pair of names.
    pub fn from_confusion(names: &[String], counts: &[u64]) -> ClassReport {
        let classes = names.len();
        assert_eq!(counts.len(), classes * classes, "one count per pair of classes");
        let rows: Vec<ClassRow> =
            names.iter().enumerate().map(|(class, name)| class_row(name, class, counts)).collect();
        let total: u64 = rows.iter().map(|row| row.support).sum();
        let right: u64 = (0..classes).map(|class| counts[class * classes + class]).sum();
        ClassReport {
            accuracy: ratio(right as f64, total as f64),
            macro_avg: average("macro avg", &rows, |_| 1.0),
            weighted_avg: average("weighted avg", &rows, |row| row.support as f64),
            rows,
        }
    }
}

/// The layout of scikit-learn's `classification_report`; a precision such as `{:.4}` sets the
/// digits, which are 2 otherwise.
impl fmt::Display for ClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let all = self.rows.iter().chain([&self.macro_avg, &self.weighted_avg]);
        let width = all.map(|row| row.name.chars().count()).max().unwrap_or(0);
        let column = (digits + 2).max("precision".len());

        let (precision, recall, f1) = ("precision", "recall", "f1-score");
        writeln!(
            f,
            "{:width$}  {precision:>column$} {recall:>column$} {f1:>column$} {:>9}\n",
            "", "support"
        )?;
        for row in &self.rows {
            write_row(f, row, (width, column, digits))?;
        }
        let (accuracy, support) = (self.accuracy, self.macro_avg.support);
        let gap = 2 * (column + 1);
        writeln!(
            f,
            "\n{:>width$}  {:gap$}{accuracy:>column$.digits$} {support:>9}",
            "accuracy", ""
        )?;
        write_row(f, &self.macro_avg, (width, column, digits))?;
        write_row(f, &self.weighted_avg, (width, column, digits))
    }
}

fn write_row(
    f: &mut fmt::Formatter<'_>,
    row: &ClassRow,
    (width, column, digits): (usize, usize, usize),
) -> fmt::Result {
    let ClassRow { name, precision, recall, f1, support } = row;
    write!(f, "{name:>width$}  {precision:>column$.digits$} {recall:>column$.digits$} ")?;
    writeln!(f, "{f1:>column$.digits$} {support:>9}")
}

fn class_row(name: &str, class: usize, counts: &[u64]) -> ClassRow {
    let classes = counts.len().isqrt();
    let hits = counts[class * classes + class] as f64;
    let support: u64 = counts[class * classes..][..classes].iter().sum();
    let predicted: u64 = counts.iter().skip(class).step_by(classes).sum();
    ClassRow {
        name: name.to_owned(),
        precision: ratio(hits, predicted as f64),
        recall: ratio(hits, support as f64),
        f1: ratio(2.0 * hits, support as f64 + predicted as f64),
        support,
    }
}

fn average(name: &str, rows: &[ClassRow], weight: impl Fn(&ClassRow) -> f64) -> ClassRow {
    let weights: f64 = rows.iter().map(&weight).sum();
    let mean = |value: fn(&ClassRow) -> f64| {
        ratio(rows.iter().map(|row| weight(row) * value(row)).sum(), weights)
    };
    ClassRow {
        name: name.to_owned(),
        precision: mean(|row| row.precision),
        recall: mean(|row| row.recall),
        f1: mean(|row| row.f1),
        support: rows.iter().map(|row| row.support).sum(),
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(names: &[&str], counts: &[u64]) -> ClassReport {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        ClassReport::from_confusion(&names, counts)
    }

    /// The example of scikit-learn's manual: y_true = [0, 1, 2, 2, 2], y_pred = [0, 0, 2, 2, 1].
    fn manual() -> ClassReport {
        report(&["class 0", "class 1", "class 2"], &[1, 0, 0, 1, 0, 0, 0, 1, 2])
    }

    #[test]
    fn table_is_the_one_scikit_learn_prints() {
        let expected = "              precision    recall  f1-score   support

     class 0       0.50      1.00      0.67         1
     class 1       0.00      0.00      0.00         1
     class 2       1.00      0.67      0.80         3

    accuracy                           0.60         5
   macro avg       0.50      0.56      0.49         5
weighted avg       0.70      0.60      0.61         5
";
        assert_eq!(manual().to_string(), expected);
    }

    #[test]
    fn more_digits_keep_the_columns_aligned() {
        for digits in [0, 4, 12] {
            let text = format!("{:.digits$}", manual());
            let mut widths: Vec<usize> =
                text.lines().map(str::len).filter(|&width| width > 0).collect();
            widths.dedup();
            assert_eq!(widths.len(), 1, "{text}");
        }
    }

    #[test]
    fn long_names_widen_the_table() {
        let text = report(&["a", "a name of many characters"], &[1, 0, 0, 1]).to_string();
        assert!(text.contains("\na name of many characters       1.00"), "{text}");
    }

    #[test]
    fn class_without_samples_or_predictions_scores_zero() {
        let report = report(&["seen", "absent"], &[4, 0, 0, 0]);
        assert_eq!(report.rows[1].precision, 0.0);
        assert_eq!(report.rows[1].recall, 0.0);
        assert_eq!(report.rows[1].f1, 0.0);
        assert_eq!(report.macro_avg.f1, 0.5);
        assert_eq!(report.weighted_avg.f1, 1.0);
    }

    #[test]
    fn nothing_evaluated_scores_zero_everywhere() {
        assert_eq!(report(&["a", "b"], &[0; 4]).accuracy, 0.0);
        assert_eq!(report(&[], &[]).weighted_avg.support, 0);
    }
}
