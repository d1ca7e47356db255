//! Copies that agree, and one difference of each kind in each format.

use super::{Difference, Format, Manifest, Report, What, check_names};
use relay_protocol::contract;
use serde_json::{Value, json};

const ENUM: &str = "RpcMethod";

fn methods() -> Vec<&'static str> {
    contract::methods().map(|method| method.name).collect()
}

/// A name as its language writes it: `systemPing`, and `SYSTEM_PING`.
fn swift_case(method: &str) -> String {
    let (namespace, name) = method.split_once('.').unwrap_or(("", method));
    format!("{namespace}{}{}", name[..1].to_uppercase(), &name[1..])
}

fn kotlin_entry(method: &str) -> String {
    let apart = method.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c]));
    apart.collect::<String>().replace('.', "_").to_uppercase()
}

/// As a phone's author may write it: each case in one of several ways, between things that only look like cases.
fn swift(methods: &[&str]) -> String {
    let cases: String = methods
        .iter()
        .enumerate()
        .map(|(index, method)| match index % 4 {
            0 => format!("    case {} = \"{method}\"", swift_case(method)),
            1 => format!(", {} = \"{method}\" // one line has two\n", swift_case(method)),
            2 => format!(
                "    @available(*, deprecated, message: \"not case no = \\\"no.no\\\"\")\n    case `{}` = \"{method}\"\n",
                swift_case(method)
            ),
            _ => format!("    /* case no = \"no.no\" /* deeper */ */ case\n        {} =\n        \"{method}\";\n", swift_case(method)),
        })
        .collect();
    format!(
        "// enum RpcMethod: String {{ case no = \"no.no\" }}\nimport Foundation\n\nenum Other: String {{ case no = \"no.no\" }}\n\n\
         /// What the desktop may be asked. It's complete.\n@frozen\npublic enum RpcMethod: String, CaseIterable, Sendable {{\n{cases}\n\
         \n    enum Kind: String {{ case no = \"no.no\" }}\n    static let all = [\"no.no\"]\n\
         \n    var requiresIdempotencyKey: Bool {{\n        switch self {{\n        case .systemPing: false\n        \
         default: \"\\(label(\"}}\"))\" == #\"case \"no\" \\\"# || \"\"\"\n  case no = \"no\"\n  \"\"\".isEmpty\n        }}\n    }}\n}}\n\
         extension RpcMethod {{ var wire: String {{ rawValue }} }}\n"
    )
}

fn kotlin(methods: &[&str]) -> String {
    let entries: Vec<String> = methods
        .iter()
        .enumerate()
        .map(|(index, method)| match index % 5 {
            0 => format!("    {}(\"{method}\")", kotlin_entry(method)),
            1 => format!(" {}(method = \"{method}\", requiresIdempotencyKey = true)", kotlin_entry(method)),
            2 => format!("\n    @SerialName(\"{method}\") {}", kotlin_entry(method)),
            3 => {
                format!(
                    "\n    /* NO(\"no.no\") */ @Deprecated(\"no.no\") @field:Json(name = \"no\") {}(\"{method}\", false)",
                    kotlin_entry(method)
                )
            }
            _ => format!(
                "\n    `{}`(\"{method}\") {{\n        override fun label() = \"${{name(\"}}\")}} no\" + '\"'\n    }}",
                kotlin_entry(method)
            ),
        })
        .collect();
    format!(
        "package app.rpc\n\n// enum class RpcMethod {{ NO(\"no.no\") }}\nenum class Other(val s: String) {{ NO(\"no.no\") }}\n\n\
         /** What the desktop may be asked. It's complete. */\n@Serializable\nenum class RpcMethod(\n    val method: String = \"no.no\",\n    \
         val requiresIdempotencyKey: Boolean = false,\n) : Wire {{\n{},\n    ;\n\
         \n    companion object {{\n        val text = \"\"\"NO(\"no.no\")\"\"\"\"\n        fun of(method: String) = entries.find {{ it.method == method }}\n    }}\n}}\n",
        entries.join(",")
    )
}

fn list(methods: &[&str]) -> String {
    json!(methods).to_string()
}

type Writer = fn(&[&str]) -> String;
const FORMATS: [(Format, Writer); 3] = [(Format::Swift, swift), (Format::Kotlin, kotlin), (Format::List, list)];

fn check(format: Format, source: &str) -> Report {
    check_names(&Manifest::compiled_in().unwrap(), format, source, ENUM)
}

fn whats(report: &Report) -> Vec<What> {
    report.differences.iter().map(|difference| difference.what.clone()).collect()
}

