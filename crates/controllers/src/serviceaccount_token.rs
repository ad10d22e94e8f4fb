//! `serviceaccount-token-controller`: Secrets that ask for the token of a service account get it, and go with it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::{
    options::{DeleteOptions, Preconditions},
    selector::Selector,
};
use capstan_client::{Api, BoxFuture, Client, Error, HandlerFuncs, Key, Lister};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{Action, Controller, DEFAULT_RETRY, ReconcileError, Reconciler, retry_on_conflict};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use serde_json::{Value, json};

use crate::{
    ControllerContext, ControllerOptions,
    drive::{drive, filled},
};

pub(crate) const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
pub(crate) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(crate) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const WORKERS: usize = 5;

/// The account that a Secret says it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    name: String,
    uid: String,
}

fn account(secret: &Secret) -> Option<Account> {
    let annotation =
        |key| secret.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default();
    let account = Account { name: annotation(ACCOUNT_NAME), uid: annotation(ACCOUNT_UID) };
    (secret.type_.as_deref() == Some(SECRET_TYPE) && !account.name.is_empty()).then_some(account)
}

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (secrets, accounts) = (context.informers.informer::<Secret>(), context.informers.informer::<ServiceAccount>());
    let gone: Arc<Mutex<HashMap<Key, Account>>> = Arc::default();
    let tokens = Tokens {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        ids: Arc::clone(&context.ids),
        options: Arc::clone(&context.options),
        secrets: secrets.lister(),
        accounts: accounts.lister(),
        gone: Arc::clone(&gone),
    };
    let controller = Controller::new(tokens, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    let see = move |secret: &Secret| {
        if account(secret).is_some() {
            queue.add(Key::of(secret));
        }
    };
    let (update, queue) = (see.clone(), controller.queue().clone());
    secrets.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Secret>, _| see(new))
            .on_update(move |_, new| update(new))
            .on_delete(move |secret| {
                if let Some(account) = account(secret.object()) {
                    let key = Key::of(&**secret.object());
                    gone.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), account);
                    queue.add(key);
                }
            }),
    );
    let (queue, lister) = (controller.queue().clone(), secrets.lister());
    accounts.add_event_handler(HandlerFuncs::<ServiceAccount>::new().on_delete(move |gone| {
        let metadata = &gone.object().metadata;
        for secret in lister.namespace(metadata.namespace.as_deref().unwrap_or_default()).list(&Selector::default()) {
            if account(&secret).is_some_and(|account| Some(&account.name) == metadata.name.as_ref()) {
                queue.add(Key::of(&*secret));
            }
        }
    }));
    let has_signer = context.options.token_signer.is_some();
    // Without a key there is nobody who could make tokens.
    if !has_signer {
        return Box::pin(std::future::ready(()));
    }
    drive(context, "serviceaccount_tokens_service", vec![filled(&secrets), filled(&accounts)], controller)
}

struct Tokens {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    options: Arc<ControllerOptions>,
    secrets: Lister<Secret>,
    accounts: Lister<ServiceAccount>,
    /// Whose the tokens were that are gone.
    gone: Arc<Mutex<HashMap<Key, Account>>>,
}

/// What a token of the old form says.
fn claims(namespace: &str, account: &ServiceAccount, secret: &str) -> Value {
    let (name, uid) = (&account.metadata.name, &account.metadata.uid);
    json!({
        "iss": "kubernetes/serviceaccount",
        "sub": format!("system:serviceaccount:{namespace}:{}", name.as_deref().unwrap_or_default()),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    })
}

/// What a Secret lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lacks {
    ca: bool,
    namespace: bool,
    token: bool,
}

fn lacks(secret: &Secret, root_ca: &str) -> Option<Lacks> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[] as &[u8], |value| &value.0);
    let lacks = Lacks {
        ca: !root_ca.is_empty() && data("ca.crt") != root_ca.as_bytes(),
        namespace: data("namespace").is_empty(),
        token: data("token").is_empty(),
    };
    (lacks.ca || lacks.namespace || lacks.token).then_some(lacks)
}

