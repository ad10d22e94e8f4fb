//! The scheduler on any Kubernetes server: `cargo run -p capstan-scheduler --example scheduler -- --kubeconfig FILE
//! [--config FILE]`. It runs until it is ended, and is the only one of its name then: it does not ask for a lease.

use std::{error::Error, sync::Arc};

use capstan_client::{Client, Config, ExplicitConfig};
use capstan_clock::{OsIds, RealClock};
use capstan_runtime::Stopper;
use capstan_scheduler::{Registry, Scheduler, SchedulerConfig};

fn flag(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.next().and_then(|_| args.next())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let kubeconfig = flag("--kubeconfig").ok_or("--kubeconfig FILE is needed")?;
    let client = Client::from_kubeconfig(&kubeconfig, None).await?;
    let config = match flag("--config") {
        None => SchedulerConfig::default(),
        Some(path) => {
            let text = std::fs::read(&path)?;
            SchedulerConfig::parse(&text, &Registry::default(), |extender| {
                let reach = ExplicitConfig { server: extender.url_prefix.clone(), ..ExplicitConfig::default() };
                let runtime = tokio::runtime::Handle::current();
                let config =
                    std::thread::scope(|scope| scope.spawn(|| runtime.block_on(Config::explicit(&reach))).join());
                let config = config.map_err(|_| "cannot be reached".to_owned())?.map_err(|error| error.to_string())?;
                Client::from_config(&config).map_err(|error| error.to_string())
            })?
        }
    };
    let (_stopper, stop) = Stopper::new();
    Scheduler::new(client, Arc::new(RealClock::new()), Arc::new(OsIds), config).run(stop).await;
    Ok(())
}