#[test]
fn a_phone_that_lists_every_method_agrees() {
    for (format, write) in FORMATS {
        let source = write(&methods());
        assert_eq!(check(format, &source), Report { methods: Some(74), differences: Vec::new() }, "{source}");
        let mut reversed = methods();
        reversed.reverse();
        assert_eq!(check(format, &write(&reversed)).differences, [], "order does not count");
        assert_eq!(check(format, &source.replace('\n', "\r\n")).differences, [], "{format:?}");
    }
}

#[test]
fn each_kind_of_difference_is_named_in_each_format() {
    let name = |text: &str| text.to_owned();
    let (missing, extra) = (What::Missing { name: name("run.cancel") }, What::Extra { name: name("run.somethingElse") });
    for (format, write) in FORMATS {
        let with = |change: &dyn Fn(&mut Vec<&'static str>)| {
            let mut methods = methods();
            change(&mut methods);
            whats(&check(format, &write(&methods)))
        };
        let replace = |methods: &mut Vec<&'static str>, by| *methods.iter_mut().find(|method| **method == "run.cancel").unwrap() = by;
        assert_eq!(with(&|methods| methods.retain(|method| *method != "run.cancel")), std::slice::from_ref(&missing), "{format:?}");
        assert_eq!(with(&|methods| methods.push("run.somethingElse")), std::slice::from_ref(&extra), "{format:?}");
        assert_eq!(with(&|methods| replace(methods, "run.somethingElse")), [extra.clone(), missing.clone()], "{format:?}");
        for spelling in ["run.cancle", "run.Cancel", "run.cancels", "runs.cancel", "run.cancel "] {
            let misspelt = What::Misspelt { name: name(spelling), nearest: name("run.cancel") };
            assert_eq!(with(&|methods| replace(methods, spelling)), [misspelt], "{format:?}");
            assert_eq!(with(&|methods| methods.push(spelling)), [What::Extra { name: name(spelling) }], "{format:?}: nothing is missing");
        }
        assert_eq!(with(&|methods| methods.push("system.ping")), [What::Twice { name: name("system.ping") }], "{format:?}");
    }
}

#[test]
fn of_names_that_are_alike_the_nearest_pair_goes_together() {
    let misspelt = |name: &str, nearest: &str| What::Misspelt { name: name.to_owned(), nearest: nearest.to_owned() };
    let extra = |name: &str| What::Extra { name: name.to_owned() };
    for (instead, expected) in [
        (["run.cancels2", "run.cancelx"], [extra("run.cancels2"), misspelt("run.cancelx", "run.cancel")]),
        (["run.cancelx", "run.cancels2"], [misspelt("run.cancelx", "run.cancel"), extra("run.cancels2")]),
    ] {
        let mut methods = methods();
        methods.retain(|method| *method != "run.cancel");
        methods.extend(instead);
        assert_eq!(whats(&check(Format::List, &list(&methods))), expected);
    }
}

