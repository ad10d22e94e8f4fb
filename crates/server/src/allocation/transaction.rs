//! One write of a Service: what it takes, what it gives up, and how both are undone.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use capstan_api::{
    GroupKind, Status,
    field::{Error, Path},
    validation::parse_ip_sloppy,
};
use capstan_clock::Ids;

use super::{
    families::{self, Stack},
    fields::{Family, Fields},
    pool::{Owner, Pool, Refused},
    validate,
};

/// Boxed because a [`Status`] is large and most writes need none.
pub(super) type Outcome<T> = Result<T, Box<Status>>;

/// What a write takes and gives up.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub owner: Option<Owner>,
    pub taken_ips: Vec<IpAddr>,
    pub taken_ports: Vec<u16>,
    pub freed_ips: Vec<IpAddr>,
    pub freed_ports: Vec<u16>,
}

impl Changes {
    /// Gives back what was taken.
    pub(super) fn undo(&mut self, pool: &mut Pool) {
        let Some(owner) = &self.owner else { return };
        self.taken_ips.drain(..).for_each(|ip| pool.give_back_ip(ip, owner));
        self.taken_ports.drain(..).for_each(|port| pool.give_back_port(port, owner));
    }

    /// Gives back what is no longer needed.
    pub(super) fn finish(&mut self, pool: &mut Pool) {
        let Some(owner) = &self.owner else { return };
        self.freed_ips.drain(..).for_each(|ip| pool.give_back_ip(ip, owner));
        self.freed_ports.drain(..).for_each(|port| pool.give_back_port(port, owner));
    }
}

fn invalid(service: &Fields, error: Error) -> Box<Status> {
    Box::new(Status::invalid(&GroupKind::from_static("", "Service"), &service.name, &vec![error]))
}

/// The port before the first that a dry run makes up.
const MADE_UP_PORT: i64 = 32768;

/// The write of one Service, while the pool is locked.
pub(super) struct Transaction<'a> {
    pub pool: &'a mut Pool,
    pub ids: &'a dyn Ids,
    pub stack: Stack,
    pub changes: &'a mut Changes,
    pub owner: Owner,
    /// Nothing will be kept of it.
    pub dry_run: bool,
    /// The ports of a dry run.
    pub made_up: Vec<i64>,
}

