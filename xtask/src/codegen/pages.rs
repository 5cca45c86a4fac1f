//! The smaller reference pages of the guide: attributes of the derives, formats, environment variables.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use salamander_core::environment::{FOR_PEOPLE, FOR_PODS, Variable};
use salamander_data::Format;

/// The table that the derive crate takes its keys from.
const ATTRIBUTES: &str = "crates/salamander-derive/src/attributes.md";

/// The attributes of the derives.
pub(super) fn attributes(root: &Path) -> anyhow::Result<String> {
    let table = std::fs::read_to_string(root.join(ATTRIBUTES))
        .with_context(|| format!("cannot read {ATTRIBUTES}"))?;
    let opening = "\
# Attributes of the derives

What structs and fields may say of themselves. [Your data](../data.md) and
[Hyperparameters](../hyperparameters.md) show them at work. A mistake is an error of the compiler that
says what to write.

";
    Ok(super::head(opening) + &table.replace("\r\n", "\n"))
}

/// What `--format` takes.
pub(super) fn formats() -> String {
    let opening = "\
# Formats

What `--format`, `--to` and `data.format` in an experiment file take. Without them a file's ending tells
the format, or else its whole name or its first bytes. [Your data](../data.md) says more of each.

| name | what it is | endings |
| --- | --- | --- |
";
    let mut page = super::head(opening);
    for &format in Format::ALL {
        let endings: Vec<String> =
            format.endings().iter().map(|ending| format!("`.{ending}`")).collect();
        let _ = writeln!(page, "| `{format}` | {} | {} |", format.about(), endings.join(", "));
    }
    page
}

/// The environment variables that the program reads.
pub(super) fn environment() -> String {
    let opening = "\
# Environment variables

None has to be set.
";
    let mut page = super::head(opening);
    table(&mut page, "For people", "Set these where you start the program.", FOR_PEOPLE);
    table(&mut page, "In pods", "Manifests and the operator set these.", FOR_PODS);
    page
}

fn table(page: &mut String, title: &str, about: &str, variables: &[Variable]) {
    let _ = writeln!(page, "\n## {title}\n\n{about}\n\n| variable | default | meaning |");
    let _ = writeln!(page, "| --- | --- | --- |");
    for Variable { name, default, meaning } in variables {
        let _ = writeln!(page, "| `{name}` | {default} | {meaning} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_a_row_for_each_entry() {
        let formats = formats();
        for format in Format::ALL {
            assert!(formats.contains(&format!("| `{format}` | {}", format.about())), "{format}");
        }
        let environment = environment();
        assert!(environment.contains("| `SALAMANDER_LOG` | info |"), "{environment}");
    }
}
