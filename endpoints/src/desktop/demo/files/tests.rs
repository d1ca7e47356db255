//! What can be reached below a root, and what cannot.

use super::{Root, read_binary, read_content, resolve, root::Kind, search};
use crate::desktop::demo::{
    fault::Fault,
    files::{BinaryParams, CONTENT_BYTES_MAX, OfPath, ReferenceParams},
};
use relay_protocol::{desktop_error::DesktopError, limits::desktop::READ_BINARY_BYTES_MAX};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::{fs, os::unix::fs::symlink};
use tempfile::TempDir;

/// A folder with a secret beside the root that phones may read.
struct Place {
    outer: TempDir,
    root: Root,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("folder/inner")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a.txt"), "text").unwrap();
        fs::write(root.join("folder/inner/b.bin"), [0xff, 0, 1]).unwrap();
        let root = Root::open(&root).unwrap();
        Place { outer, root }
    }

    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.outer.path().join("root").join(path)
    }
}

fn kind<T>(result: Result<T, Fault>) -> DesktopError {
    match result {
        Err(Fault::Refused(error)) => error.kind,
        Err(Fault::Storage(error)) => panic!("{error}"),
        Ok(_) => panic!("it is not refused"),
    }
}

fn content(root: &Root, path: &str) -> Result<String, Fault> {
    read_content(root, OfPath { path: path.to_owned() }).map(|read| read.content)
}

#[test]
fn no_path_leads_out_of_the_root() {
    let place = Place::new();
    let secret = place.outer.path().join("secret");
    symlink(&secret, place.inside("absolute")).unwrap();
    symlink("../secret", place.inside("relative")).unwrap();
    symlink("..", place.inside("up")).unwrap();
    symlink("absolute", place.inside("chain")).unwrap();
    symlink("round", place.inside("round")).unwrap();
    symlink("/proc/self/root", place.inside("magic")).unwrap();
    let absolute = secret.to_str().unwrap().to_owned();
    for (path, expected) in [
        ("../secret", DesktopError::InvalidParams),
        ("folder/../../secret", DesktopError::InvalidParams),
        ("folder/../a.txt", DesktopError::InvalidParams),
        ("./../secret", DesktopError::InvalidParams),
        ("/etc/passwd", DesktopError::InvalidParams),
        ("//a.txt", DesktopError::InvalidParams),
        (&absolute, DesktopError::InvalidParams),
        ("a.txt\0", DesktopError::InvalidParams),
        ("\0", DesktopError::InvalidParams),
        (&"x/".repeat(2_049), DesktopError::InvalidParams),
        ("absolute", DesktopError::Forbidden),
        ("relative", DesktopError::Forbidden),
        ("chain", DesktopError::Forbidden),
        ("up/secret", DesktopError::Forbidden),
        ("up", DesktopError::Forbidden),
        ("up/root/a.txt/..", DesktopError::InvalidParams),
        ("magic/etc/passwd", DesktopError::Forbidden),
        ("round", DesktopError::Forbidden),
        ("..\\secret", DesktopError::NotFound),
        ("%2e%2e/secret", DesktopError::NotFound),
        ("a.txt/secret", DesktopError::NotFound),
        ("nothing", DesktopError::NotFound),
        (&"x".repeat(300), DesktopError::ExternalService),
    ] {
        assert_eq!(kind(content(&place.root, path)), expected, "content of {path:?}");
        assert_eq!(kind(place.root.stat(path)), expected, "stat of {path:?}");
        assert_eq!(kind(place.root.list(path, 10)), expected, "list of {path:?}");
        assert_eq!(kind(search::search(&place.root, path, "x", None)), expected, "search below {path:?}");
        let binary = BinaryParams { path: path.to_owned(), offset: 0, length: Some(1) };
        assert_eq!(kind(read_binary(&place.root, binary)), expected, "bytes of {path:?}");
    }
}

#[test]
fn links_that_stay_inside_are_followed_and_the_answer_says_whither() {
    let place = Place::new();
    symlink("folder/inner", place.inside("short")).unwrap();
    symlink(place.inside("a.txt"), place.inside("folder/back")).unwrap();
    assert_eq!(content(&place.root, "folder/back").unwrap(), "text");
    assert_eq!(place.root.stat("short/b.bin").unwrap().path, "folder/inner/b.bin");
    assert_eq!(place.root.stat("up/../a.txt").map_err(|_fault| ()), Err(()));
    assert_eq!((place.root.stat("").unwrap().path.as_str(), place.root.stat(".").unwrap().kind), ("", Kind::Directory));
}

/// What was judged is not looked up again by its path, so that a link that comes in between leads nowhere.
#[test]
fn a_name_that_becomes_a_link_after_it_was_judged_is_not_followed() {
    let place = Place::new();
    let resolved = place.root.resolve("folder/inner").unwrap();
    fs::rename(place.inside("folder"), place.inside("moved")).unwrap();
    symlink(place.outer.path(), place.inside("folder")).unwrap();
    fs::create_dir(place.outer.path().join("inner")).unwrap();
    assert_eq!(kind(place.root.folder(&resolved)), DesktopError::NotFound);
    fs::remove_file(place.inside("folder")).unwrap();
    fs::create_dir(place.inside("folder")).unwrap();
    symlink(place.outer.path(), place.inside("folder/inner")).unwrap();
    assert!(place.root.folder(&resolved).is_err());
}

