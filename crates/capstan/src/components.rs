//! `capstan controllers` and `capstan scheduler`: parts of a cluster that run apart, against any Kubernetes server.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use capstan_client::{Client, Config, ExplicitConfig};
use capstan_clock::{Ids as _, OsIds};
use capstan_controllers::{ControllerContext, ControllerOptions};
use capstan_runtime::{leader_election::LeaderElectionConfig, operator::Manager};
use capstan_scheduler::{Registry, Scheduler, SchedulerConfig, extender::ExtenderConfig};

use serde_json::Value;
use tokio::runtime::Handle;

use crate::server::block_on;

/// Where leaders are elected when nobody says.
const LEASE_NAMESPACE: &str = "kube-system";

/// The flags with what they are for.
pub(crate) const HELP: &str = "\
  --kubeconfig FILE                       how to reach the server; else KUBECONFIG, ~/.kube/config
  --context NAME                          which context of it
  --leader-elect BOOL                     work only while elected (true)
  --leader-elect-resource-name NAME       the Lease (kube-controller-manager, kube-scheduler)
  --leader-elect-resource-namespace NAME  and where it is (kube-system)
  --health-address ADDRESS:PORT           serve /healthz and /readyz here
  --metrics-address ADDRESS:PORT          serve /metrics here
  --controllers NAMES                     controllers: *, names, or -name for all but these (*)
  --root-ca-file FILE                     controllers: what pods are to trust
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
            config: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value),
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
        Ok(client.map_err(|error| error.to_string())?.with_user_agent(agent))
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
    let root_ca = flags.root_ca.as_ref().map(read).transpose()?.unwrap_or_default();
    block_on(async {
        let client = flags.client("kube-controller-manager").await?;
        println!("{} control loops", which.len());
        let manager = flags.manager(&client, "kube-controller-manager").runnable(move |ctx| async move {
            let options = ControllerOptions { root_ca, ..ControllerOptions::default() };
            let (clock, ids) = (Arc::clone(ctx.clock()), Arc::clone(ctx.ids()));
            let context = ControllerContext::new(ctx.client().clone(), clock, ids, ctx.stop().clone(), options);
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
