//! The command as a user types it.

use std::process::{Command, Output};

fn capstan(arguments: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_capstan")).args(arguments).current_dir(root).output().expect("the command starts")
}

fn check(arguments: &[&str], success: bool, out: &str, err: &str) {
    let output = capstan(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), (out, err), "{arguments:?}");
    assert_eq!(output.status.success(), success, "{arguments:?}");
}

#[test]
fn manifests_are_checked_and_filled_in() {
    check(&["validate", "-f", "examples/web.yaml"], true, "2 objects, nothing wrong\n", "");
    let output = capstan(&["validate", "-f", "examples/wrong.yaml"]);
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 4);
    let filled = String::from_utf8(capstan(&["default", "-f", "examples/web.yaml"]).stdout).unwrap();
    for expected in
        ["  revisionHistoryLimit: 10\n", "        imagePullPolicy: IfNotPresent\n", "---\n", "    targetPort: 80\n"]
    {
        assert!(filled.contains(expected), "{expected} in {filled}");
    }
}

#[test]
fn mistakes_are_told_in_one_line() {
    let missing = "error: nowhere.yaml: No such file or directory (os error 2)\n";
    check(&["validate", "-f", "nowhere.yaml"], false, "", missing);
    check(&["validate"], false, "", "error: name the files with -f; `-` is standard input\n");
    check(&["up", "--data-dir"], false, "", "error: flag needs an argument: --data-dir\n");
    check(&["up", "--port=1"], false, "", "error: unknown flag: --port\n");
    check(&["server"], false, "", "error: name a directory for what the server keeps: --data-dir DIR\n");
    let unknown = "error: \"nobody\" is not in the list of known controllers\n";
    check(&["controllers", "--controllers", "*,-nobody"], false, "", unknown);
    let half = "error: --cluster-signing-cert-file and --cluster-signing-key-file go together\n";
    check(&["controllers", "--cluster-signing-key-file=x"], false, "", half);
    let missing = "error: cannot read nowhere.key: No such file or directory (os error 2)\n";
    check(&["controllers", "--service-account-private-key-file=nowhere.key"], false, "", missing);
    let broken = capstan(&["controllers", "--service-account-private-key-file=README.md"]);
    let words = String::from_utf8_lossy(&broken.stderr).into_owned();
    assert!(words.starts_with("error: README.md ") && words.lines().count() == 1, "{words}");
    check(
        &["controllers", "--metrics-address=here"],
        false,
        "",
        "error: invalid argument \"here\" for --metrics-address: invalid socket address syntax\n",
    );
    let absent = capstan(&["controllers", "--kubeconfig=nowhere.yaml"]);
    let words = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(words.starts_with("error: ") && words.contains("nowhere.yaml") && words.lines().count() == 1, "{words}");
    assert!(!capstan(&["sideways"]).status.success());
}
