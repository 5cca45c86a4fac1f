//! The table of epochs: a row as soon as an epoch, or a validation within it, is done.

use salamander_run::EpochReport;

use super::clock;

/// Writes the rows; the columns are known when the first row is.
#[derive(Default)]
pub(crate) struct EpochTable {
    columns: Option<Vec<String>>,
}

impl EpochTable {
    /// The row of an epoch, below a header if it is the first.
    pub(crate) fn add(&mut self, epoch: &EpochReport) -> String {
        let training = epoch.training.values();
        let validation = epoch.validation.as_ref().map(|metrics| metrics.values());
        let shown = validation.as_ref().unwrap_or(&training);
        let mut lines = String::new();
        let columns = self.columns.get_or_insert_with(|| {
            let names = shown.keys().filter(|name| *name != "loss").cloned();
            let columns: Vec<String> = names.collect();
            lines = header(&columns) + "\n";
            columns
        });
        let cell = |value: Option<&f64>| match value {
            Some(value) => format!(" {value:>11.4}"),
            None => format!(" {:>11}", "-"),
        };
        let number = match epoch.complete {
            true => (epoch.epoch + 1).to_string(),
            false => format!("{}@{}", epoch.epoch + 1, epoch.steps),
        };
        lines += &format!("{number:>9}");
        lines += &cell(training.get("loss"));
        lines += &cell(validation.as_ref().and_then(|values| values.get("loss")));
        lines.extend(columns.iter().map(|column| cell(shown.get(column))));
        lines += &format!(" {:>8}", clock(epoch.seconds));
        lines + if epoch.best { " best" } else { "" }
    }
}

fn header(columns: &[String]) -> String {
    let columns: String = columns.iter().map(|column| format!(" {column:>11}")).collect();
    format!("{:>9} {:>11} {:>11}{columns} {:>8}", "epoch", "train_loss", "valid_loss", "time")
}

#[cfg(test)]
mod tests {
    use salamander_core::metrics::{Metric, Metrics};
    use salamander_core::progress::StepCount;

    use super::*;

    #[test]
    fn rows_line_up_with_the_header() {
        let metrics = |loss: f64| {
            Metrics::new()
                .with("loss", Metric::mean(loss, 1.0))
                .with("accuracy", Metric::mean(0.5, 1.0))
        };
        let epoch = EpochReport {
            epoch: 0,
            complete: true,
            steps: StepCount(10),
            training: metrics(0.7),
            validation: Some(metrics(0.5)),
            seconds: 63.0,
            best: true,
        };
        let mut table = EpochTable::default();
        assert_eq!(
            table.add(&epoch),
            "    epoch  train_loss  valid_loss    accuracy     time\n\
             \x20       1      0.7000      0.5000      0.5000    01:03 best"
        );
        let part = EpochReport { complete: false, validation: None, best: false, ..epoch };
        assert_eq!(table.add(&part), "     1@10      0.7000           -      0.5000    01:03");
    }
}
