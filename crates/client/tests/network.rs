//! Clients over the network: kubeconfigs, TLS, tokens and certificates, connections that are shared.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use capstan_api::{GroupVersionResource, Unstructured, options::ListOptions};
use capstan_client::{Api, Client, Config, Error, Event, ExplicitConfig, wait::conditions};
use capstan_clock::{Clock as _, OsIds, RealClock, Timestamp};
use capstan_server::{
    Server, authentication,
    authorization::UserInfo,
    pki::{self, Credential, Pki},
    serve,
};
use capstan_storage::{Memory, Options};
use tokio::sync::Notify;

struct Cluster {
    directory: PathBuf,
    url: String,
    pki: Pki,
    /// The server ends with it.
    _handle: serve::Handle,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        Cluster::start_at(name, RealClock::new().now()).await
    }

    /// With certificates that were made at this time.
    async fn start_at(name: &str, made: Timestamp) -> Self {
        let clock = Arc::new(RealClock::new());
        let directory = std::env::temp_dir().join(format!("capstan-client-{name}-{}", std::process::id()));
        let options = pki::Options { host: "here".into(), service_ip: [10, 0, 0, 1].into(), extra: Vec::new() };
        let pki = Pki::open(&directory, &options, made, &OsIds).unwrap();
        let mut tokens = authentication::StaticTokens::default();
        tokens.insert("a-token", UserInfo::new("admin", ["system:masters"]));
        let config = capstan_server::Config {
            authentication: authentication::Config {
                client_ca: Some(authentication::CertificatePool::from_pem(pki.ca.own.certificate.as_bytes()).unwrap()),
                static_tokens: Some(tokens),
                ..authentication::Config::default()
            },
            ..capstan_server::Config::default()
        };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        let tls = pki::server_config(&pki.serving, &pki.ca.own.chain()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let tls = Some(Arc::new(tls));
        let handle = serve::serve(vec![listener], tls, server, serve::Limits::default(), clock).unwrap();
        Cluster { directory, url, pki, _handle: handle }
    }

    fn kubeconfig(&self, user: &str, credential: Credential<'_>) -> String {
        pki::kubeconfig("capstan", &self.url, &self.pki.ca.own.certificate, user, credential)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

async fn client(kubeconfig: &str) -> Client {
    Client::from_config(&Config::from_kubeconfig_text(kubeconfig, None).await.unwrap()).unwrap()
}

fn config_maps(client: &Client) -> Api<Unstructured> {
    Api::dynamic(client, GroupVersionResource::new("", "v1", "configmaps"), client.default_namespace())
}

fn config_map(name: &str) -> Unstructured {
    let text = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    Unstructured::decode(text.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_certificates_and_kubes_own_client() {
    let cluster = Cluster::start("credentials").await;
    let by_token = cluster.kubeconfig("admin", Credential::Token("a-token"));
    let by_certificate = cluster.kubeconfig("admin", Credential::Certificate(&cluster.pki.admin));
    let kube = kube_client::config::Kubeconfig::from_yaml(&by_token).unwrap();
    let clients = [
        client(&by_token).await,
        client(&by_certificate).await,
        Client::from(kube_client::Client::try_from(kube).unwrap()),
    ];
    for (at, client) in clients.iter().enumerate() {
        let maps = config_maps(client);
        let mut watch = maps.watch(&ListOptions::default()).await.unwrap();
        let created = maps.create(&config_map(&format!("map-{at}"))).await.unwrap();
        loop {
            if let Event::Added(seen) = watch.try_next().await.unwrap().unwrap()
                && seen.name() == created.name()
            {
                break;
            }
        }
        assert!(maps.get("nobody").await.unwrap_err().is_not_found());
    }

    // More watches than a connection carries.
    let maps = config_maps(&clients[0]);
    let mut watches = Vec::new();
    for _ in 0..capstan_client::network::MAX_STREAMS + 20 {
        watches.push(maps.watch(&ListOptions::default()).await.unwrap());
    }
    for watch in &mut watches {
        assert!(matches!(watch.try_next().await, Ok(Some(Event::Added(_)))));
    }

    let nobody = client(&cluster.kubeconfig("nobody", Credential::Token("wrong"))).await;
    assert_eq!(config_maps(&nobody).get("x").await.unwrap_err().status().unwrap().code, 401);
}

/// A token that is rotated is shown with the next request; one that cannot be read any more stays.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_read_again_when_they_rotate() {
    let cluster = Cluster::start("rotation").await;
    let file = cluster.directory.join("token");
    std::fs::write(&file, "not-yet-a-token\n").unwrap();
    let config = ExplicitConfig {
        host: cluster.url.clone(),
        ca_data: cluster.pki.ca.own.certificate.clone().into(),
        bearer_token: "the file counts".into(),
        bearer_token_file: file.display().to_string(),
        ..ExplicitConfig::default()
    };
    let client = Client::from_config(&Config::explicit(&config).await.unwrap()).unwrap();
    let maps = config_maps(&client);
    let code = async || maps.get("x").await.unwrap_err().status().unwrap().code;
    assert_eq!(code().await, 401);
    std::fs::write(&file, "a-token\n").unwrap();
    assert_eq!(code().await, 404);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code().await, 404);

    let gone = ExplicitConfig { bearer_token: String::new(), ..config };
    let error = Client::from_config(&Config::explicit(&gone).await.unwrap()).unwrap_err().to_string();
    assert!(error.contains("failed to read token file") && error.contains("rotation"), "{error}");
}

/// Where clients find whichever server is current.
struct Door {
    url: String,
    current: Arc<Mutex<String>>,
    moved: Arc<Notify>,
}

impl Door {
    async fn open(to: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (current, moved) = (Arc::new(Mutex::new(to.to_owned())), Arc::new(Notify::new()));
        let (to, end) = (current.clone(), moved.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let address = to.lock().unwrap().trim_start_matches("https://").to_owned();
                let end = end.clone();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(address).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        () = end.notified() => {}
                    }
                });
            }
        });
        Door { url, current, moved }
    }

    /// Another server takes over; connections to the old one end.
    fn lead(&self, to: &str) {
        to.clone_into(&mut self.current.lock().unwrap());
        self.moved.notify_waiters();
    }
}

