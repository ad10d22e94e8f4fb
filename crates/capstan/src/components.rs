//! `capstan controllers` and `capstan scheduler`: parts of a cluster that run apart, against any Kubernetes server.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use capstan_client::{Client, Config, ExplicitConfig};
use capstan_clock::{Clock as _, Ids as _, OsIds, RealClock};
use capstan_controllers::{CertificateSigner, ControllerContext, ControllerOptions, Log, Queues, TokenSigner};
use capstan_runtime::{leader_election::LeaderElectionConfig, operator::Manager};
use capstan_scheduler::{Registry, Scheduler, SchedulerConfig, extender::ExtenderConfig};

use serde_json::Value;
use tokio::runtime::Handle;

use crate::{keys, server::block_on};

/// Where leaders are elected when nobody says.
const LEASE_NAMESPACE: &str = "kube-system";

/// How long a server that does not answer is waited for at the start, and how often it is asked.
const SERVER_WAIT: Duration = Duration::from_secs(10);
const SERVER_TRY: Duration = Duration::from_millis(200);

/// The flags with what they are for.
pub(crate) const HELP: &str = "\
  --kubeconfig FILE                       how to reach the server; else KUBECONFIG, ~/.kube/config
  --context NAME                          which context of it
  --leader-elect BOOL                     work only while elected (true)
  --leader-elect-resource-name NAME       the Lease (kube-controller-manager, kube-scheduler)
  --leader-elect-resource-namespace NAME  and where it is (kube-system)
  --health-address ADDRESS:PORT           serve /healthz and /readyz here
  --metrics-address ADDRESS:PORT          serve /metrics here, and /debug/queues for the controllers; may be the same
  --controllers NAMES                     controllers: *, names, or -name for all but these (*)
  --root-ca-file FILE                     controllers: what pods are to trust; without it nothing is published
  --cluster-signing-cert-file FILE        controllers: the authority that signs approved requests
  --cluster-signing-key-file FILE         controllers: and its key
  --service-account-private-key-file FILE controllers: signs the tokens of service accounts that live in Secrets
  --config FILE                           scheduler: a KubeSchedulerConfiguration
";

/// What the flags say.
struct Flags {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    leader_elect: bool,
    lease_name: String,
    lease_namespace: String,
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    controllers: String,
    root_ca: Option<PathBuf>,
    signing_certificate: Option<PathBuf>,
    signing_key: Option<PathBuf>,
    service_account_key: Option<PathBuf>,
    config: Option<PathBuf>,
}

impl Flags {
    fn parse(arguments: &[&str], lease_name: &str) -> Result<Self, String> {
        let mut flags = Flags {
            kubeconfig: None,
            context: None,
            leader_elect: true,
            lease_name: lease_name.to_owned(),
            lease_namespace: LEASE_NAMESPACE.to_owned(),
            health: None,
            metrics: None,
            controllers: "*".to_owned(),
            root_ca: None,
            signing_certificate: None,
            signing_key: None,
            service_account_key: None,
            config: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value),
                None if *argument == "--leader-elect" => (*argument, "true"),
                None => (*argument, *rest.next().ok_or_else(|| format!("flag needs an argument: {argument}"))?),
            };
            let address =
                || value.parse().map(Some).map_err(|error| format!("invalid argument {value:?} for {name}: {error}"));
            match name {
                "--kubeconfig" => flags.kubeconfig = Some(value.into()),
                "--context" => flags.context = Some(value.to_owned()),
                "--leader-elect" => {
                    flags.leader_elect =
                        value.parse().map_err(|error| format!("invalid argument {value:?} for {name}: {error}"))?;
                }
                "--leader-elect-resource-name" => value.clone_into(&mut flags.lease_name),
                "--leader-elect-resource-namespace" => value.clone_into(&mut flags.lease_namespace),
                "--health-address" => flags.health = address()?,
                "--metrics-address" => flags.metrics = address()?,
                "--controllers" => value.clone_into(&mut flags.controllers),
                "--root-ca-file" => flags.root_ca = Some(value.into()),
                "--cluster-signing-cert-file" => flags.signing_certificate = Some(value.into()),
                "--cluster-signing-key-file" => flags.signing_key = Some(value.into()),
                "--service-account-private-key-file" => flags.service_account_key = Some(value.into()),
                "--config" => flags.config = Some(value.into()),
                _ => return Err(format!("unknown flag: {name}")),
            }
        }
        Ok(flags)
    }

    async fn client(&self, agent: &str) -> Result<Client, String> {
        let client = match &self.kubeconfig {
            Some(file) => Client::from_kubeconfig(file, self.context.as_deref()).await,
            None => Client::from_default_config().await,
        };
        let client = client.map_err(|error| error.to_string())?.with_user_agent(agent);
        // A server may start at the same time; one that cannot be reached at all is a mistake to be told of.
        let clock = RealClock::new();
        loop {
            match client.discovery().server_version().await {
                Ok(_) => return Ok(client),
                Err(error) if clock.monotonic().0 > SERVER_WAIT => {
                    return Err(format!("no answer from the server: {error}"));
                }
                Err(_) => clock.sleep(SERVER_TRY).await,
            }
        }
    }

    /// What control loops need beside the cluster's objects.
    fn options(&self) -> Result<ControllerOptions, String> {
        let certificate_signer = match (&self.signing_certificate, &self.signing_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let signer = keys::authority(certificate, key, RealClock::new().now())?;
                Some(Arc::new(signer) as Arc<dyn CertificateSigner>)
            }
            _ => return Err("--cluster-signing-cert-file and --cluster-signing-key-file go together".to_owned()),
        };
        let token_signer = match &self.service_account_key {
            Some(file) => Some(Arc::new(keys::private_key(file)?) as Arc<dyn TokenSigner>),
            None => None,
        };
        let root_ca = self.root_ca.as_ref().map(read).transpose()?.unwrap_or_default();
        let log: Option<Log> = Some(Arc::new(|line| eprintln!("{:.3} {line}", RealClock::new().now())));
        Ok(ControllerOptions { root_ca, token_signer, certificate_signer, log, ..ControllerOptions::default() })
    }

    fn manager(&self, client: &Client, name: &str) -> Manager {
        let mut manager = Manager::new(client).named(name);
        if self.leader_elect {
            // Two processes of one machine are two candidates.
            let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let identity = format!("{}_{}", hostname.trim(), OsIds.uid());
            let config = LeaderElectionConfig::new(&identity);
            manager = manager.leader_election_with(&self.lease_namespace, &self.lease_name, config);
        }
        if let Some(address) = self.health {
            manager = manager.health_probe_bind_address(address);
        }
        if let Some(address) = self.metrics {
            manager = manager.metrics_bind_address(address);
        }
        manager
    }
}

