//! `relay contract check`: what it prints and how it ends.

use crate::{finish, support::data_dir::DataDir, text};
use relay_protocol::contract;
use serde_json::{Value, json};
use std::fs;

/// Writes the files that these tests name, in the directory that the command runs in.
fn phones(directory: &DataDir) {
    let names: Vec<&str> = contract::methods().map(|method| method.name).collect();
    let swift: String = names.iter().enumerate().map(|(index, name)| format!("  case c{index} = \"{name}\"\n")).collect();
    let kotlin: String = names.iter().enumerate().map(|(index, name)| format!("  C{index}(\"{name}\"),\n")).collect();
    for (file, content) in [
        ("RpcMethod.swift", format!("enum RpcMethod: String {{\n{swift}}}\n")),
        ("Misspelt.swift", format!("enum RpcMethod: String {{\n{}}}\n", swift.replace("run.cancel", "run.cancle"))),
        ("Methods.kt", format!("enum class Methods(val method: String) {{\n{kotlin}}}\n")),
        ("methods.json", json!(names).to_string()),
        ("short.json", json!(names[1..]).to_string()),
        ("contract.json", contract::MANIFEST.replacen("-32012", "-32013", 1)),
    ] {
        fs::write(directory.path().join(file), content).unwrap();
    }
}

#[test]
fn copies_that_agree_end_with_0() {
    let directory = DataDir::new();
    phones(&directory);
    let own = finish(&directory, &["contract", "check"]);
    assert_eq!((own.status.code(), text(&own.stderr)), (Some(0), ""));
    assert_eq!(text(&own.stdout), "COPY      METHODS  RESULT\nmanifest  74       agrees\nrelay     74       agrees\n");
    let phones = finish(&directory, &["contract", "check", "--swift", "RpcMethod.swift", "--list", "methods.json"]);
    assert_eq!((phones.status.code(), text(&phones.stderr)), (Some(0), ""), "{}", text(&phones.stdout));
    let named = finish(&directory, &["contract", "check", "--kotlin", "Methods.kt", "--enum", "Methods", "--json"]);
    let told: Value = serde_json::from_slice(&named.stdout).unwrap();
    assert_eq!((named.status.code(), &told["agree"], &told["copies"][2]["methods"]), (Some(0), &json!(true), &json!(74)));
}

#[test]
fn every_difference_of_every_copy_is_told_and_ends_with_1() {
    let directory = DataDir::new();
    phones(&directory);
    let files = ["--swift", "Misspelt.swift", "RpcMethod.swift", "--kotlin", "Methods.kt", "--list", "short.json"];
    let differing = finish(&directory, &[&["contract", "check", "--manifest", "contract.json"][..], &files].concat());
    let line = contract::methods().position(|method| method.name == "run.cancel").unwrap() + 2;
    let expected = format!(
        "COPY             METHODS  RESULT\n\
         contract.json    74       agrees\n\
         relay            74       1 difference\n\
         Misspelt.swift   74       1 difference\n\
         RpcMethod.swift  74       agrees\n\
         Methods.kt       -        not understood\n\
         short.json       73       1 difference\n\
         relay: errors.relay.expired: -32012 here, -32013 in the manifest\n\
         Misspelt.swift:{line}: run.cancle is not in the manifest, which has run.cancel\n\
         Methods.kt: it has no enum RpcMethod; its enums: Methods\n\
         short.json: {} is missing\n",
        contract::methods().next().unwrap().name,
    );
    assert_eq!(text(&differing.stdout), expected);
    assert_eq!((differing.status.code(), text(&differing.stderr)), (Some(1), "error: 4 of 6 do not agree with the manifest\n"));

    let as_json = finish(&directory, &["contract", "check", "--swift", "Misspelt.swift", "--json"]);
    let told: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    let difference = json!({ "kind": "misspelt", "name": "run.cancle", "nearest": "run.cancel", "line": line });
    assert_eq!(told["copies"][2], json!({ "copy": "Misspelt.swift", "methods": 74, "differences": [difference] }));
    assert_eq!((as_json.status.code(), &told["agree"]), (Some(1), &json!(false)));
}

#[test]
fn a_file_that_cannot_be_read_ends_with_2_and_is_named() {
    let directory = DataDir::new();
    phones(&directory);
    fs::write(directory.path().join("latin.kt"), b"// \xe9").unwrap();
    for (flag, file) in [("--manifest", "absent.json"), ("--swift", "absent.swift"), ("--kotlin", "latin.kt"), ("--list", "/dev/zero")] {
        let output = finish(&directory, &["contract", "check", "--list", "methods.json", flag, file]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{file}");
        assert!(text(&output.stderr).starts_with(&format!("error: {flag} {file}: ")), "{}", text(&output.stderr));
    }
    let no_manifest = finish(&directory, &["contract", "check", "--manifest", "methods.json"]);
    assert_eq!(no_manifest.status.code(), Some(1));
    assert!(text(&no_manifest.stdout).ends_with("methods.json: it lists no methods by namespace\n"), "{}", text(&no_manifest.stdout));
}
