//! The names of parameters in Hugging Face's files, of which there are several spellings.

use crate::foreign::unwrapped;

/// The name of the parameter at a path of [`Bert`](super::Bert), without the model's prefix.
pub(super) fn of_encoder(path: &str) -> String {
    let path = normalised(path);
    if let Some(rest) = path.strip_prefix("embeddings.") {
        let rest = match rest.split_once('.') {
            Some(("norm", rest)) => format!("LayerNorm.{rest}"),
            Some((table, rest)) => format!("{table}_embeddings.{rest}"),
            None => rest.to_string(),
        };
        return format!("embeddings.{rest}");
    }
    if let Some(rest) = path.strip_prefix("pooler.") {
        return format!("pooler.dense.{rest}");
    }
    let mut parts = path.splitn(4, '.');
    let (_, number, field, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
    let field = match field.unwrap_or_default() {
        name @ ("query" | "key" | "value") => format!("attention.self.{name}"),
        "attention_output" => "attention.output.dense".to_string(),
        "attention_norm" => "attention.output.LayerNorm".to_string(),
        "intermediate" => "intermediate.dense".to_string(),
        "output" => "output.dense".to_string(),
        "output_norm" => "output.LayerNorm".to_string(),
        other => other.to_string(),
    };
    format!("encoder.layer.{}.{field}.{}", number.unwrap_or_default(), rest.unwrap_or_default())
}

/// The name of the parameter at a path of [`BertClassifier`](super::BertClassifier), without the model's prefix.
pub(super) fn of_classifier(path: &str, roberta: bool) -> String {
    match path.strip_prefix("encoder.") {
        Some(path) => of_encoder(path),
        None if !roberta => path.to_string(),
        None => match path.strip_prefix("dense.") {
            Some(rest) => format!("classifier.dense.{rest}"),
            None => path.replace("classifier.", "classifier.out_proj."),
        },
    }
}

/// Burn's names of norms are those of old files.
fn normalised(path: &str) -> String {
    for (old, new) in [("gamma", "weight"), ("beta", "bias")] {
        if let Some(start) = path.strip_suffix(old).filter(|start| start.ends_with('.')) {
            return format!("{start}{new}");
        }
    }
    path.to_string()
}

/// What a name in a file means: without wrappers and prefixes, with today's names of norms. Nothing for the heads of
/// other tasks.
pub(super) fn known(name: &str) -> Option<String> {
    let name = unwrapped(name);
    let name =
        ["bert.", "roberta."].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let other_tasks = ["cls.", "lm_head.", "qa_outputs."];
    if other_tasks.iter().any(|head| name.starts_with(head)) || name.ends_with("position_ids") {
        return None;
    }
    Some(normalised(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_hugging_faces_names() {
        let check = |path: &str, roberta: bool, expected: &str| {
            assert_eq!(of_classifier(path, roberta), expected);
        };
        check("encoder.embeddings.word.weight", false, "embeddings.word_embeddings.weight");
        check(
            "encoder.embeddings.token_type.weight",
            false,
            "embeddings.token_type_embeddings.weight",
        );
        check("encoder.embeddings.norm.gamma", false, "embeddings.LayerNorm.weight");
        check("encoder.layers.11.query.bias", false, "encoder.layer.11.attention.self.query.bias");
        check(
            "encoder.layers.0.attention_norm.beta",
            true,
            "encoder.layer.0.attention.output.LayerNorm.bias",
        );
        check(
            "encoder.layers.0.intermediate.weight",
            true,
            "encoder.layer.0.intermediate.dense.weight",
        );
        check("encoder.layers.0.output.weight", true, "encoder.layer.0.output.dense.weight");
        check("encoder.pooler.weight", false, "pooler.dense.weight");
        check("classifier.weight", false, "classifier.weight");
        check("classifier.weight", true, "classifier.out_proj.weight");
        check("dense.bias", true, "classifier.dense.bias");
    }

    #[test]
    fn all_spellings_mean_the_same() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(known(name).as_deref(), expected, "{name}");
        };
        let norm = Some("embeddings.LayerNorm.weight");
        check("embeddings.LayerNorm.weight", norm);
        check("bert.embeddings.LayerNorm.gamma", norm);
        check("module.roberta.embeddings.LayerNorm.weight", norm);
        check("model.bert.embeddings.LayerNorm.weight", norm);
        check("_orig_mod.bert.embeddings.LayerNorm.weight", norm);
        check("bert.embeddings.position_ids", None);
        check("cls.predictions.bias", None);
        check("classifier.bias", Some("classifier.bias"));
    }
}
