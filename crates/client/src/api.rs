//! The objects of one kind in one place, and the verbs on them.

use std::{fmt, marker::PhantomData};

use bytes::Bytes;
use capstan_api::{
    GroupVersionResource, Resource, Unstructured, go,
    object::{Encoded, Object, Scope, path},
    options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions},
    partial::PartialObjectMetadata,
    validation::is_path_segment_name,
};
use http::Method;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Client, Error,
    client::{Accept, JSON},
    error::decode,
    query::with_options,
    watch::TypedWatch,
};

/// How many objects a page of a list has, if nobody says.
pub const PAGE_SIZE: i64 = 500;

/// How an object is to be changed. The parts are laid out as the documents that the server takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch<P> {
    /// A list of operations, RFC 6902.
    Json(P),
    /// An object that is laid over the other, RFC 7386.
    Merge(P),
    /// The same, but lists are merged as the schema says. Only for built-in kinds.
    Strategic(P),
    /// What this manager wants of the object: server-side apply.
    Apply(P),
}

impl<P> Patch<P> {
    pub(crate) fn parts(&self) -> (&'static str, &P) {
        match self {
            Patch::Json(patch) => ("application/json-patch+json", patch),
            Patch::Merge(patch) => ("application/merge-patch+json", patch),
            Patch::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
            Patch::Apply(patch) => ("application/apply-patch+yaml", patch),
        }
    }
}

/// A page of objects, or all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectList<K> {
    /// The version of the whole that the list shows.
    pub resource_version: String,
    /// What to send to get the next page; empty at the end.
    pub continue_token: String,
    /// The objects.
    pub items: Vec<K>,
}

/// The objects of one kind in one place: a namespace, all of them, or the cluster.
pub struct Api<K> {
    client: Client,
    resource: GroupVersionResource,
    scope: Scope,
    namespace: String,
    accept: Accept,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Api {
            client: self.client.clone(),
            resource: self.resource.clone(),
            scope: self.scope,
            namespace: self.namespace.clone(),
            accept: self.accept,
            of: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("resource", &self.resource).field("namespace", &self.namespace).finish()
    }
}

impl<K: Resource> Api<K> {
    /// Those of all namespaces, or of the cluster.
    #[must_use]
    pub fn all(client: &Client) -> Self {
        Api::<K>::namespaced(client, "")
    }

    /// Those of one namespace. For kinds of the cluster the namespace means nothing.
    #[must_use]
    pub fn namespaced(client: &Client, namespace: &str) -> Self {
        let (resource, scope) = (K::gvr(), K::SCOPE);
        let accept = client.accept_of(&resource);
        Api { accept, ..Api::of(client, resource, scope, namespace) }
    }
}

impl Api<Unstructured> {
    /// Those of any resource, without their type; in all namespaces when `namespace` is empty.
    #[must_use]
    pub fn dynamic(client: &Client, resource: GroupVersionResource, namespace: &str) -> Self {
        Api::of(client, resource, Scope::Namespaced, namespace)
    }
}

impl Client {
    /// The objects of any resource, without their type: of the cluster, or of all namespaces until one is
    /// [named](Api::namespace).
    #[must_use]
    pub fn resource(&self, resource: GroupVersionResource) -> Api<Unstructured> {
        Api::dynamic(self, resource, "")
    }

    /// The metadata alone of the objects of any resource.
    #[must_use]
    pub fn metadata(&self, resource: GroupVersionResource) -> Api<PartialObjectMetadata> {
        Api { accept: Accept::Metadata, ..Api::of(self, resource, Scope::Namespaced, "") }
    }
}

impl<K> Api<K> {
    /// The same kind in a namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Self {
        Api { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// The same resource, its objects read as another type.
    pub(crate) fn reading_as<T>(&self) -> Api<T> {
        Api::of(&self.client, self.resource.clone(), self.scope, &self.namespace)
    }

    /// The client behind it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Those of a resource, whatever type they are read as.
    #[must_use]
    pub fn of(client: &Client, resource: GroupVersionResource, scope: Scope, namespace: &str) -> Self {
        let (client, namespace) = (client.clone(), namespace.to_owned());
        Api { client, resource, scope, namespace, accept: Accept::Json, of: PhantomData }
    }

    /// Which resource.
    #[must_use]
    pub fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// Where all of them are.
    fn collection(&self) -> Result<String, Error> {
        checked("namespace", &self.namespace)?;
        Ok(path(&self.resource, self.scope, &self.namespace, ""))
    }

    /// Where one of them is, or a subresource of it when that is not empty.
    pub(crate) fn path(&self, name: &str, subresource: &str) -> Result<String, Error> {
        named(name)?;
        checked("namespace", &self.namespace)?;
        let mut path = path(&self.resource, self.scope, &self.namespace, name);
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        Ok(path)
    }
}

/// Refuses a name that would lead elsewhere: to all objects, or up.
pub(crate) fn named(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::Decode("resource name may not be empty".to_owned()));
    }
    checked("resource name", name)
}

