//! The text of a program and an experiment for the columns of a table.

use std::path::Path;

use salamander_core::experiment::{CsvHeader, CsvSettings};

use super::LabelColumn;
use super::columns::{BUCKETS, ColumnKind, InputColumn, identifier};

/// The program: the columns as fields, embeddings of words beside numbers, two layers.
pub(super) fn program(file: &Path, target: &LabelColumn, fields: &[InputColumn]) -> String {
    let numbers: Vec<&InputColumn> = fields.iter().filter(|field| is_number(field)).collect();
    let words: Vec<&InputColumn> = fields.iter().filter(|field| !is_number(field)).collect();
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    let label = identifier(&target.column);
    let mut text = format!(
        "//! A network for the columns of {file}, written by `salamander new --tabular`: change it as you like.\n\n"
    );
    text += "use salamander::prelude::*;\n";
    text += &hyperparameters(!words.is_empty());
    text += &example(target, &label, fields);
    if !words.is_empty() {
        let rows: Vec<String> = words.iter().map(|field| rows(field).to_string()).collect();
        text += &format!(
            "/// Rows of the embedding of each column of words.\nconst WORDS: [usize; {}] = [{}];\n\n",
            rows.len(),
            rows.join(", ")
        );
    }
    text += &model(&numbers, &words, target);
    text += &learning(target, &label);
    text + "fn main() -> std::process::ExitCode {\n    salamander::main(models![Network])\n}\n"
}

/// The experiment that trains it.
pub(super) fn experiment(
    name: &str,
    target: &LabelColumn,
    columns: &[String],
    csv: &CsvSettings,
) -> String {
    let (metric, smaller) = match target.classes {
        Some(_) => ("accuracy", false),
        None => ("rmse", true),
    };
    let csv = csv_line(columns, csv);
    format!(
        "name: {name}\n\
         entrypoint: tabular\n\
         data:\n  training: data/train.csv\n  validation: data/valid.csv\n{csv}\
         hyperparameters:\n  global_batch_size: 64\n  learning_rate: 0.001\n\
         searcher:\n  metric: {metric}\n  smaller_is_better: {smaller}\n  max_length: {{epochs: 10}}\n"
    )
}

/// How the files are written down; nothing where that is as usual.
fn csv_line(columns: &[String], csv: &CsvSettings) -> String {
    // Names that are numbers look like a record, which is refused unless somebody says that they are names.
    let odd = columns.iter().any(|column| column.trim().parse::<f64>().is_ok());
    let mut said = Vec::new();
    if odd || csv.header == Some(CsvHeader::Yes) {
        said.push("header: yes".to_string());
    }
    said.extend(csv.separator.map(|sign| format!("separator: {:?}", sign.to_string())));
    said.extend(csv.trim.then(|| "trim: true".to_string()));
    if !csv.missing.is_empty() {
        said.push(format!("missing: {:?}", csv.missing));
    }
    match said.is_empty() {
        true => String::new(),
        false => format!("  csv: {{{}}}\n", said.join(", ")),
    }
}

fn is_number(field: &InputColumn) -> bool {
    matches!(field.kind, ColumnKind::Number { .. })
}

/// Words of a vocabulary have a row each, and all others one together.
fn rows(field: &InputColumn) -> usize {
    match &field.kind {
        ColumnKind::Vocabulary { words, .. } => words + 1,
        ColumnKind::Hashed | ColumnKind::Number { .. } => BUCKETS,
    }
}

fn hyperparameters(words: bool) -> String {
    let embedding = match words {
        true => "    #[hparam(default = 8, min = 1)]\n    embedding: usize,\n",
        false => "",
    };
    format!(
        "\n#[derive(Hparams)]\npub struct Hp {{\n    \
         #[hparam(default = 0.001, min = 0.0)]\n    learning_rate: f64,\n    \
         #[hparam(default = 64, min = 1)]\n    hidden: usize,\n{embedding}}}\n\n"
    )
}

