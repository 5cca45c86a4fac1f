//! The YAML parser, and its reading into a type that takes anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_core::yaml;

fuzz_target!(|text: &str| {
    if let Ok(node) = yaml::parse(text) {
        let _ = yaml::from_node::<serde_json::Value>(&node);
    }
});