pub(crate) fn checked(what: &str, segment: &str) -> Result<(), Error> {
    let wrong = is_path_segment_name(segment);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::Decode(format!("invalid {what} {}: [{}]", go::quote(segment), wrong.join(" "))))
}

impl<K: Object> Api<K> {
    async fn call(&self, mut request: http::Request<Bytes>) -> Result<K, Error> {
        request.headers_mut().insert(http::header::ACCEPT, self.accept.of_object());
        decode(Encoded::new(&self.client.bytes(request).await?), None)
    }

    /// One object.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn get(&self, name: &str) -> Result<K, Error> {
        self.get_with(name, "", &GetOptions::default()).await
    }

    /// One object, if it is there.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, Error> {
        match self.get(name).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// One object, or a subresource of it when that is not empty.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn get_with(&self, name: &str, subresource: &str, options: &GetOptions) -> Result<K, Error> {
        self.call(self.client.request(Method::GET, &with_options(&self.path(name, subresource)?, options))?).await
    }

    /// A page of the objects, all of them when the options have no limit.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn list(&self, options: &ListOptions) -> Result<ObjectList<K>, Error> {
        let page = self.client.list_path(&self.collection()?, options, self.accept).await?;
        let read = |item| decode(page.encoded(item), page.item_kind.as_ref());
        let items = page.items.iter().map(read).collect::<Result<_, _>>()?;
        Ok(ObjectList { resource_version: page.resource_version, continue_token: page.continue_token, items })
    }

    /// All objects, asked for in pages. If those take so long that their version is gone, all are asked for at once.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn list_all(&self, options: &ListOptions) -> Result<ObjectList<K>, Error> {
        let limit = if options.limit > 0 { options.limit } else { PAGE_SIZE };
        let mut page = self.list(&ListOptions { limit, ..options.clone() }).await?;
        while !page.continue_token.is_empty() {
            // The token says which version; both together are refused.
            let continue_token = std::mem::take(&mut page.continue_token);
            let next = ListOptions {
                limit,
                continue_token,
                resource_version: String::new(),
                resource_version_match: String::new(),
                ..options.clone()
            };
            match self.list(&next).await {
                Ok(next) => {
                    page.items.extend(next.items);
                    (page.resource_version, page.continue_token) = (next.resource_version, next.continue_token);
                }
                Err(error) if error.is_expired() => {
                    return self.list(&ListOptions { limit: 0, ..options.clone() }).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    /// Changes from now on, or from where the options say.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn watch(&self, options: &ListOptions) -> Result<TypedWatch<K>, Error> {
        Ok(TypedWatch::new(self.client.watch_path(&self.collection()?, options, self.accept).await?))
    }

    /// Changes an object, or a subresource of it when that is not empty.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch_with<P: Serialize>(
        &self,
        name: &str,
        subresource: &str,
        patch: &Patch<P>,
        options: &PatchOptions,
    ) -> Result<K, Error> {
        let (content_type, patch) = patch.parts();
        let path = with_options(&self.path(name, subresource)?, options);
        self.call(self.client.request_with(Method::PATCH, &path, content_type, patch)?).await
    }

    /// Changes an object.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch<P: Serialize>(&self, name: &str, patch: &Patch<P>) -> Result<K, Error> {
        self.patch_with(name, "", patch, &PatchOptions::default()).await
    }

    /// Changes the status of an object.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch_status<P: Serialize>(&self, name: &str, patch: &Patch<P>) -> Result<K, Error> {
        self.patch_with(name, "status", patch, &PatchOptions::default()).await
    }

    /// Applies what `manager` wants of an object; `force` takes fields from others.
    ///
    /// # Errors
    /// Others own fields, the server refuses or cannot be reached.
    pub async fn apply<P: Serialize>(&self, name: &str, manager: &str, force: bool, object: P) -> Result<K, Error> {
        let options = PatchOptions { field_manager: manager.to_owned(), force: Some(force), ..PatchOptions::default() };
        self.patch_with(name, "", &Patch::Apply(object), &options).await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// It is not there, a precondition fails, the server refuses or cannot be reached.
    pub async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<(), Error> {
        self.client.call(self.client.request_with(Method::DELETE, &self.path(name, "")?, JSON, options)?).await?;
        Ok(())
    }

    /// Deletes all objects that the list options select.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn delete_collection(&self, options: &DeleteOptions, list: &ListOptions) -> Result<(), Error> {
        let path = with_options(&self.collection()?, list);
        self.client.call(self.client.request_with(Method::DELETE, &path, JSON, options)?).await?;
        Ok(())
    }

    /// Sends a document of another kind to a subresource: a `Binding`, an `Eviction`, a `TokenRequest`.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn create_subresource<T: Serialize>(
        &self,
        name: &str,
        subresource: &str,
        body: &T,
    ) -> Result<Bytes, Error> {
        let request = self.client.request_with(Method::POST, &self.path(name, subresource)?, JSON, body)?;
        self.client.bytes(request).await
    }
}

