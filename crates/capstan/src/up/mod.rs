//! `capstan up`: a cluster in one command, as far as there is one: its API server.

use crate::server::{self, Flags};

/// Starts the server on this machine alone, says what to type next, and runs until it is told to end.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags { bind_address: [127, 0, 0, 1].into(), ..Flags::default() };
    let mut flags = flags.parse(arguments)?;
    let directory = match &flags.data_dir {
        Some(directory) => directory.clone(),
        None => server::data_dir()?,
    };
    flags.data_dir = Some(directory.clone());
    let kubeconfig = flags.write_kubeconfig.clone().unwrap_or_else(|| directory.join("kubeconfig"));
    // Nobody creates the accounts that this plugin asks for until there are controllers.
    flags.disable_admission.push("ServiceAccount".to_owned());
    server::block_on(async {
        let running = server::start(&flags).await?;
        server::write_private(&kubeconfig, &running.kubeconfig)?;
        println!("  api server   {}, Kubernetes {}", running.url, crate::KUBERNETES);
        println!("  store        {}", running.store);
        println!("  kubeconfig   {}", kubeconfig.display());
        println!("  not yet      controllers, scheduler, nodes: pods stay Pending");
        println!();
        println!("  export KUBECONFIG={}", kubeconfig.display());
        println!("  kubectl get namespaces");
        running.until_told().await
    })
}
