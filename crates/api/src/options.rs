//! Options of requests, and the kinds that every group and version has.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    GroupVersion, GroupVersionKind, Status, Value,
    object::nullable::value as nullable,
    scheme::{RegisterError, Scheme},
};

/// The group and version of kinds that have no version.
pub const UNVERSIONED: GroupVersion = GroupVersion::from_static("", "v1");

macro_rules! options {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_doc])*
            #[serde(deserialize_with = "nullable", skip_serializing_if = "is_default")]
            pub $field: $ty),*
        }
    };
}

options! {
    /// How to read one object.
    GetOptions {
        /// How fresh it must be; empty for the freshest.
        resource_version: String,
    }
}

options! {
    /// How to list or watch.
    ListOptions {
        /// Which labels.
        label_selector: String,
        /// Which fields.
        field_selector: String,
        /// Watch instead of list.
        watch: bool,
        /// Tell now and then up to where everything was sent.
        allow_watch_bookmarks: bool,
        /// How fresh the list must be, or where the watch begins.
        resource_version: String,
        /// What `resource_version` means for a list: `Exact` or `NotOlderThan`.
        resource_version_match: String,
        /// When to end, in seconds.
        timeout_seconds: Option<i64>,
        /// How many objects at most; 0 for all.
        limit: i64,
        /// Where to go on.
        #[serde(rename = "continue")]
        continue_token: String,
        /// Begin a watch with what is there.
        send_initial_events: Option<bool>,
        /// Which share of the objects.
        shard_selector: String,
    }
}

options! {
    /// How to create.
    CreateOptions {
        /// `All`: change nothing.
        dry_run: Vec<String>,
        /// Who the fields will belong to.
        field_manager: String,
        /// What to do about unknown and duplicate fields: `Ignore`, `Warn` or `Strict`.
        field_validation: String,
    }
}

options! {
    /// How to update.
    UpdateOptions {
        /// `All`: change nothing.
        dry_run: Vec<String>,
        /// Who the fields will belong to.
        field_manager: String,
        /// What to do about unknown and duplicate fields: `Ignore`, `Warn` or `Strict`.
        field_validation: String,
    }
}

options! {
    /// How to patch.
    PatchOptions {
        /// `All`: change nothing.
        dry_run: Vec<String>,
        /// Take fields from other managers.
        force: Option<bool>,
        /// Who the fields will belong to.
        field_manager: String,
        /// What to do about unknown and duplicate fields: `Ignore`, `Warn` or `Strict`.
        field_validation: String,
    }
}

options! {
    /// How to delete.
    DeleteOptions {
        /// How long it may take to end, in seconds; 0 for at once.
        grace_period_seconds: Option<i64>,
        /// What must be true of the object.
        preconditions: Option<Preconditions>,
        /// The old word for a `propagation_policy` of `Orphan`.
        orphan_dependents: Option<bool>,
        /// What becomes of what it owns: `Orphan`, `Background` or `Foreground`.
        propagation_policy: Option<String>,
        /// `All`: change nothing.
        dry_run: Vec<String>,
        /// Delete even what cannot be read.
        ignore_store_read_error_with_cluster_breaking_potential: Option<bool>,
    }
}

options! {
    /// What must be true of an object that is deleted.
    Preconditions {
        /// It has this uid.
        uid: Option<String>,
        /// It has this version.
        resource_version: Option<String>,
    }
}

/// An event of a watch as a tree; [`watch_event`](crate::watch_event) has it as bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The object, or the `Status` of an error.
    pub object: Value,
}

/// Registers what every group and version has: the options, watch events, and the kinds that have no version.
///
/// # Errors
/// Other types are registered under these kinds.
pub fn add_to_group_version(scheme: &mut Scheme, group_version: &GroupVersion) -> Result<(), RegisterError> {
    fn add<T>(scheme: &mut Scheme, group_version: &GroupVersion, kind: &'static str) -> Result<(), RegisterError>
    where
        T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        scheme.add_known_type_with_name::<T>(group_version.with_kind(crate::Name::from_static(kind)))
    }
    add::<WatchEvent>(scheme, group_version, "WatchEvent")?;
    add::<ListOptions>(scheme, group_version, "ListOptions")?;
    add::<GetOptions>(scheme, group_version, "GetOptions")?;
    add::<DeleteOptions>(scheme, group_version, "DeleteOptions")?;
    add::<CreateOptions>(scheme, group_version, "CreateOptions")?;
    add::<UpdateOptions>(scheme, group_version, "UpdateOptions")?;
    add::<PatchOptions>(scheme, group_version, "PatchOptions")?;
    scheme.add_unversioned_type::<Status>(GroupVersionKind::from_static("", "v1", "Status"))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_and_read_as_go() {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some("u".to_owned()), ..Preconditions::default() }),
            ..DeleteOptions::default()
        };
        let text = r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"u"}}"#;
        assert_eq!(serde_json::to_string(&options).unwrap(), text);
        assert_eq!(serde_json::from_str::<DeleteOptions>(text).unwrap(), options);
        let list: ListOptions =
            serde_json::from_str(r#"{"continue":"x","limit":null,"sendInitialEvents":false}"#).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"{"continue":"x","sendInitialEvents":false}"#);
        assert_eq!(serde_json::to_string(&ListOptions::default()).unwrap(), "{}");
    }

    #[test]
    fn every_group_version_has_them() {
        let mut scheme = Scheme::new("shop");
        for version in ["v1", "v1beta1"] {
            add_to_group_version(&mut scheme, &GroupVersion::new("shop.example.com", version)).unwrap();
        }
        let text = br#"{"kind":"DeleteOptions","apiVersion":"shop.example.com/v1","propagationPolicy":"Orphan"}"#;
        let options: DeleteOptions = scheme.decode_as(text).unwrap();
        assert_eq!(options.propagation_policy.as_deref(), Some("Orphan"));
        let status: Status = scheme.decode_as(br#"{"kind":"Status","apiVersion":"v1","code":404}"#).unwrap();
        assert_eq!(status.code, 404);
    }
}