fn read(file: &PathBuf) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Runs the control loops until it is told to end.
pub(crate) fn controllers(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags::parse(arguments, "kube-controller-manager")?;
    let which = capstan_controllers::select(&flags.controllers).map_err(|error| error.to_string())?;
    let options = flags.options()?;
    block_on(async {
        let client = flags.client("kube-controller-manager").await?;
        println!("{} control loops", which.len());
        let (queues, numbers, page) = {
            let queues = Queues::default();
            (queues.clone(), queues.clone(), queues)
        };
        let manager = flags.manager(&client, "kube-controller-manager").page("/debug/queues", move || page.page());
        manager.metrics_registry().register(move |families| numbers.collect(families));
        let manager = manager.runnable(move |ctx| async move {
            let (clock, ids) = (Arc::clone(ctx.clock()), Arc::clone(ctx.ids()));
            let context = ControllerContext::new(ctx.client().clone(), clock, ids, ctx.stop().clone(), options);
            let context = ControllerContext { queues, ..context };
            capstan_controllers::run(&context, &which).await;
            Ok(())
        });
        manager.run().await.map_err(|error| error.to_string())
    })
}

/// The way to an extender of the scheduler.
fn extender(config: &ExtenderConfig) -> Result<Client, String> {
    let tls = |name: &str| config.tls_config.as_ref().and_then(|tls| tls.get(name));
    let file = |name: &str| match tls(name).and_then(Value::as_str) {
        Some(file) => fs::read(file).map_err(|error| format!("cannot read {file}: {error}")),
        None => Ok(Vec::new()),
    };
    let explicit = ExplicitConfig {
        host: config.url_prefix.clone(),
        insecure: tls("insecure").and_then(Value::as_bool).unwrap_or_default(),
        server_name: tls("serverName").and_then(Value::as_str).unwrap_or_default().to_owned(),
        ca_data: file("caFile")?,
        cert_data: file("certFile")?,
        key_data: file("keyFile")?,
        ..ExplicitConfig::default()
    };
    // Reading a configuration may wait for nothing but files here.
    let config = tokio::task::block_in_place(|| Handle::current().block_on(Config::explicit(&explicit)));
    Client::from_config(&config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Runs the scheduler until it is told to end.
pub(crate) fn scheduler(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags::parse(arguments, "kube-scheduler")?;
    block_on(async {
        let config = match &flags.config {
            Some(file) => {
                let parsed = SchedulerConfig::parse(read(file)?.as_bytes(), &Registry::default(), extender);
                parsed.map_err(|error| format!("{}: {error}", file.display()))?
            }
            None => SchedulerConfig::default(),
        };
        let client = flags.client("kube-scheduler").await?;
        let manager = flags.manager(&client, "kube-scheduler");
        let registry = manager.metrics_registry().clone();
        let manager = manager.runnable(move |ctx| async move {
            let (clock, ids) = (Arc::clone(ctx.clock()), Arc::clone(ctx.ids()));
            let scheduler = Scheduler::new(ctx.client().clone(), clock, ids, config);
            let handle = scheduler.handle();
            registry.register(move |families| handle.collect(families));
            scheduler.run(ctx.stop().clone()).await;
            Ok(())
        });
        manager.run().await.map_err(|error| error.to_string())
    })
}
