//! The Lease that candidates write their names into.

use std::fmt;

use capstan_api::{GroupVersionResource, MicroTime, Time, Unstructured};
use capstan_client::{Api, Client, Error};

use super::LeaderElectionRecord;

/// A Lease by its name. What others have put into it besides the record stays.
pub struct LeaseLock {
    api: Api<Unstructured>,
    namespace: String,
    name: String,
    /// The Lease as it was last read or written.
    last: Option<Unstructured>,
}

impl fmt::Debug for LeaseLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseLock({})", self.describe())
    }
}

impl LeaseLock {
    /// The Lease of this name, which need not be there.
    #[must_use]
    pub fn new(client: &Client, namespace: &str, name: &str) -> Self {
        let resource = GroupVersionResource::from_static("coordination.k8s.io", "v1", "leases");
        let api = Api::dynamic(client, resource, namespace);
        LeaseLock { api, namespace: namespace.to_owned(), name: name.to_owned(), last: None }
    }

    /// The name of the Lease.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is: `namespace/name`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What the Lease says and its version, if it is there.
    pub(super) async fn get(&mut self) -> Result<Option<(LeaderElectionRecord, String)>, Error> {
        self.last = self.api.get_opt(&self.name).await?;
        Ok(self.last.as_ref().map(|lease| (read(lease), lease.resource_version().to_owned())))
    }

    /// Writes the Lease and returns its version. It must still have `version`, or be nowhere if that is none.
    pub(super) async fn write(
        &mut self,
        record: &LeaderElectionRecord,
        version: Option<&str>,
    ) -> Result<String, Error> {
        let mut lease = match (version, self.last.take()) {
            (Some(_), Some(last)) => last,
            _ => self.new_lease(),
        };
        write(&mut lease, record).map_err(|error| Error::Decode(error.to_string()))?;
        let written = match version {
            None => self.api.create(&lease).await?,
            Some(version) => {
                lease.set_resource_version(version);
                self.api.update(&lease).await?
            }
        };
        let version = written.resource_version().to_owned();
        self.last = Some(written);
        Ok(version)
    }

    fn new_lease(&self) -> Unstructured {
        let mut lease = Unstructured::default();
        lease.set_api_version("coordination.k8s.io/v1");
        lease.set_kind("Lease");
        lease.set_namespace(&self.namespace);
        lease.set_name(&self.name);
        lease
    }
}

fn read(lease: &Unstructured) -> LeaderElectionRecord {
    // A Lease that says nonsense is held by nobody; the one that takes it writes it anew.
    let number = |field| lease.nested_i64(["spec", field]).ok().flatten().unwrap_or_default();
    let text = |field| lease.nested_str(["spec", field]).ok().flatten().unwrap_or_default();
    let time = |field| text(field).parse::<Time>().unwrap_or(Time::from_unix(0, 0)).into();
    LeaderElectionRecord {
        holder_identity: text("holderIdentity").to_owned(),
        lease_duration_seconds: u64::try_from(number("leaseDurationSeconds")).unwrap_or_default(),
        acquire_time: time("acquireTime"),
        renew_time: time("renewTime"),
        leader_transitions: u64::try_from(number("leaseTransitions")).unwrap_or_default(),
    }
}

fn write(
    lease: &mut Unstructured,
    record: &LeaderElectionRecord,
) -> Result<(), capstan_api::unstructured::NestedError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    if record.holder_identity.is_empty() {
        lease.remove_nested(["spec", "holderIdentity"]);
    } else {
        lease.set_nested(["spec", "holderIdentity"], record.holder_identity.as_str())?;
    }
    lease.set_nested(["spec", "leaseDurationSeconds"], number(record.lease_duration_seconds))?;
    lease.set_nested(["spec", "acquireTime"], MicroTime::from(record.acquire_time).to_string().as_str())?;
    lease.set_nested(["spec", "renewTime"], MicroTime::from(record.renew_time).to_string().as_str())?;
    lease.set_nested(["spec", "leaseTransitions"], number(record.leader_transitions))
}
