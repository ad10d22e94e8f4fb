//! Rust types, the kinds and resources they stand for, and where a server serves them: built-in ones and those of a
//! shop.
//!
//! ```text
//! cargo run -p capstan-api --example paths
//! ```

use std::any::type_name;

use capstan_api::{
    GroupVersionKind, GroupVersionResource, ObjectMeta, Resource, Scope,
    mapper::{MatchError, RESTMapper, ResourceInfo, ResourceMapper},
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::CronJob,
    core::v1::{Namespace, Node, Pod},
    rbac::v1::ClusterRole,
    storage::v1::StorageClass,
};

/// An order of an online shop. Each lives in the namespace of a branch.
struct Order {
    metadata: ObjectMeta,
}

impl Resource for Order {
    const SCOPE: Scope = Scope::Namespaced;
    type Meta = ObjectMeta;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("shop.example.com", "v1", "Order")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("shop.example.com", "v1", "orders")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A currency that the shop takes, in all of its branches.
struct Currency {
    metadata: ObjectMeta,
}

impl Resource for Currency {
    const SCOPE: Scope = Scope::Cluster;
    type Meta = ObjectMeta;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("shop.example.com", "v1", "Currency")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("shop.example.com", "v1", "currencies")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A line of the first table: what a type says about itself.
fn line<T: Resource>() -> [String; 4] {
    let rust = type_name::<T>().rsplit("::").next().unwrap_or_default().to_owned();
    [rust, T::gvk().to_string(), T::gvr().to_string(), T::path("default", "example")]
}

fn main() -> Result<(), MatchError> {
    print([
        ["RUST TYPE", "KIND", "RESOURCE", "PATH"].map(str::to_owned),
        line::<Pod>(),
        line::<Deployment>(),
        line::<CronJob>(),
        line::<Node>(),
        line::<Namespace>(),
        line::<ClusterRole>(),
        line::<StorageClass>(),
        line::<Order>(),
        line::<Currency>(),
    ]);

    // The other way round: what a user types, through a mapper.
    let mapper = ResourceMapper::new(vec![
        ResourceInfo::of::<Pod>().short_names(["po"]),
        ResourceInfo::of::<Deployment>().short_names(["deploy"]),
        ResourceInfo::of::<StorageClass>().short_names(["sc"]),
        ResourceInfo::of::<Order>().short_names(["ord"]),
        ResourceInfo::of::<Currency>(),
    ]);
    println!();
    let mut lines = vec![["TYPED", "KIND", "SCOPE", "ALL OF THEM"].map(str::to_owned)];
    for typed in ["po", "deployments.v1.apps", "Deployment", "sc.storage", "ord", "currency.shop.example.com"] {
        let mapping = mapper.mapping_for(typed)?;
        let scope = mapping.scope.as_str().to_owned();
        lines.push([typed.to_owned(), mapping.gvk.to_string(), scope, mapping.path("", "")]);
    }
    print(lines);
    println!();
    for typed in ["invoices", "orders.v2.shop.example.com"] {
        if let Err(error) = mapper.mapping_for(typed) {
            println!("error: {error}");
        }
    }
    Ok(())
}

/// Prints lines in columns as wide as they need.
fn print(lines: impl IntoIterator<Item = [String; 4]>) {
    let lines: Vec<_> = lines.into_iter().collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default();
    let [first, second, third] = [width(0), width(1), width(2)];
    for [a, b, c, d] in &lines {
        println!("{a:first$}  {b:second$}  {c:third$}  {d}");
    }
}