/// A server that has a certificate of another authority is believed as soon as the file names that one.
#[tokio::test(flavor = "multi_thread")]
async fn authorities_are_read_again_when_they_rotate() {
    let (before, after) = (Cluster::start("ca-before").await, Cluster::start("ca-after").await);
    let file = before.directory.join("rotated.crt");
    let write = |text: &str| {
        std::fs::write(before.directory.join("new"), text).unwrap();
        std::fs::rename(before.directory.join("new"), &file).unwrap();
    };
    write(&before.pki.ca.own.certificate);
    let door = Door::open(&before.url).await;
    let explicit = ExplicitConfig {
        host: door.url.clone(),
        ca_file: file.display().to_string(),
        bearer_token: "a-token".into(),
        ..ExplicitConfig::default()
    };
    let client = Client::from_config(&Config::explicit(&explicit).await.unwrap()).unwrap();
    let maps = config_maps(&client);
    assert!(maps.get("x").await.unwrap_err().is_not_found());

    // The server changes first. Requests on connections that end may break off, but nothing is believed.
    door.lead(&after.url);
    for _ in 0..3 {
        let (Error::Transport(_) | Error::Certificate(_)) = maps.get("x").await.unwrap_err() else {
            panic!("it is not to be trusted")
        };
    }
    let Error::Certificate(text) = maps.get("x").await.unwrap_err() else { panic!("it is not to be trusted") };
    assert!(text.contains("certificate"), "{text}");
    write("no certificate");
    assert!(matches!(maps.get("x").await, Err(Error::Certificate(_))));
    write(&after.pki.ca.own.certificate);
    assert!(maps.get("x").await.unwrap_err().is_not_found());

    // Those that vouch for both serve both; a file that is gone takes nothing away.
    write(&format!("{}{}", before.pki.ca.own.certificate, after.pki.ca.own.certificate));
    let kubeconfig = format!(
        "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{token: a-token}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        door.url,
        file.display()
    );
    let other = config_maps(&self::client(&kubeconfig).await);
    assert!(other.get("x").await.unwrap_err().is_not_found());
    std::fs::remove_file(&file).unwrap();
    door.lead(&before.url);
    while let Err(error) = other.get("x").await
        && !error.is_not_found()
    {
        let Error::Transport(text) = error else { panic!("{error}") };
        assert!(!text.contains("certificate"), "{text}");
    }

    let gone = Config::explicit(&explicit).await.unwrap_err().to_string();
    assert!(gone.contains("rotated.crt"), "{gone}");
}