fn example(target: &LabelColumn, label: &str, fields: &[InputColumn]) -> String {
    let mut text =
        String::from("/// A row of the table.\n#[derive(Example)]\npub struct Record {\n");
    for field in fields {
        let mut said = Vec::new();
        if field.column != field.ident {
            said.push(format!("column = {:?}", field.column));
        }
        let kind = match &field.kind {
            ColumnKind::Number { missing } => {
                said.push("normalise = \"stats.json\"".to_string());
                said.push(format!("missing = {missing:?}"));
                "f32"
            }
            // A word may be missing in other files than this one, too.
            ColumnKind::Vocabulary { file, .. } => {
                said.push(format!("vocabulary = {file:?}, oov = 1, missing = \"none\""));
                "String"
            }
            ColumnKind::Hashed => {
                said.push(format!("hash = {BUCKETS}, missing = \"none\""));
                "String"
            }
        };
        text += &format!("    #[input({})]\n    {}: {kind},\n", said.join(", "), field.ident);
    }
    let mut said = Vec::new();
    if target.column != label {
        said.push(format!("column = {:?}", target.column));
    }
    let kind = match &target.classes {
        Some(_) if target.is_numbered() => "i64",
        Some(classes) => {
            said.push(format!("classes = {classes:?}"));
            "String"
        }
        None => "[f32; 1]",
    };
    let said = match said.is_empty() {
        true => String::new(),
        false => format!("({})", said.join(", ")),
    };
    text + &format!("    #[label{said}]\n    {label}: {kind},\n}}\n\n")
}

fn model(numbers: &[&InputColumn], words: &[&InputColumn], target: &LabelColumn) -> String {
    let outputs = target.classes.as_ref().map_or(1, Vec::len);
    let count = numbers.len();
    let has_words = !words.is_empty();
    let (field, init, made, width) = match has_words {
        true => (
            "    words: Vec<Embedding>,\n",
            "        let embed = |rows| EmbeddingConfig::new(rows, cx.hp.embedding).init(&cx.device);\n",
            "            words: WORDS.into_iter().map(embed).collect(),\n",
            format!("{count} + WORDS.len() * cx.hp.embedding"),
        ),
        false => ("", "", "", count.to_string()),
    };
    let list = |fields: &[&InputColumn]| -> String {
        let all: Vec<String> = fields.iter().map(|f| format!("&batch.{}", f.ident)).collect();
        all.join(", ")
    };
    let mut forward = String::from("        let mut columns: Vec<Tensor<2>> = Vec::new();\n");
    if count > 0 {
        forward += &format!(
            "        for column in [{}] {{\n            let [records] = column.dims();\n            \
             columns.push(column.clone().reshape([records, 1]));\n        }}\n",
            list(numbers)
        );
    }
    if has_words {
        forward += &format!(
            "        for (embedding, column) in self.words.iter().zip([{}]) {{\n            \
             columns.push(embedding.rows(column.clone()));\n        }}\n",
            list(words)
        );
    }
    format!(
        "#[derive(Module, Debug)]\npub struct Network {{\n{field}    fc1: Linear,\n    fc2: Linear,\n}}\n\n\
         impl Trial for Network {{\n    const NAME: &str = \"tabular\";\n    type Hparams = Hp;\n    \
         type Example = Record;\n    type Output = Tensor<2>;\n\n    \
         fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {{\n{init}        \
         let width = {width};\n        Ok(Self {{\n{made}            \
         fc1: LinearConfig::new(width, cx.hp.hidden).init(&cx.device),\n            \
         fc2: LinearConfig::new(cx.hp.hidden, {outputs}).init(&cx.device),\n        }})\n    }}\n\n    \
         fn forward(&self, batch: &RecordBatch) -> Tensor<2> {{\n{forward}        \
         let hidden = relu(self.fc1.forward(Tensor::cat(columns, 1)));\n        \
         self.fc2.forward(hidden)\n    }}\n\n"
    )
}

fn learning(target: &LabelColumn, label: &str) -> String {
    let (loss, metrics, predict) = match &target.classes {
        Some(_) => (
            "cross_entropy",
            format!("accuracy(output, &batch.{label})"),
            "\n    fn predict(&self, output: Tensor<2>) -> Tensor<2> {\n        softmax(output, 1)\n    }\n",
        ),
        None => (
            "squared_error",
            format!("rmse(output, &batch.{label}).and(mae(output, &batch.{label}))"),
            "",
        ),
    };
    format!(
        "    fn loss(&self, output: &Tensor<2>, batch: &RecordBatch) -> Tensor<1> {{\n        \
         {loss}(output, &batch.{label})\n    }}\n\n    \
         fn optimizer(hp: &Hp) -> impl Into<Optimizer> {{\n        Optimizer::adam(hp.learning_rate)\n    }}\n\n    \
         fn metrics(&self, output: &Tensor<2>, batch: &RecordBatch) -> Metrics {{\n        {metrics}\n    }}\n\
         {predict}}}\n\n"
    )
}
