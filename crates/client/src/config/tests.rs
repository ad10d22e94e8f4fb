//! What is wrong with a config is named.

use super::*;
use crate::Client;

const GOOD: &str = "
apiVersion: v1
kind: Config
clusters:
- name: here
  cluster: {server: 'https://127.0.0.1:6443', insecure-skip-tls-verify: true}
- name: odd
  cluster: {server: ':::'}
users:
- name: me
  user: {token: secret}
- name: plugin
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}
- name: hinted
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: no-such-plugin
      interactiveMode: Never
      installHint: brew install no-such-plugin
- name: files
  user: {client-certificate: /nowhere/cert, client-key: /nowhere/key}
contexts:
- {name: one, context: {cluster: here, user: me, namespace: shop}}
- {name: two, context: {cluster: there, user: me}}
- {name: three, context: {cluster: here, user: you}}
- {name: four, context: {cluster: here, user: plugin}}
- {name: five, context: {cluster: here, user: files}}
- {name: seven, context: {cluster: here, user: hinted}}
- {name: six, context: {cluster: odd, user: me}}
current-context: one
";

#[tokio::test]
async fn what_is_wrong_is_named() {
    async fn check(context: Option<&str>, expected: &str) {
        let found = match Config::from_kubeconfig_text(GOOD, context).await.and_then(|config| {
            Client::from_config(&config)?;
            Ok(format!("{} {} {}", config.server(), config.default_namespace(), config.place.user))
        }) {
            Ok(found) => found,
            Err(error) => error.to_string(),
        };
        assert!(found.starts_with(expected), "{context:?}: {found:?} is not {expected:?}");
    }
    check(None, "https://127.0.0.1:6443/ shop me").await;
    check(Some("one"), "https://127.0.0.1:6443/ shop me").await;
    let of = |context: &str, reason: &str| format!("kubeconfig the given kubeconfig: context {context:?}: {reason}");
    check(Some("nine"), &of("nine", "context was not found")).await;
    check(Some("two"), &of("two", "cluster \"there\" was not found")).await;
    check(Some("three"), &of("three", "user \"you\" was not found")).await;
    check(Some("six"), &of("six", "failed to parse cluster url")).await;
    let user = |context: &str, user: &str| {
        format!("credentials of the given kubeconfig, context {context:?}, user {user:?}: ")
    };
    check(Some("four"), &(user("four", "plugin") + "auth error: auth exec command 'KUBERNETES_EXEC_INFO=")).await;
    let missing = "exec: executable no-such-plugin not found\n\nbrew install no-such-plugin";
    check(Some("seven"), &(user("seven", "hinted") + missing)).await;
    check(
        Some("five"),
        &(user("five", "files") + "Failed to infer provided configuration: failed to load client certificate: failed to read file '\"/nowhere/cert\"'"),
    )
    .await;
}

