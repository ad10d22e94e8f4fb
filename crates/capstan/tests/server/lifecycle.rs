//! How the server starts, refuses to start, and ends.

use std::{net::TcpListener, path::Path};

use crate::harness::{Capstan, Watch, directory, refused, text};

/// Refuses with one line on standard error, and nothing else.
fn check(directory: &Path, port: u16, expected: &str) {
    let output = refused(directory, port);
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {expected}\n"));
}

#[test]
fn a_busy_port_is_told_in_one_line() {
    let directory = directory("port");
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let expected = format!(
        "cannot listen on 127.0.0.1:{port}: Address already in use (os error 98): \
         name another with --secure-port, or 0 for a free one"
    );
    check(&directory, port, &expected);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn a_directory_in_use_is_told_in_one_line() {
    let directory = directory("in-use");
    let server = Capstan::start(&directory);
    let output = refused(&directory, 0);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    let (store, id) = (directory.join("store"), server.id());
    let expected =
        format!("error: another process holds the store ({} is held by process {id} (capstan)", store.display());
    assert!(words.starts_with(&expected) && words.lines().count() == 1, "{words}");
    assert!(words.ends_with("stop it, or use another directory\n"), "{words}");
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_told_in_one_line() {
    let directory = directory("file");
    std::fs::write(&directory, "not a directory").unwrap();
    let output = refused(&directory, 0);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(words.starts_with("error: ") && words.contains("Not a directory") && words.lines().count() == 1, "{words}");
    std::fs::remove_file(&directory).unwrap();
}

#[test]
fn a_watch_ends_in_order_when_the_server_is_told_to_end() {
    let directory = directory("term");
    let mut server = Capstan::start(&directory);
    let door = server.door(true);
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut watch = Watch::start(&door, maps, "0").unwrap();
    assert_eq!(door.ask("POST", maps, r#"{"metadata":{"name":"seen"}}"#).unwrap().code, 201);
    loop {
        let event = watch.next().unwrap().expect("the watch goes on");
        if text(&event, &["object", "metadata", "name"]) == "seen" {
            break;
        }
    }
    server.terminate();
    assert!(watch.next().expect("an orderly end, not a cut").is_none());
    assert!(server.wait().success());
    std::fs::remove_dir_all(&directory).unwrap();
}
