//! How many tokens a text may have, where a model of Hugging Face says so itself.

use serde_json::Value;

use crate::example::{AssetFiles, MAX_TOKENS};

/// As `max_length` of a text: as many tokens as the model takes that `config.json`, which has to be one of the
/// example's files, is of, or fewer where `tokenizer_config.json` says so; 512 at most.
pub const LENGTH_OF_MODEL: usize = usize::MAX;

/// The most tokens, whatever the files say: the time that a text takes grows with their square.
const MOST: usize = 512;

/// The length that is meant: the one that is given, or that of the files.
pub(in crate::example) fn length(given: usize, files: &AssetFiles) -> Result<usize, String> {
    if let Some(bytes) = files.get(MAX_TOKENS) {
        let text = String::from_utf8_lossy(bytes);
        // There are two special ones around a text.
        let said = text.trim().parse::<usize>().ok().filter(|said| *said > 2);
        return said.ok_or_else(|| {
            format!("{MAX_TOKENS}: {:?} is no number of tokens above 2", text.trim())
        });
    }
    let json = |name| files.get(name).and_then(|bytes| serde_json::from_slice(bytes).ok());
    Ok(match json("config.json") {
        Some(config) if given == LENGTH_OF_MODEL => {
            let settings: Option<Value> = json("tokenizer_config.json");
            of_model(&config, &settings.unwrap_or_default())
        }
        _ => given,
    })
}

/// What the files do not say is left to who builds the model, and refuses what does not fit.
fn of_model(config: &Value, settings: &Value) -> usize {
    let places = config["max_position_embeddings"].as_u64().unwrap_or(MOST as u64);
    // RoBERTa counts places from behind that of padding.
    let first = match config["model_type"].as_str() {
        None | Some("bert") => 0,
        Some(_) => config["pad_token_id"].as_u64().unwrap_or(1) + 1,
    };
    // Hugging Face writes a number beyond all integers where there is no bound; one of no text at all is none either.
    let said = settings["model_max_length"].as_f64().filter(|said| *said >= 8.0);
    let said = said.map_or(MOST, |said| said as usize);
    said.min(places.saturating_sub(first) as usize).min(MOST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_says_it_before_all_others() {
        let check = |text: &str, expected: Result<usize, &str>| {
            let files = AssetFiles::default().with([(MAX_TOKENS, text.into())].into());
            assert_eq!(length(128, &files), expected.map_err(str::to_string));
        };
        check("64", Ok(64));
        check("300\n", Ok(300));
        check("2", Err("max_tokens.txt: \"2\" is no number of tokens above 2"));
        check("many", Err("max_tokens.txt: \"many\" is no number of tokens above 2"));
        assert_eq!(length(128, &AssetFiles::default()), Ok(128));
    }

    #[test]
    fn the_shortest_bound_holds() {
        let check = |config: Value, settings: Value, expected| {
            assert_eq!(of_model(&config, &settings), expected, "{config} {settings}");
        };
        check(json!({}), Value::Null, 512);
        check(json!({"max_position_embeddings": 64}), Value::Null, 64);
        check(json!({"max_position_embeddings": 4096}), json!({"model_max_length": 1e30}), 512);
        let roberta = json!({"model_type": "roberta", "max_position_embeddings": 514});
        check(roberta.clone(), Value::Null, 512);
        check(roberta.clone(), json!({"model_max_length": 128}), 128);
        check(roberta, json!({"model_max_length": 0}), 512);
        let other =
            json!({"model_type": "xlm-roberta", "max_position_embeddings": 40, "pad_token_id": 3});
        check(other, json!({"model_max_length": null}), 36);
    }
}
