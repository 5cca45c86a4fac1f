//! What a reference may name, and of which type that is: known before anything runs.

use salamander_core::yaml::{Error, nearest};
use serde_json::Value as Json;

use super::condition::{Comparison, Condition, Operand};
use super::kind::{FieldKind, Leaves};
use super::spec::PipelineStep;
use super::template::{Piece, Reference, Template};

/// Names that are not steps.
pub(crate) const RESERVED: [&str; 6] = ["params", "parameters", "item", "in", "out", "program"];

/// What a value is, as far as that is known from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Number,
    Text,
    Bool,
    /// A file or folder.
    File,
    List,
    Any,
}

impl Type {
    fn of(value: &Json) -> Type {
        match value {
            Json::Number(_) => Type::Number,
            Json::String(_) => Type::Text,
            Json::Bool(_) => Type::Bool,
            Json::Array(_) => Type::List,
            _ => Type::Any,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Type::Number => "a number",
            Type::Text => "a text",
            Type::Bool => "true or false",
            Type::File => "a file or folder",
            Type::List => "a list",
            Type::Any => "a value",
        }
    }
}

/// Everything that a file names.
pub(crate) struct PipelineNames<'a> {
    pub(crate) parameters: &'a Json,
    pub(crate) steps: &'a [PipelineStep],
}