impl Transaction<'_> {
    /// Takes what a new service needs, or one that replaces `old`.
    pub(super) fn run(&mut self, service: &mut Fields, old: Option<&Fields>) -> Outcome<()> {
        families::init(service, old, self.stack).map_err(|errors| {
            Box::new(Status::invalid(&GroupKind::from_static("", "Service"), &service.name, &errors))
        })?;
        match old {
            None => {
                self.new_ips(service)?;
                if service.is_on_nodes() {
                    self.new_ports(service)?;
                }
                if service.wants_health_check() {
                    self.health_check(service)?;
                }
            }
            Some(old) => {
                self.change_ips(service, old)?;
                self.change_ports(service, old)?;
            }
        }
        Ok(())
    }

    fn new_ips(&mut self, service: &mut Fields) -> Outcome<()> {
        if !service.needs_cluster_ip() || service.is_headless() {
            return Ok(());
        }
        for i in 0..service.families.len() {
            if service.cluster_ips.len() == i {
                service.cluster_ips.push(String::new());
            }
            self.ip(service, i)?;
        }
        service.cluster_ip = service.cluster_ips.first().cloned().unwrap_or_default();
        Ok(())
    }

    /// Takes the address at a place of `clusterIPs`: the one that is there, or any.
    fn ip(&mut self, service: &mut Fields, at: usize) -> Outcome<()> {
        let wanted = service.cluster_ips[at].clone();
        let path = Path::new("spec");
        let refuse = |detail: String| {
            invalid(service, Error::invalid(path.child("clusterIPs"), validate::list(&service.cluster_ips), detail))
        };
        let ip = if wanted.is_empty() {
            let family = Family::from_name(&service.families[at]).ok_or(Refused::Full);
            let next = family.and_then(|family| self.pool.take_next_ip(family, &self.owner, self.ids));
            next.map_err(|error| {
                let text = format!("failed to allocate a serviceIP for Service {:?}: {error}", service.name);
                Box::new(Status::internal_error(text))
            })?
        } else {
            let Some(ip) = parse_ip_sloppy(&wanted).map(|ip| ip.to_canonical()) else {
                return Err(Box::new(Status::internal_error(format!("failed to parse service IP {wanted:?}"))));
            };
            let taken = self.pool.take_ip(ip, &self.owner);
            taken.map_err(|error| {
                let range = self.pool.first_range().filter(|_| self.dry_run && error == Refused::IpOutOfRange);
                let words = range.map_or_else(
                    || error.to_string(),
                    |range| {
                        let text = "is not in the valid range. The range of valid IPs is";
                        format!("the provided IP ({wanted}) {text} {range}")
                    },
                );
                refuse(format!("failed to allocate IP {wanted}: {words}"))
            })?;
            ip
        };
        self.changes.taken_ips.push(ip);
        if wanted.is_empty() {
            service.cluster_ips[at] = ip.to_string();
        }
        Ok(())
    }

    fn change_ips(&mut self, service: &mut Fields, old: &Fields) -> Outcome<()> {
        if families::is_settled(service, old) {
            return Ok(());
        }
        if !old.needs_cluster_ip() && service.needs_cluster_ip() {
            return self.new_ips(service);
        }
        if old.is_headless() {
            return Ok(());
        }
        if old.needs_cluster_ip() && !service.needs_cluster_ip() {
            self.changes.freed_ips = old.addresses();
            return Ok(());
        }
        match (old.families.len(), service.families.len()) {
            (1, 2) => {
                service.cluster_ips.resize(2, String::new());
                self.ip(service, 1)?;
            }
            (2, 1) => self.changes.freed_ips = old.addresses().into_iter().skip(1).collect(),
            _ => {}
        }
        Ok(())
    }

    fn port(&mut self, port: i64) -> Result<(), Refused> {
        // A dry run only asks whether somebody has it.
        self.made_up.push(port);
        if self.dry_run && !u16::try_from(port).is_ok_and(|port| self.pool.port_range.contains(&port)) {
            return Ok(());
        }
        let port = self.pool.take_port(port, &self.owner)?;
        self.changes.taken_ports.push(port);
        Ok(())
    }

    fn next_port(&mut self) -> Result<i64, Refused> {
        if self.dry_run {
            // What will be free then nobody knows: the one after the largest so far is as good as any.
            let last = self.made_up.iter().max().map_or(MADE_UP_PORT, |port| 0.max(*port));
            self.made_up.push(last + 1);
            return Ok(last + 1);
        }
        let port = self.pool.take_next_port(&self.owner, self.ids)?;
        self.changes.taken_ports.push(port);
        Ok(port.into())
    }

    /// The port at a place of `ports`: `port` if the client has named one, else any.
    fn node_port(&mut self, service: &Fields, at: usize, port: i64) -> Outcome<i64> {
        if port == 0 {
            let full = |error| Box::new(Status::internal_error(format!("failed to allocate a nodePort: {error}")));
            return self.next_port().map_err(full);
        }
        let path = Path::new("spec");
        let path = path.child("ports");
        let path = path.index(at);
        let refuse = |error: Refused| invalid(service, Error::invalid(path.child("nodePort"), port, error.to_string()));
        self.port(port).map_err(refuse)?;
        Ok(port)
    }

    /// Ports of one number share their port on the nodes, whatever their protocols, unless the client says otherwise.
    fn new_ports(&mut self, service: &mut Fields) -> Outcome<()> {
        for i in 0..service.ports.len() {
            let own = service.ports[i].clone();
            if own.node_port == 0 && !service.wants_node_ports() {
                continue;
            }
            let before = service.ports[..i].iter().find(|port| port.port == own.port && port.node_port != 0);
            service.ports[i].node_port = match before.map(|port| port.node_port) {
                None => {
                    let named = service.ports[i..].iter().find(|port| port.port == own.port && port.node_port != 0);
                    let wanted = named.map_or(0, |port| port.node_port);
                    self.node_port(service, i, wanted)?
                }
                Some(shared) if own.node_port == 0 || own.node_port == shared => shared,
                Some(_) => self.node_port(service, i, own.node_port)?,
            };
        }
        Ok(())
    }

    fn change_ports(&mut self, service: &mut Fields, old: &Fields) -> Outcome<()> {
        if service.is_on_nodes() {
            self.replace_ports(service, old)?;
        } else if old.is_on_nodes() {
            self.free(old.node_ports());
        }
        match (old.wants_health_check(), service.wants_health_check()) {
            (false, true) => self.health_check(service)?,
            (true, false) => self.free([old.health_check_port].into_iter()),
            _ => {}
        }
        Ok(())
    }

    fn replace_ports(&mut self, service: &mut Fields, old: &Fields) -> Outcome<()> {
        let had: BTreeSet<i64> = old.node_ports().filter(|_| old.is_on_nodes()).collect();
        let mut seen = BTreeSet::new();
        let mut asked = BTreeSet::new();
        for i in 0..service.ports.len() {
            let own = service.ports[i].clone();
            if own.node_port == 0 && !service.wants_node_ports() {
                continue;
            }
            if own.node_port == 0 || !had.contains(&own.node_port) && asked.insert(own.node_port) {
                service.ports[i].node_port = self.node_port(service, i, own.node_port)?;
            }
            let number = service.ports[i].node_port;
            if !seen.insert((own.protocol.clone(), number)) {
                return Err(Box::new(Status::unknown(format!("duplicate nodePort: {{{} {number}}}", own.protocol))));
            }
        }
        let has: BTreeSet<i64> = service.node_ports().collect();
        self.free(had.difference(&has).copied());
        Ok(())
    }

    fn free(&mut self, ports: impl Iterator<Item = i64>) {
        self.changes.freed_ports.extend(ports.filter_map(|port| u16::try_from(port).ok()));
    }

    fn health_check(&mut self, service: &mut Fields) -> Outcome<()> {
        let internal = |text: String| Box::new(Status::internal_error(text));
        let port = service.health_check_port;
        if port != 0 {
            let text = |error| internal(format!("failed to allocate requested HealthCheck NodePort {port}: {error}"));
            return self.port(port).map_err(text);
        }
        let text = |error| internal(format!("failed to allocate a HealthCheck NodePort 0: {error}"));
        service.health_check_port = self.next_port().map_err(text)?;
        Ok(())
    }
}

/// What a service gives up when it is deleted.
pub(super) fn release(service: &Fields) -> Changes {
    let ports = service.all_node_ports().filter_map(|port| u16::try_from(port).ok()).collect();
    let owner = Some(Arc::from(service.owner()));
    Changes { owner, freed_ips: service.addresses(), freed_ports: ports, ..Changes::default() }
}