impl Tokens {
    async fn account(&self, namespace: &str, wanted: &Account) -> Result<Option<ServiceAccount>, Error> {
        let is_meant = |found: &ServiceAccount| {
            wanted.uid.is_empty() || found.metadata.uid.as_deref() == Some(wanted.uid.as_str())
        };
        if let Some(known) = self.accounts.namespace(namespace).get(&wanted.name).filter(|found| is_meant(found)) {
            return Ok(Some(ServiceAccount::clone(&known)));
        }
        let live = Api::<ServiceAccount>::namespaced(&self.client, namespace).get_opt(&wanted.name).await?;
        Ok(live.filter(is_meant))
    }

    async fn delete(&self, key: &Key, secret: &Secret) -> Result<(), Error> {
        let preconditions = Preconditions { uid: secret.metadata.uid.clone(), ..Preconditions::default() };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        match Api::<Secret>::namespaced(&self.client, key.namespace()).delete(key.name(), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    async fn fill(&self, key: &Key, cached: &Secret, account: &ServiceAccount) -> Result<(), ReconcileError> {
        if lacks(cached, &self.options.root_ca).is_none() {
            return Ok(());
        }
        let api = Api::<Secret>::namespaced(&self.client, key.namespace());
        let Some(mut secret) = api.get_opt(key.name()).await? else { return Ok(()) };
        // What has changed since will be seen.
        if secret.metadata.resource_version != cached.metadata.resource_version {
            return Ok(());
        }
        let Some(lacks) = lacks(&secret, &self.options.root_ca) else { return Ok(()) };
        let data = secret.data.get_or_insert_default();
        let mut put = |key: &str, value: &str| data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
        if lacks.ca {
            put("ca.crt", &self.options.root_ca);
        }
        if lacks.namespace {
            put("namespace", key.namespace());
        }
        if lacks.token {
            let Some(signer) = &self.options.token_signer else { return Ok(()) };
            let token = signer.sign(&claims(key.namespace(), account, key.name()));
            put("token", &token.map_err(ReconcileError::Terminal)?);
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(ACCOUNT_NAME.to_owned(), account.metadata.name.clone().unwrap_or_default());
        annotations.insert(ACCOUNT_UID.to_owned(), account.metadata.uid.clone().unwrap_or_default());
        match api.update(&secret).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The account no longer names a Secret that is gone.
    async fn forget(&self, key: &Key, account: &Account) -> Result<(), Error> {
        let api = &Api::<ServiceAccount>::namespaced(&self.client, key.namespace());
        retry_on_conflict(DEFAULT_RETRY, &*self.clock, &*self.ids, || async move {
            let Some(mut live) = api.get_opt(&account.name).await? else { return Ok(()) };
            let names =
                |reference: &k8s_openapi::api::core::v1::ObjectReference| reference.name.as_deref() == Some(key.name());
            let is_meant = account.uid.is_empty() || live.metadata.uid.as_deref() == Some(account.uid.as_str());
            let Some(secrets) = live.secrets.as_mut().filter(|secrets| is_meant && secrets.iter().any(names)) else {
                return Ok(());
            };
            secrets.retain(|reference| !names(reference));
            match api.update(&live).await {
                Err(error) if error.is_not_found() => Ok(()),
                other => other.map(drop),
            }
        })
        .await
    }
}

impl Reconciler for Tokens {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let was = self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let Some(secret) = self.secrets.get(&key) else {
            if let Some(account) = was
                && self.accounts.namespace(key.namespace()).get(&account.name).is_some()
            {
                self.forget(&key, &account).await?;
            }
            return Ok(Action::Done);
        };
        let Some(wanted) = account(&secret) else { return Ok(Action::Done) };
        match self.account(key.namespace(), &wanted).await? {
            None => self.delete(&key, &secret).await?,
            Some(account) => self.fill(&key, &secret, &account).await?,
        }
        Ok(Action::Done)
    }
}