#[test]
fn a_strange_name_is_told_with_its_line() {
    let swift = "enum RpcMethod: String {\n  /*\n\n*/ case a = \"a.b\",\n  system = \"system.ping\",\n  ping\n}";
    let kotlin = "enum class RpcMethod(val s: String) {\n  A(\n  \"a.b\"\n  ),\n  @SerialName(\"system.ping\") B,\n  @X\n  C(\"ping\")\n}";
    for (format, source, lines) in [(Format::Swift, swift, [4, 6]), (Format::Kotlin, kotlin, [2, 7])] {
        let told: Vec<(Option<usize>, String)> =
            check(format, source).differences.iter().take(2).map(|difference| (difference.line, difference.what.to_string())).collect();
        let expected = ["a.b is not in the manifest", "ping is not in the manifest"].map(str::to_owned);
        assert_eq!(told, lines.map(Some).into_iter().zip(expected).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_reader_does_not_understand_it_says_with_its_line() {
    let kotlin = |entries: &str| format!("enum class RpcMethod(val s: String) {{\n{entries}\n}}");
    let swift = |cases: &str| format!("enum RpcMethod: String {{\n{cases}\n}}");
    for (format, source, line, reason) in [
        (Format::Swift, String::new(), None, "it has no enum RpcMethod, and no other enum"),
        (Format::Swift, "enum A {} enum B {}".to_owned(), None, "it has no enum RpcMethod; its enums: A, B"),
        (Format::Swift, "enum RpcMethod {}".to_owned(), None, "the enum RpcMethod has no raw values of type String"),
        (Format::Swift, swift(""), None, "it lists no method"),
        (Format::Swift, swift("case a = \"a\"") + "\n" + &swift(""), Some(4), "here is a second enum RpcMethod"),
        (Format::Swift, "\nenum RpcMethod: String {".to_owned(), Some(2), "the enum RpcMethod does not end"),
        (Format::Swift, swift("case a(Int)"), Some(2), "the case a has associated values"),
        (Format::Swift, swift("case a = \"a\\u{62}\""), Some(2), "the raw value of the case a is no plain string"),
        (Format::Swift, swift("case a = 1"), Some(2), "the raw value of the case a is no plain string"),
        (Format::Swift, swift("case"), Some(2), "the word case has no name behind it"),
        (Format::Swift, swift("#if DEBUG\ncase a\n#endif"), Some(2), "cases under a condition of compilation are not understood"),
        (Format::Swift, swift("case a = \"a"), Some(2), "a string begins here and does not end on its line"),
        (Format::Swift, swift("\"\"\"\na"), Some(2), "a string begins here and does not end"),
        (Format::Swift, swift("\n/* /* */"), Some(3), "a comment begins here and does not end"),
        (Format::Swift, swift("case `a"), Some(2), "a name in backticks begins here and does not end"),
        (Format::Swift, swift("\"\\(a"), Some(2), "code within a string begins here and does not end"),
        (Format::Swift, "\"\\(".repeat(10_000), Some(1), "strings are nested too deeply"),
        (Format::Kotlin, "enum RpcMethod {}".to_owned(), None, "it has no enum RpcMethod, and no other enum"),
        (Format::Kotlin, "enum class A".to_owned(), None, "it has no enum RpcMethod; its enums: A"),
        (Format::Kotlin, kotlin(""), None, "it lists no method"),
        (Format::Kotlin, kotlin("A"), Some(2), "the entry A has no string"),
        (Format::Kotlin, kotlin("A(Names.PING)"), Some(2), "the entry A has no string"),
        (Format::Kotlin, kotlin("A(\"a\" + b)"), Some(2), "the entry A has no string"),
        (Format::Kotlin, kotlin("A(\"a\", \"b\")"), Some(2), "the entry A has several strings"),
        (Format::Kotlin, kotlin("A(\"a.$b\")"), Some(2), "the string of the entry A is not plain"),
        (Format::Kotlin, kotlin("@SerialName(\"b\") A(\"a\")"), Some(2), "the entry A has another string than its SerialName"),
        (Format::Kotlin, kotlin("@SerialName(NAME) A(\"a\")"), Some(2), "a SerialName is expected to have one string"),
        (Format::Kotlin, kotlin("A(\"a\")\nB(\"b\")"), Some(3), "behind the entry A a comma is expected"),
        (Format::Kotlin, kotlin("A(\"a\"), 'x"), Some(2), "a character begins here and does not end"),
        (Format::Kotlin, kotlin("A(\"a\"), (\"b\")"), Some(2), "an entry is expected here"),
        (Format::List, "{}".to_owned(), Some(1), "invalid type: map, expected a sequence at line 1 column 0"),
        (Format::List, "[]".to_owned(), None, "it lists no method"),
        (Format::List, "[\"a\",\n1]".to_owned(), Some(2), "invalid type: integer `1`, expected a string at line 2 column 1"),
    ] {
        let what = What::NotUnderstood { reason: reason.to_owned() };
        let expected = Report { methods: None, differences: vec![Difference { what, line, place: None }] };
        assert_eq!(check(format, &source), expected, "{source:.200}");
    }
}

#[test]
fn no_part_of_a_source_is_taken_for_the_whole() {
    let methods = &methods()[..10];
    for (format, write) in FORMATS {
        let source = write(methods);
        let last = source.rfind(methods[9]).unwrap();
        let read = |end: usize| check(format, &source[..end]).methods;
        assert_eq!(read(source.len()), Some(10));
        let wrong = (0..source.len()).find(|end| read(*end).is_some_and(|count| count != 10 || *end < last));
        assert_eq!(wrong.map(|end| &source[..end]), None);
    }
}

#[test]
fn the_relay_agrees_with_the_manifest_that_it_is_built_with() {
    let (manifest, relay) = (Manifest::compiled_in().unwrap(), Manifest::of_relay().unwrap());
    for report in [manifest.check(), manifest.compare(&relay), relay.compare(&manifest)] {
        assert_eq!(report, Report { methods: Some(74), differences: Vec::new() });
    }
    assert_eq!(relay_endpoints::PROTOCOL_VERSION, contract::protocol_versions().0);
}

/// The pointers of all values in this one.
fn pointers(value: &Value, own: &str, out: &mut Vec<String>) {
    let mut below = |key: &str, value| {
        out.push(format!("{own}/{key}"));
        pointers(value, &format!("{own}/{key}"), out);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| below(&index.to_string(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[test]
fn no_value_of_the_manifest_can_change_or_go_unseen() {
    let relay = Manifest::of_relay().unwrap();
    let whole: Value = serde_json::from_str(contract::MANIFEST).unwrap();
    let mut places = Vec::new();
    pointers(&whole, "", &mut places);
    assert!(places.len() > 200, "{}", places.len());
    for place in places {
        let (parent, key) = place.rsplit_once('/').unwrap();
        let mut without = whole.clone();
        match without.pointer_mut(parent).unwrap() {
            Value::Object(fields) => drop(fields.remove(key).unwrap()),
            Value::Array(items) => drop(items.remove(key.parse().unwrap())),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => panic!("{place}: {other}"),
        }
        let mut changed = whole.clone();
        *changed.pointer_mut(&place).unwrap() = json!(7);
        for other in [without, changed] {
            let differences = match Manifest::read(&other.to_string()) {
                Ok(manifest) => manifest.compare(&relay).differences,
                Err(problem) => Report::from(problem).differences,
            };
            assert_eq!(differences.len(), 1, "{place}: {differences:?}");
        }
    }
}

#[test]
fn differences_between_manifests_are_told_with_their_place() {
    let relay = Manifest::of_relay().unwrap();
    for (from, to, told) in [
        ("\"system.ping\",", "", "methods.system: system.ping is not in the manifest"),
        ("\"system.ping\"", "\"system.pong\"", "methods.system: system.ping is not in the manifest, which has system.pong"),
        ("\"frameBytes\": 33554432", "\"frameBytes\": 1", "limits.relay.frameBytes: 33554432 here, 1 in the manifest"),
        ("\"frameBytes\"", "\"frameByte\"", "limits.relay: frameBytes is not in the manifest, which has frameByte"),
        (
            "\"codex\": \"indexed\"",
            "\"codex\": \"native\"",
            "timelineStorageFormat.byAgent.codex: \"indexed\" here, \"native\" in the manifest",
        ),
        ("\"claude\": \"native\"", "\"claude\": \"native\", \"other\": \"native\"", "timelineStorageFormat.byAgent: other is missing"),
        ("-32601", "-32602", "errors.relay.methodNotFound: -32601 here, -32602 in the manifest"),
        ("\"light\": 8", "\"light\": {}", "permits.light: 8 here, an object in the manifest"),
        ("\"heavyGroup\": [", "\"heavyGroup\": [7,", "heavyGroup: a list of names here, a list of 20 values in the manifest"),
        ("\"permits\"", "\"permit\"", "permits is not in the manifest, which has permit"),
    ] {
        assert!(contract::MANIFEST.contains(from), "{from}");
        let manifest = Manifest::read(&contract::MANIFEST.replacen(from, to, 1)).unwrap();
        let difference = &manifest.compare(&relay).differences[0];
        let place = difference.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        assert_eq!(format!("{place}{}", difference.what), told);
    }
}

#[test]
fn a_manifest_names_nothing_twice() {
    for (from, to, place, name) in [
        ("\"run.cancel\",", "\"run.cancel\", \"run.cancel\",", "methods.run", "run.cancel"),
        ("\"heavyGroup\": [", "\"heavyGroup\": [\"run.chatLoad\",", "heavyGroup", "run.chatLoad"),
        ("\"light\": 8", "\"light\": 8, \"light\": 8", "permits", "light"),
    ] {
        let manifest = Manifest::read(&contract::MANIFEST.replacen(from, to, 1)).unwrap();
        let difference = Difference { what: What::Twice { name: name.to_owned() }, line: None, place: Some(place.to_owned()) };
        assert_eq!(manifest.check().differences, [difference]);
    }
    let doubled = contract::MANIFEST.replacen("\"permits\"", "\"methods\": {}, \"permits\"", 1);
    assert_eq!(whats(&Manifest::read(&doubled).unwrap().check()), [What::Twice { name: "methods".to_owned() }]);
}

#[test]
fn what_is_no_manifest_is_told() {
    for text in ["", "[]", "{}", "{\"methods\": []}", "{\"methods\": {\"run\": [1]}}", "{\"methods\": {}} x"] {
        assert!(matches!(whats(&Report::from(Manifest::read(text).unwrap_err()))[..], [What::NotUnderstood { .. }]), "{text}");
    }
}
