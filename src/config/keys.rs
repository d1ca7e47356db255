//! The keys of the configuration: the flags of `relay serve`, as clap's definition of [`ServeConfig`] has them.

use super::ServeConfig;
use clap::{Arg, Args, Command};
use std::any::TypeId;

/// The flags of [`ServeConfig`], in their order there.
pub(super) fn settings() -> Vec<Arg> {
    definition().get_arguments().cloned().collect()
}

/// A command that has these flags alone.
pub(super) fn definition() -> Command {
    ServeConfig::augment_args(Command::new("relay"))
}

/// The flag without its dashes.
pub(super) fn key(setting: &Arg) -> &str {
    setting.get_long().unwrap_or_else(|| setting.get_id().as_str())
}

/// Whether its value is never shown: the mark is the same that keeps it out of help texts.
pub(super) fn is_secret(setting: &Arg) -> bool {
    setting.is_hide_env_values_set()
}

/// Whether it takes any number of values.
pub(super) fn is_list(setting: &Arg) -> bool {
    setting.get_value_delimiter().is_some()
}

/// Whether TOML's own true and false stand for it.
pub(super) fn is_truth(setting: &Arg) -> bool {
    setting.get_value_parser().type_id() == TypeId::of::<bool>()
}

/// Whether it is a whole number and nothing else.
pub(super) fn is_count(setting: &Arg) -> bool {
    let type_id = setting.get_value_parser().type_id();
    [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()].iter().any(|count| type_id == *count)
}

/// The word for what it takes, as in the help.
pub(super) fn value_name(setting: &Arg) -> String {
    setting.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// What the key takes, for people: the help's word, and the default as an example.
pub(super) fn expected(setting: &Arg) -> String {
    let name = value_name(setting);
    let example = setting.get_default_values().first().map(|text| text.to_string_lossy());
    let possible = setting.get_possible_values();
    if is_truth(setting) {
        "true or false".to_owned()
    } else if !possible.is_empty() {
        let names: Vec<String> = possible.iter().map(|value| format!("\"{}\"", value.get_name())).collect();
        format!("one of {}", names.join(", "))
    } else if is_list(setting) {
        format!("{name} in quotes, or a list of such")
    } else if is_count(setting) {
        example.map_or_else(|| name.clone(), |example| format!("{name}, like {example}"))
    } else {
        example.map_or_else(|| format!("{name} in quotes"), |example| format!("{name} in quotes, like \"{example}\""))
    }
}