#[test]
fn what_is_no_file_is_seen_and_never_opened() {
    let place = Place::new();
    // Opening a pipe without a writer would wait for one.
    mknodat(CWD, place.inside("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.inside("socket")).unwrap();
    for path in ["pipe", "socket"] {
        assert_eq!(kind(content(&place.root, path)), DesktopError::Validation, "{path}");
        assert_eq!(place.root.stat(path).unwrap().kind, Kind::Other);
    }
    assert_eq!(kind(content(&place.root, "folder")), DesktopError::Validation);
    let listed = place.root.list("", 10).unwrap();
    let names: Vec<_> = listed.entries.iter().map(|entry| (&*entry.name, entry.kind)).collect();
    assert_eq!(names, [("a.txt", Kind::File), ("folder", Kind::Directory), ("pipe", Kind::Other), ("socket", Kind::Other)]);
}

#[test]
fn a_text_is_cut_between_characters_and_a_binary_is_none() {
    let place = Place::new();
    fs::write(place.inside("long"), "ü".repeat(CONTENT_BYTES_MAX)).unwrap();
    fs::write(place.inside("odd"), format!("x{}", "ü".repeat(CONTENT_BYTES_MAX))).unwrap();
    for (path, bytes) in [("long", CONTENT_BYTES_MAX), ("odd", CONTENT_BYTES_MAX - 1)] {
        let read = read_content(&place.root, OfPath { path: path.to_owned() }).unwrap();
        assert_eq!((read.content.len(), read.is_truncated), (bytes, true), "{path}");
    }
    assert_eq!(kind(content(&place.root, "folder/inner/b.bin")), DesktopError::Validation);
    fs::write(place.inside("cut"), [b'x', 0xc3]).unwrap();
    assert_eq!(kind(content(&place.root, "cut")), DesktopError::Validation, "the end of the file, not of the page");
}

#[test]
fn a_binary_is_read_whole_or_in_parts_and_never_over_the_limit() {
    let place = Place::new();
    let read = |path: &str, offset, length| read_binary(&place.root, BinaryParams { path: path.to_owned(), offset, length });
    let data = |path, offset, length| read(path, offset, length).unwrap().data;
    assert_eq!(data("a.txt", 0, None), "dGV4dA==");
    assert_eq!(data("a.txt", 1, Some(2)), "ZXg=");
    assert_eq!((data("a.txt", 4, None), data("a.txt", 400, Some(9))), (String::new(), String::new()));
    assert_eq!(data("folder/inner/b.bin", 0, Some(99)), "/wAB");

    let max = READ_BINARY_BYTES_MAX as u64;
    let large = fs::File::create(place.inside("large")).unwrap();
    large.set_len(max + 1).unwrap();
    assert_eq!(kind(read("large", 0, None)), DesktopError::Validation);
    assert_eq!(kind(read("large", 0, Some(max + 1))), DesktopError::Validation);
    assert_eq!(kind(read("large", 0, Some(u64::MAX))), DesktopError::Validation);
    assert_eq!(data("large", 1, None).len(), READ_BINARY_BYTES_MAX.div_ceil(3) * 4);
}

#[test]
fn a_list_and_a_search_are_bounded_and_say_so() {
    let place = Place::new();
    for number in 0..5 {
        fs::write(place.inside(&format!("folder/Match-{number}")), "").unwrap();
    }
    let listed = place.root.list("folder", 6).unwrap();
    assert_eq!((listed.entries.len(), listed.is_truncated), (6, false));
    let listed = place.root.list("folder", 5).unwrap();
    assert_eq!((listed.entries.len(), listed.is_truncated), (5, true));

    symlink("..", place.inside("folder/inner/match-round")).unwrap();
    let found = |limit| serde_json::to_value(search::search(&place.root, "", "match", Some(limit)).unwrap()).unwrap();
    assert_eq!(found(6)["isTruncated"], false);
    assert_eq!(found(6)["matches"].as_array().unwrap().len(), 6, "the link is seen and not followed");
    assert_eq!((found(5)["matches"].as_array().unwrap().len(), &found(5)["isTruncated"]), (5, &true.into()));
    assert_eq!(found(1)["matches"][0]["path"], "folder/Match-0");
}

#[test]
fn a_reference_is_a_path_with_a_line_and_a_column() {
    let place = Place::new();
    fs::write(place.inside("a:1"), "").unwrap();
    let at = |reference: &str| resolve(&place.root, ReferenceParams { reference: reference.to_owned() });
    for (reference, line, column) in [("a.txt", None, None), ("a.txt:10", Some(10), None), ("a.txt:10:3", Some(10), Some(3))] {
        let found = at(reference).unwrap();
        assert_eq!((&*found.path, found.line, found.column), ("a.txt", line, column), "{reference}");
    }
    assert_eq!(kind(at("a.txt:x")), DesktopError::NotFound);
    assert_eq!(kind(at("../secret:1")), DesktopError::InvalidParams);
}