impl PipelineNames<'_> {
    /// Checks every reference of a step, and what fields hold.
    pub(crate) fn check(&self, step: &PipelineStep) -> Result<(), Error> {
        for (name, template) in &step.fields {
            let check = self.field(step, name, template);
            check.map_err(|error| error.within(name).within(&step.name))?;
        }
        for (name, template) in &step.inputs {
            let within = |error: Error| error.within(name).within("in").within(&step.name);
            self.files(step, template).map_err(within)?;
        }
        if let Some(template) = &step.for_each {
            let check = self.for_each(step, template);
            check.map_err(|error| error.within("for_each").within(&step.name))?;
        }
        if let Some(condition) = &step.when {
            let check = self.condition(step, condition);
            check.map_err(|error| error.within("when").within(&step.name))?;
        }
        Ok(())
    }

    fn field(&self, step: &PipelineStep, name: &str, template: &Template) -> Result<(), Error> {
        match step.kind.field(name) {
            Some(
                FieldKind::Files | FieldKind::Source | FieldKind::Model | FieldKind::Experiment,
            ) => self.files(step, template),
            Some(field) => {
                for reference in template.references() {
                    let found = self.type_of(step, reference)?;
                    let alone = matches!(template, Template::Text(pieces) if pieces.len() == 1);
                    let fits = match field {
                        FieldKind::Number => matches!(found, Type::Number | Type::Any),
                        FieldKind::Flag => matches!(found, Type::Bool | Type::Any),
                        _ => true,
                    };
                    if alone && !fits {
                        let wanted =
                            if field == FieldKind::Number { Type::Number } else { Type::Bool };
                        let message = format!("is {}, not {}", found.name(), wanted.name());
                        return Err(reference.wrong(&message));
                    }
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Numbers are no files, unless they are a part of a name.
    fn files(&self, step: &PipelineStep, template: &Template) -> Result<(), Error> {
        for reference in template.references() {
            let found = self.type_of(step, reference)?;
            let alone = match template {
                Template::Text(pieces) => matches!(pieces.as_slice(), [Piece::Value(_)]),
                _ => false,
            };
            if alone && matches!(found, Type::Number | Type::Bool) {
                return Err(reference.wrong(&format!("is {}, not a file or folder", found.name())));
            }
        }
        Ok(())
    }

    fn for_each(&self, step: &PipelineStep, template: &Template) -> Result<(), Error> {
        for reference in template.references() {
            if reference.head() == "item" {
                return Err(reference.wrong("is known only when the list is"));
            }
            let found = self.type_of(step, reference)?;
            let alone = matches!(template, Template::Text(_));
            if alone && !matches!(found, Type::List | Type::Any) {
                return Err(reference.wrong(&format!("is {}, not a list", found.name())));
            }
        }
        Ok(())
    }

    fn condition(&self, step: &PipelineStep, condition: &Condition) -> Result<(), Error> {
        match condition {
            Condition::Holds(Operand::Reference(reference)) => {
                match self.type_of(step, reference)? {
                    Type::Bool | Type::Any => Ok(()),
                    found => {
                        Err(reference.wrong(&format!("is {}, not true or false", found.name())))
                    }
                }
            }
            Condition::Holds(_) => Ok(()),
            Condition::Compare(left, comparison, right) => [left, right]
                .into_iter()
                .try_for_each(|operand| self.operand(step, operand, *comparison)),
            Condition::Not(inner) => self.condition(step, inner),
            Condition::And(left, right) | Condition::Or(left, right) => {
                self.condition(step, left)?;
                self.condition(step, right)
            }
        }
    }

    fn operand(
        &self,
        step: &PipelineStep,
        operand: &Operand,
        how: Comparison,
    ) -> Result<(), Error> {
        let Operand::Reference(reference) = operand else { return Ok(()) };
        let found = self.type_of(step, reference)?;
        match found {
            Type::File | Type::List => {
                Err(reference.wrong(&format!("is {}, which is not compared", found.name())))
            }
            Type::Text | Type::Bool if how.is_order() => {
                Err(reference.wrong(&format!("is {}: only numbers have an order", found.name())))
            }
            _ => Ok(()),
        }
    }

    /// The type of what a reference of a step names.
    pub(crate) fn type_of(
        &self,
        step: &PipelineStep,
        reference: &Reference,
    ) -> Result<Type, Error> {
        let rest = &reference.path[1..];
        let named = |names: Vec<&str>| unknown(reference, rest.first(), &names);
        match reference.head() {
            "params" | "parameters" => parameter(self.parameters, reference).map(Type::of),
            "item" if step.for_each.is_some() => Ok(Type::Any),
            "item" => Err(reference.wrong("there is no item without for_each")),
            "program" => Ok(Type::File),
            "in" => {
                let names = || step.inputs.iter().map(|(name, _)| name.as_str());
                let found = rest.first().is_some_and(|name| names().any(|other| other == name));
                let single = rest.is_empty() && step.inputs.len() == 1;
                if found || single { Ok(Type::Any) } else { Err(named(names().collect())) }
            }
            "out" => {
                let names = || step.outs.iter().map(|(name, _)| name.as_str());
                let found = rest.first().is_some_and(|name| names().any(|other| other == name));
                let single = rest.is_empty() && step.outs.len() == 1;
                match step.kind.is_shell() {
                    true if found || single => Ok(Type::File),
                    true => Err(named(names().collect())),
                    false => Err(reference.wrong("only steps with `run` name their own files")),
                }
            }
            name if name == step.name => {
                Err(reference.wrong("a step cannot use what it leaves itself"))
            }
            name => {
                let Some(other) = self.steps.iter().find(|other| other.name == name) else {
                    let names: Vec<&str> = self
                        .steps
                        .iter()
                        .map(|other| other.name.as_str())
                        .filter(|other| *other != step.name)
                        .chain(RESERVED)
                        .collect();
                    let hint = hint(name, &names);
                    return Err(reference.wrong(&format!("no step \"{name}\"{hint}")));
                };
                let found = output_type(other, reference)?;
                Ok(if other.for_each.is_some() { Type::List } else { found })
            }
        }
    }
}

/// A parameter's value.
pub(crate) fn parameter<'a>(
    parameters: &'a Json,
    reference: &Reference,
) -> Result<&'a Json, Error> {
    let mut value = parameters;
    if reference.path.len() == 1 {
        return Err(reference.wrong("name a parameter: ${params.name}"));
    }
    for part in &reference.path[1..] {
        value = match value.get(part) {
            Some(value) => value,
            None => {
                let names: Vec<&str> = value
                    .as_object()
                    .map(|map| map.keys().map(String::as_str).collect())
                    .unwrap_or_default();
                let hint = hint(part, &names);
                return Err(reference.wrong(&format!("no parameter \"{part}\"{hint}")));
            }
        };
    }
    Ok(value)
}

fn output_type(step: &PipelineStep, reference: &Reference) -> Result<Type, Error> {
    let Some(name) = reference.path.get(1) else {
        return match step.main_output() {
            Some(_) => Ok(Type::File),
            None => {
                let names = output_names(step);
                Err(reference.wrong(&match names.is_empty() {
                    true => "it leaves nothing: name what it writes with `out`".to_string(),
                    false => format!("name one of its outputs: {}", names.join(", ")),
                }))
            }
        };
    };
    let deeper = reference.path.len() > 2;
    if step.kind.is_shell() {
        let file = step.outs.iter().any(|(other, _)| other == name);
        return match (file, step.values.contains(name)) {
            (true, _) if !deeper => Ok(Type::File),
            (_, true) => Ok(Type::Any),
            _ => Err(unknown(reference, Some(name), &output_names(step))),
        };
    }
    let own = step.own_name(name);
    let leaves = step.kind.outputs.iter().find(|(other, _)| *other == own);
    match leaves.map(|(_, leaves)| leaves) {
        Some(Leaves::Value(_)) => Ok(Type::Any),
        _ if deeper => Err(reference.wrong(&format!("\"{name}\" has no parts"))),
        Some(Leaves::File(_) | Leaves::FirstOf(_) | Leaves::Named(_) | Leaves::Within(..)) => {
            Ok(Type::File)
        }
        Some(Leaves::Number(_)) => Ok(Type::Number),
        // A model's metrics have names of its own; near misses of outputs are taken for those.
        None if step.kind.metrics.is_some() => {
            let names = output_names(step);
            match nearest(name, names.iter().copied()) {
                Some(near) if near.len() > 4 => Err(unknown(reference, Some(name), &names)),
                _ => Ok(Type::Number),
            }
        }
        None => Err(unknown(reference, Some(name), &output_names(step))),
    }
}

fn output_names(step: &PipelineStep) -> Vec<&str> {
    let outs = step.outs.iter().map(|(name, _)| name.as_str());
    let values = step.values.iter().map(String::as_str);
    outs.chain(values).chain(step.kind.outputs.iter().map(|(name, _)| *name)).collect()
}

fn unknown(reference: &Reference, name: Option<&String>, names: &[&str]) -> Error {
    match name {
        Some(name) => {
            let hint = hint(name, names);
            reference.wrong(&format!("\"{}\" has no \"{name}\"{hint}", reference.head()))
        }
        None => reference.wrong(&format!("name one of: {}", names.join(", "))),
    }
}

pub(crate) fn hint(name: &str, names: &[&str]) -> String {
    match nearest(name, names.iter().copied()) {
        Some(near) => format!(" (did you mean \"{near}\"?)"),
        None if names.is_empty() => String::new(),
        None => format!(" (known: {})", names.join(", ")),
    }
}
