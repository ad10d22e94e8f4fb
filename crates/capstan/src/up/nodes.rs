//! The nodes of `capstan up`.

use std::{env, sync::Arc, time::Duration};

use capstan_clock::{Clock as _, RealClock};
use capstan_kubelet::{
    node::Node,
    runtime::{Runtime as _, process::Process},
};
use capstan_runtime::Stopper;
use capstan_server::authorization::UserInfo;
use tokio::task::JoinSet;

use super::{
    clock_and_ids,
    flags::{Place, Runtime, UpFlags},
    in_process,
};
use crate::server::Running;

/// How long the pods of all nodes have to end.
const PODS_END_WITHIN: Duration = Duration::from_secs(40);

/// The nodes of a cluster.
pub(super) struct Nodes {
    /// What they are, in words.
    pub(super) what: String,
    stopper: Stopper,
    running: JoinSet<()>,
}

impl Nodes {
    /// Ends their containers; the pods stay bound to them.
    pub(super) async fn shut_down(mut self) {
        self.stopper.stop();
        tokio::select! {
            () = async { while self.running.join_next().await.is_some() {} } => {}
            () = RealClock::new().sleep(PODS_END_WITHIN) => self.running.shutdown().await,
        }
    }
}

/// Starts as many nodes as the flags say.
pub(super) async fn start(running: &Running, flags: &UpFlags, place: &Place) -> Result<Nodes, String> {
    let (stopper, stop) = Stopper::new();
    let mut tasks = JoinSet::new();
    let what = match flags.runtime {
        _ if flags.nodes == 0 => "none".to_owned(),
        Runtime::Simulated => return Err("the simulated runtime is not here yet".to_owned()),
        Runtime::Containerd => return Err("containerd is not here yet".to_owned()),
        Runtime::Auto | Runtime::Process if flags.nodes > 1 => {
            return Err("one machine is one node: more of them have to be --runtime simulated".to_owned());
        }
        Runtime::Auto | Runtime::Process => {
            let name = format!("{}-0", place.name);
            let (clock, ids) = clock_and_ids();
            let root = place.directory.join("nodes").join(&name);
            let shim = env::current_exe().map_err(|error| error.to_string())?;
            let addresses = vec![running.address.to_string()];
            let process = Process::new(&root, &shim, addresses.clone(), Arc::clone(&clock), Arc::clone(&ids)).await;
            let process = process.map_err(|error| format!("{}: {error}", root.display()))?;
            let what = format!("{name}, {} runtime", process.name());
            let user = UserInfo::new(&format!("system:node:{name}"), ["system:nodes"]);
            let node = Node::builder(in_process(running, user, "kubelet"), clock, ids)
                .name(&name)
                .root_dir(&root)
                .ips(addresses)
                .runtime(Arc::new(process))
                .build();
            tasks.spawn(node.run(stop));
            what
        }
    };
    Ok(Nodes { what, stopper, running: tasks })
}
