//! Manifests, and the comparison of two.

use super::{Difference, Name, NotUnderstood, Report, What, difference};
use relay_protocol::contract;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use std::fmt;

/// The key whose lists are the methods.
const METHODS: &str = "methods";

/// A manifest that names methods. Anything else in it is compared as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest(Tree);

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// It is no JSON, or does not list methods by namespace.
    pub fn read(text: &str) -> Result<Self, NotUnderstood> {
        let tree: Tree = serde_json::from_str(text).map_err(|error| NotUnderstood::at(error.line(), error))?;
        let manifest = Manifest(tree);
        if manifest.methods().is_empty() {
            return Err(NotUnderstood::whole("it lists no methods by namespace"));
        }
        Ok(manifest)
    }

    /// The one that this program is built with.
    ///
    /// # Errors
    /// None in a program that runs: the relay itself reads it.
    pub fn compiled_in() -> Result<Self, NotUnderstood> {
        Manifest::read(contract::MANIFEST)
    }

    /// What the relay does, written as a manifest.
    ///
    /// # Errors
    /// None in a program that runs.
    pub fn of_relay() -> Result<Self, NotUnderstood> {
        Manifest::read(&contract::own().to_string())
    }

    /// The methods of all namespaces, in its order.
    pub fn methods(&self) -> Vec<&str> {
        let Tree::Map(fields) = &self.0 else { return Vec::new() };
        let namespaces = fields.iter().filter(|(key, _)| key == METHODS).flat_map(|(_, tree)| match tree {
            Tree::Map(namespaces) => namespaces.as_slice(),
            Tree::List(_) | Tree::Leaf(_) => &[],
        });
        namespaces.flat_map(|(_, tree)| tree.names().unwrap_or_default()).collect()
    }

    /// What is wrong with it by itself: names and keys that are there twice.
    pub fn check(&self) -> Report {
        let mut differences = Vec::new();
        self.0.check("", &mut differences);
        Report { methods: Some(self.methods().len()), differences }
    }

    /// In which ways another one is not as this.
    pub fn compare(&self, copy: &Manifest) -> Report {
        let mut differences = Vec::new();
        self.0.compare(&copy.0, "", &mut differences);
        Report { methods: Some(copy.methods().len()), differences }
    }
}

/// JSON with its doubled keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Map(Vec<(String, Tree)>),
    List(Vec<Tree>),
    Leaf(Value),
}

impl Tree {
    /// The texts of a list of texts.
    fn names(&self) -> Option<Vec<&str>> {
        let Tree::List(items) = self else { return None };
        let name = |item| match item {
            &Tree::Leaf(Value::String(ref name)) => Some(name.as_str()),
            Tree::Map(_) | Tree::List(_) | Tree::Leaf(_) => None,
        };
        items.iter().map(name).collect()
    }

    fn check(&self, place: &str, out: &mut Vec<Difference>) {
        match self {
            Tree::Map(fields) => {
                out.extend(difference::repeated(&keys(fields), shown(place)));
                fields.iter().for_each(|(key, value)| value.check(&below(place, key), out));
            }
            Tree::List(items) => {
                out.extend(difference::repeated(&named(&self.names().unwrap_or_default()), shown(place)));
                items.iter().enumerate().for_each(|(index, item)| item.check(&below(place, &index.to_string()), out));
            }
            Tree::Leaf(_) => (),
        }
    }

    fn compare(&self, copy: &Tree, place: &str, out: &mut Vec<Difference>) {
        match (self, copy) {
            (Tree::Map(fields), Tree::Map(own)) => {
                let wanted: Vec<&str> = fields.iter().map(|(key, _)| key.as_str()).collect();
                out.extend(difference::of_names(&wanted, &keys(own), shown(place)));
                for (key, value) in fields {
                    for (_, own) in own.iter().filter(|(other, _)| other == key) {
                        value.compare(own, &below(place, key), out);
                    }
                }
            }
            (Tree::List(items), Tree::List(own)) => match (self.names(), copy.names()) {
                (Some(names), Some(own)) => out.extend(difference::of_names(&names, &named(&own), shown(place))),
                (None, None) if items.len() == own.len() => {
                    for (index, (item, own)) in items.iter().zip(own).enumerate() {
                        item.compare(own, &below(place, &index.to_string()), out);
                    }
                }
                _ => out.push(differs(self, copy, place)),
            },
            (Tree::Leaf(value), Tree::Leaf(own)) if value == own => (),
            (Tree::Map(_) | Tree::List(_) | Tree::Leaf(_), Tree::Map(_) | Tree::List(_) | Tree::Leaf(_)) => {
                out.push(differs(self, copy, place));
            }
        }
    }
}

fn differs(manifest: &Tree, copy: &Tree, place: &str) -> Difference {
    let what = What::Differs { manifest: manifest.to_string(), copy: copy.to_string() };
    Difference { what, line: None, place: shown(place).map(str::to_owned) }
}

fn keys(fields: &[(String, Tree)]) -> Vec<Name> {
    fields.iter().map(|(key, _)| Name { text: key.clone(), line: None }).collect()
}

fn named(names: &[&str]) -> Vec<Name> {
    names.iter().map(|name| Name { text: (*name).to_owned(), line: None }).collect()
}

fn below(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

fn shown(place: &str) -> Option<&str> {
    Some(place).filter(|place| !place.is_empty())
}

/// A value as JSON, or what it is when it has parts.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Map(_) => f.write_str("an object"),
            Tree::List(_) if self.names().is_some() => f.write_str("a list of names"),
            Tree::List(items) => write!(f, "a list of {} values", items.len()),
            Tree::Leaf(value) => value.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyTree;
        impl<'de> Visitor<'de> for AnyTree {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Tree::Map(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Tree::List(items))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf(text.into()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf(number.into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
                Ok(Tree::Leaf(number.into()))
            }

            fn visit_bool<E: Error>(self, yes: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf(yes.into()))
            }

            fn visit_unit<E: Error>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf(Value::Null))
            }
        }
        deserializer.deserialize_any(AnyTree)
    }
}
