//! The table of epochs: a row as soon as an epoch, or a validation within it, is done.

use std::collections::BTreeMap;

use indicatif::ProgressBar;
use salamander_train::callback::{Callback, EpochReport};

use super::{Out, clock};

/// Prints the rows; the columns are known when the first row is.
pub(crate) struct EpochTable {
    out: Out,
    bar: Option<ProgressBar>,
    columns: Option<Vec<String>>,
}

impl EpochTable {
    pub(crate) fn new(out: Out, bar: Option<ProgressBar>) -> Self {
        Self { out, bar, columns: None }
    }

    fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.line(line)),
            None => self.out.line(line),
        }
    }
}

impl Callback for EpochTable {
    fn epoch_end(&mut self, epoch: &EpochReport) {
        let training = epoch.training.values();
        let validation = epoch.validation.as_ref().map(|metrics| metrics.values());
        let shown = validation.clone().unwrap_or_else(|| training.clone());
        if self.columns.is_none() {
            let names = shown.keys().filter(|name| *name != "loss").cloned();
            let columns: Vec<String> = names.collect();
            self.print(&header(&columns));
            self.columns = Some(columns);
        }
        let columns = self.columns.clone().unwrap_or_default();
        let row = row(epoch, &training, validation.as_ref(), &shown, &columns);
        self.print(&row);
    }
}

fn header(columns: &[String]) -> String {
    let mut line = format!("{:>9} {:>11} {:>11}", "epoch", "train_loss", "valid_loss");
    for column in columns {
        line.push_str(&format!(" {column:>11}"));
    }
    line.push_str(&format!(" {:>8}", "time"));
    line
}

fn row(
    epoch: &EpochReport,
    training: &BTreeMap<String, f64>,
    validation: Option<&BTreeMap<String, f64>>,
    shown: &BTreeMap<String, f64>,
    columns: &[String],
) -> String {
    let number = if epoch.complete {
        format!("{}", epoch.epoch + 1)
    } else {
        format!("{}@{}", epoch.epoch + 1, epoch.steps)
    };
    let cell = |value: Option<&f64>| match value {
        Some(value) => format!("{value:>11.4}"),
        None => format!("{:>11}", "-"),
    };
    let mut line = format!(
        "{number:>9} {} {}",
        cell(training.get("loss")),
        cell(validation.and_then(|values| values.get("loss")))
    );
    for column in columns {
        line.push_str(&format!(" {}", cell(shown.get(column))));
    }
    line.push_str(&format!(" {:>8}", clock(epoch.seconds)));
    if epoch.best {
        line.push_str(" best");
    }
    line
}

#[cfg(test)]
mod tests {
    use salamander_core::metrics::{Metric, Metrics};

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
            steps: 10,
            training: metrics(0.7),
            validation: Some(metrics(0.5)),
            seconds: 63.0,
            best: true,
        };
        let columns = vec!["accuracy".to_string()];
        let (training, validation) = (metrics(0.7).values(), metrics(0.5).values());
        let row = row(&epoch, &training, Some(&validation), &validation, &columns);
        assert_eq!(
            format!("{}\n{row}", header(&columns)),
            "    epoch  train_loss  valid_loss    accuracy     time\n\
             \x20       1      0.7000      0.5000      0.5000    01:03 best"
        );
    }
}