#[tokio::test]
async fn files_are_named_and_lists_merged() {
    let directory = env::temp_dir().join(format!("capstan-client-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (one, two, bad) = (directory.join("one"), directory.join("two"), directory.join("bad"));
    std::fs::write(&one, "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n").unwrap();
    std::fs::write(&two, "clusters: [{name: c, cluster: {server: 'http://a:1'}}]\ncurrent-context: y\n").unwrap();
    std::fs::write(&bad, "clusters: [\n").unwrap();
    let config = Config::from_kubeconfigs(&[one.clone(), two.clone()], None).await.unwrap();
    assert_eq!((config.server().as_str(), config.place.context.as_str()), ("http://a:1/", "x"));
    let error = Config::from_kubeconfigs(&[one, bad.clone()], None).await.unwrap_err().to_string();
    let expected = format!("kubeconfig {}: failed to parse kubeconfig YAML", bad.display());
    assert!(error.starts_with(&expected), "{error}");
    let missing = directory.join("missing");
    let error = Config::from_kubeconfig(&missing, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("kubeconfig {}: failed to read", missing.display())), "{error}");
    let error = Config::from_kubeconfig(&two, Some("z")).await.unwrap_err().to_string();
    assert_eq!(error, format!("kubeconfig {}: context \"z\": context was not found", two.display()));
    std::fs::remove_dir_all(&directory).unwrap();
    let none = Config::from_kubeconfig_text("{}", None).await.unwrap_err().to_string();
    assert_eq!(none, "kubeconfig the given kubeconfig: it has no contexts");
}

/// A file that says nothing is as good as none: the account of the pod is next.
#[tokio::test]
async fn files_that_say_nothing() {
    let directory = env::temp_dir().join(format!("capstan-client-empty-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (empty, missing, half) = (directory.join("empty"), directory.join("missing"), directory.join("half"));
    std::fs::write(&empty, "apiVersion: v1\nkind: Config\n").unwrap();
    std::fs::write(&half, "current-context: x\n").unwrap();
    let error = |files: &[&PathBuf]| {
        let files = files.iter().map(|file| (*file).clone()).collect();
        async { Config::from_files(files, true).await.unwrap_err().to_string() }
    };
    let nowhere = format!("no kubeconfig found ({}), and not in a cluster: ", empty.display());
    let found = error(&[&empty]).await;
    assert!(found.starts_with(&nowhere), "{found}");
    assert!(error(&[&missing, &empty]).await.contains("and not in a cluster: "));
    let found = error(&[&missing]).await;
    assert_eq!(found, format!("kubeconfig {}: there is no such file", missing.display()));
    let found = error(&[&empty, &half]).await;
    assert!(found.ends_with("context \"x\": context was not found"), "{found}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn plugins_ask_where_somebody_sits() {
    use ExecInteractiveMode::{Always, IfAvailable, Never};
    let check = |mode: Option<ExecInteractiveMode>, is_terminal: bool, expected: &str| {
        let text = serde_json::json!({"command": "c", "interactiveMode": mode});
        let mut exec: ExecConfig = serde_json::from_value(text.clone()).unwrap();
        let done = may_ask(&mut exec, &Place::default(), is_terminal);
        let found = match done {
            Ok(()) => format!("{:?}", exec.interactive_mode),
            Err(error) => error.to_string(),
        };
        assert!(found.ends_with(expected), "{text} {is_terminal}: {found}");
    };
    check(Some(Never), true, "Some(Never)");
    check(Some(IfAvailable), true, "Some(IfAvailable)");
    check(Some(Always), true, "Some(Always)");
    check(Some(Never), false, "Some(Never)");
    check(Some(IfAvailable), false, "Some(Never)");
    check(None, false, "Some(Never)");
    let refused = "exec plugin cannot support interactive mode: standard input is not a terminal";
    check(Some(Always), false, refused);
}

#[tokio::test]
async fn said_outright() {
    let explicit = ExplicitConfig {
        host: "https://example.invalid:1".to_owned(),
        bearer_token: "t".to_owned(),
        impersonate: "jane".to_owned(),
        impersonate_uid: "7".to_owned(),
        impersonate_extra: [("team".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
        cert_file: "/nowhere/cert".to_owned(),
        key_file: "/nowhere/key".to_owned(),
        default_namespace: "shop".to_owned(),
        insecure: true,
        ..ExplicitConfig::default()
    };
    let config = Config::explicit(&explicit).await.unwrap();
    assert_eq!((config.server().as_str(), config.default_namespace()), ("https://example.invalid:1/", "shop"));
    let user = &config.kube.auth_info;
    assert_eq!((user.impersonate.as_deref(), user.impersonate_uid.as_deref()), (Some("jane"), Some("7")));
    assert_eq!(user.impersonate_user_extra.as_ref().unwrap()["team"], ["a", "b"]);
    assert_eq!(user.client_certificate.as_deref(), Some("/nowhere/cert"));
    let both = ExplicitConfig { ca_file: "/nowhere/ca".to_owned(), ..explicit };
    let both = Config::explicit(&both).await.unwrap_err().to_string();
    assert!(both.ends_with("specifying a root certificates file with the insecure flag is not allowed"), "{both}");
    let nothing = Config::explicit(&ExplicitConfig::default()).await.unwrap_err().to_string();
    assert!(nothing.contains("cluster url is missing"), "{nothing}");
}
