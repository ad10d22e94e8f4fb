//! How many there are to be of something, whatever it is.

use capstan_api::{
    GroupVersionResource, ObjectMeta,
    object::Scope,
    options::{GetOptions, PatchOptions, UpdateOptions},
};
use serde::{Deserialize, Serialize};

use crate::{Api, Client, Error, Patch};

/// How many there are and are to be: `autoscaling/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    /// `Scale`.
    pub kind: String,
    /// `autoscaling/v1`.
    pub api_version: String,
    /// The metadata of what is scaled.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: ScaleSpec,
    /// What is.
    pub status: ScaleStatus,
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleSpec {
    /// How many.
    pub replicas: i32,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleStatus {
    /// How many.
    pub replicas: i32,
    /// Which pods are counted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
}

/// Scales the objects of any resource that can be scaled, in one namespace: client-go's polymorphic scale client.
#[derive(Clone, Debug)]
pub struct ScaleInterface {
    api: Api<capstan_api::Unstructured>,
}

impl Client {
    /// Scales the objects of a resource in a namespace.
    #[must_use]
    pub fn scales(&self, resource: GroupVersionResource, namespace: &str) -> ScaleInterface {
        ScaleInterface { api: Api::of(self, resource, Scope::Namespaced, namespace) }
    }
}

impl<K> Api<K> {
    /// Scales the objects of this kind.
    #[must_use]
    pub fn scales(&self) -> ScaleInterface {
        ScaleInterface { api: self.reading_as() }
    }
}

impl ScaleInterface {
    /// The scale of an object.
    ///
    /// # Errors
    /// It is not there, cannot be scaled, the server refuses or cannot be reached.
    pub async fn get(&self, name: &str) -> Result<Scale, Error> {
        self.api.get_subresource(name, "scale", &GetOptions::default()).await
    }

    /// Writes the scale of an object, if nobody has changed it since it was read.
    ///
    /// # Errors
    /// Somebody has, the server refuses or cannot be reached.
    pub async fn update(&self, name: &str, scale: &Scale) -> Result<Scale, Error> {
        self.api.update_subresource(name, "scale", scale, &UpdateOptions::default()).await
    }

    /// Changes the scale of an object.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch<P: Serialize>(&self, name: &str, patch: &Patch<P>) -> Result<Scale, Error> {
        self.api.patch_subresource(name, "scale", patch, &PatchOptions::default()).await
    }
}