/// Answers that are long come compressed to those who say that they can read that.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_answers_are_read() {
    let cluster = Cluster::start("gzip").await;
    let client = client(&cluster.kubeconfig("admin", Credential::Token("a-token"))).await;
    assert_eq!(format!("https://{}", client.host()), cluster.url);
    let maps = config_maps(&client);
    for at in 0..4 {
        let mut map = config_map(&format!("long-{at}"));
        map.set_nested(["data", "text"], "so long ".repeat(10_000).as_str()).unwrap();
        maps.create(&map).await.unwrap();
    }
    let ask = |encoding: &'static str| {
        let request = http::Request::get("/api/v1/namespaces/default/configmaps").header("accept-encoding", encoding);
        request.body(bytes::Bytes::new()).unwrap()
    };
    let plain = client.bytes(ask("identity")).await.unwrap();
    assert!(plain.len() > 200_000, "{}", plain.len());
    assert_eq!(client.bytes(ask("gzip")).await.unwrap(), plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_have_expired() {
    let cluster = Cluster::start_at("expired", "1990-01-01T00:00:00Z".parse().unwrap()).await;
    let client = client(&cluster.kubeconfig("me", Credential::Token("a-token"))).await;
    let Error::Certificate(text) = config_maps(&client).get("x").await.unwrap_err() else { panic!() };
    assert!(text.starts_with(&cluster.url) && text.contains("expired") && text.contains("user \"me\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_not_trusted_or_not_there() {
    let (cluster, other) = (Cluster::start("one").await, Cluster::start("other").await);
    let wrong = pki::kubeconfig("capstan", &cluster.url, &other.pki.ca.own.certificate, "me", Credential::Token("t"));
    let waited = config_maps(&client(&wrong).await).wait_for("x", conditions::exists()).await;
    assert!(matches!(waited, Err(Error::Certificate(_))), "{waited:?}");
    let Error::Certificate(text) = config_maps(&client(&wrong).await).get("x").await.unwrap_err() else { panic!() };
    assert!(text.starts_with(&cluster.url) && text.contains("certificate"), "{text}");
    assert!(text.contains("context \"capstan\"") && text.contains("user \"me\""), "{text}");

    let gone = client(&other.kubeconfig("me", Credential::Token("a-token"))).await;
    config_maps(&gone).list(&ListOptions::default()).await.unwrap();
    drop(other);
    let Error::Transport(text) = config_maps(&gone).get("x").await.unwrap_err() else { panic!() };
    assert!(text.contains("user \"me\""), "{text}");
}

/// Another certificate is used as soon as the files have it, or as a plugin tells it once the old one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_read_again_when_they_rotate() {
    let (cluster, other) = (Cluster::start("renewed").await, Cluster::start("elsewhere").await);
    let at = |name: &str| cluster.directory.join(name);
    let write = |admin: &pki::Certified| {
        let key = admin.key.to_pem();
        std::fs::write(at("me.crt"), &admin.certificate).unwrap();
        std::fs::write(at("me.key"), &key).unwrap();
        let status = serde_json::json!({"clientCertificateData": admin.certificate, "clientKeyData": key});
        let told = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": status});
        std::fs::write(at("told.json"), told.to_string()).unwrap();
    };
    let kubeconfig = |user: &str| {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let ca = STANDARD.encode(&cluster.pki.ca.own.certificate);
        format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            cluster.url
        )
    };
    write(&other.pki.admin);
    let files = format!("client-certificate: '{}', client-key: '{}'", at("me.crt").display(), at("me.key").display());
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: cat, args: ['{}'], interactiveMode: Never}}",
        at("told.json").display()
    );
    let (by_files, by_plugin) = (client(&kubeconfig(&files)).await, client(&kubeconfig(&exec)).await);
    for client in [&by_files, &by_plugin] {
        assert!(config_maps(client).get("x").await.unwrap_err().is_unauthorized());
    }
    write(&cluster.pki.admin);
    assert!(config_maps(&by_files).get("x").await.unwrap_err().is_not_found());
    assert!(config_maps(&by_plugin).get("x").await.unwrap_err().is_unauthorized(), "what it knows is refused");
    assert!(config_maps(&by_plugin).get("x").await.unwrap_err().is_not_found());
}