/// Subresources whose documents are of another kind than the object.
impl<K> Api<K> {
    /// Reads a subresource as its own type.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn get_subresource<T: DeserializeOwned>(
        &self,
        name: &str,
        subresource: &str,
        options: &GetOptions,
    ) -> Result<T, Error> {
        let path = with_options(&self.path(name, subresource)?, options);
        json(&self.client.bytes(self.client.request(Method::GET, &path)?).await?)
    }

    /// Writes a subresource of its own type.
    ///
    /// # Errors
    /// Somebody has changed it since it was read, the server refuses or cannot be reached.
    pub async fn update_subresource<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        subresource: &str,
        document: &T,
        options: &UpdateOptions,
    ) -> Result<T, Error> {
        let path = with_options(&self.path(name, subresource)?, options);
        json(&self.client.bytes(self.client.request_with(Method::PUT, &path, JSON, document)?).await?)
    }

    /// Changes a subresource of its own type.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch_subresource<T: DeserializeOwned, P: Serialize>(
        &self,
        name: &str,
        subresource: &str,
        patch: &Patch<P>,
        options: &PatchOptions,
    ) -> Result<T, Error> {
        let (content_type, patch) = patch.parts();
        let path = with_options(&self.path(name, subresource)?, options);
        json(&self.client.bytes(self.client.request_with(Method::PATCH, &path, content_type, patch)?).await?)
    }
}

fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Decode(error.to_string()))
}

impl<K: Object + Serialize> Api<K> {
    /// Creates an object.
    ///
    /// # Errors
    /// It is there already, the server refuses or cannot be reached.
    pub async fn create(&self, object: &K) -> Result<K, Error> {
        self.create_with(object, &CreateOptions::default()).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// It is there already, the server refuses or cannot be reached.
    pub async fn create_with(&self, object: &K, options: &CreateOptions) -> Result<K, Error> {
        let path = with_options(&self.collection()?, options);
        self.call(self.client.object_request(Method::POST, &path, self.accept, object)?).await
    }

    /// Writes an object, if nobody has changed it since it was read.
    ///
    /// # Errors
    /// Somebody has, the server refuses or cannot be reached.
    pub async fn update(&self, object: &K) -> Result<K, Error> {
        self.update_with(object, "", &UpdateOptions::default()).await
    }

    /// Writes the status of an object, if nobody has changed it since it was read.
    ///
    /// # Errors
    /// Somebody has, the server refuses or cannot be reached.
    pub async fn update_status(&self, object: &K) -> Result<K, Error> {
        self.update_with(object, "status", &UpdateOptions::default()).await
    }

    /// Writes an object, or a subresource of it when that is not empty.
    ///
    /// # Errors
    /// Somebody has changed it since it was read, the server refuses or cannot be reached.
    pub async fn update_with(&self, object: &K, subresource: &str, options: &UpdateOptions) -> Result<K, Error> {
        let path = with_options(&self.path(object.identity().name, subresource)?, options);
        self.call(self.client.object_request(Method::PUT, &path, self.accept, object)?).await
    }
}
