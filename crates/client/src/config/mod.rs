//! Where a server is and who asks: kubeconfigs, the account of a pod, or said outright.
//!
//! kube reads the files and runs the plugins; this module chooses, and says which file, context and user are meant when
//! something is wrong with them. Types of kube are in this module and in `network` alone.

mod error;
mod explicit;
mod proxy;
mod validation;

use std::{
    env, fmt,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use kube_client::config::{Cluster, ExecConfig, ExecInteractiveMode, KubeConfigOptions, Kubeconfig};

pub use error::ConfigError;
pub use explicit::ExplicitConfig;

pub(crate) use error::chain;

/// The variable that names kubeconfigs, several of them in the way of `PATH`.
pub const KUBECONFIG: &str = "KUBECONFIG";

/// Where a server is, how to trust it, and how to prove who asks.
#[derive(Clone)]
pub struct Config {
    pub(crate) kube: kube_client::Config,
    pub(crate) place: Place,
}

/// Where a config is from, for those who have to mend it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) context: String,
    pub(crate) user: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if !self.context.is_empty() {
            write!(f, ", context {:?}", self.context)?;
        }
        if !self.user.is_empty() {
            write!(f, ", user {:?}", self.user)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("server", &self.kube.cluster_url).field("from", &self.place).finish()
    }
}

impl From<kube_client::Config> for Config {
    fn from(kube: kube_client::Config) -> Self {
        Config { kube, place: Place { file: "a kube::Config".to_owned(), ..Place::default() } }
    }
}

impl Config {
    /// What the user's surroundings say: the files of `KUBECONFIG`, else `~/.kube/config`, else the account of the pod
    /// that this runs in.
    ///
    /// # Errors
    /// There is nothing of that, or it does not make sense.
    pub async fn from_default() -> Result<Self, ConfigError> {
        let (files, named) = default_files();
        Config::from_files(files, named).await
    }

    async fn from_files(files: Vec<PathBuf>, named: bool) -> Result<Self, ConfigError> {
        // As with kubectl, of several files some may be missing; what the user names alone has to be there.
        let there: Vec<PathBuf> = files.iter().filter(|file| file.exists()).cloned().collect();
        let missing = there.is_empty() && named && files.len() == 1;
        let all = read(&there)?;
        // Files that say nothing are as good as none.
        let empty = all.contexts.is_empty() && all.clusters.is_empty() && all.auth_infos.is_empty();
        if !empty || given(all.current_context.as_deref()) {
            return Config::choose(all, names(&there), None).await;
        }
        match Config::in_cluster() {
            Ok(config) => Ok(config),
            Err(_) if missing => Err(ConfigError::file(&files[0], "there is no such file")),
            Err(error) => Err(ConfigError::Nowhere { files, in_cluster: error.to_string() }),
        }
    }

    /// A kubeconfig, and a context of it if not the one that is current.
    ///
    /// # Errors
    /// The file cannot be read, or what it says of the context does not make sense.
    pub async fn from_kubeconfig(path: impl AsRef<Path>, context: Option<&str>) -> Result<Self, ConfigError> {
        Config::from_kubeconfigs(&[path.as_ref().to_owned()], context).await
    }

    /// Several kubeconfigs as one: what is in the first that has a name counts.
    ///
    /// # Errors
    /// A file cannot be read, or what they say of the context does not make sense.
    pub async fn from_kubeconfigs(paths: &[PathBuf], context: Option<&str>) -> Result<Self, ConfigError> {
        Config::choose(read(paths)?, names(paths), context).await
    }

    /// The text of a kubeconfig.
    ///
    /// # Errors
    /// The text cannot be read, or what it says of the context does not make sense.
    pub async fn from_kubeconfig_text(text: &str, context: Option<&str>) -> Result<Self, ConfigError> {
        let name = "the given kubeconfig";
        let read = Kubeconfig::from_yaml(text).map_err(|error| ConfigError::file(Path::new(name), &chain(&error)))?;
        Config::choose(read, name.to_owned(), context).await
    }

    /// The account of the pod that this runs in. Its token and the certificates that vouch for the server are read
    /// again when they change, as are the files that kubeconfigs name.
    ///
    /// # Errors
    /// This does not run in a pod, or the pod has no account.
    pub fn in_cluster() -> Result<Self, ConfigError> {
        let mut kube = kube_client::Config::incluster().map_err(|error| ConfigError::InCluster(chain(&error)))?;
        kube.proxy_url = proxy::of(None, &kube.cluster_url, |name| env::var(name).ok());
        Ok(Config { kube, place: Place { file: "the account of the pod".to_owned(), ..Place::default() } })
    }

    /// Said outright.
    ///
    /// # Errors
    /// It does not make sense.
    pub async fn explicit(config: &ExplicitConfig) -> Result<Self, ConfigError> {
        if config.insecure && !(config.ca_data.is_empty() && config.ca_file.is_empty()) {
            let reason = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(ConfigError::file(Path::new("the given config"), reason));
        }
        let all = config.kubeconfig()?;
        let place = place(&all, "the given config".to_owned(), None)?;
        Config::load(all, place).await
    }

    /// Where the server is.
    #[must_use]
    pub fn server(&self) -> String {
        self.kube.cluster_url.to_string()
    }

    /// The namespace for those who name none.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        &self.kube.default_namespace
    }

    async fn choose(all: Kubeconfig, file: String, context: Option<&str>) -> Result<Self, ConfigError> {
        let place = place(&all, file, context)?;
        validation::validate(&all, &place)?;
        Config::load(all, place).await
    }

    async fn load(all: Kubeconfig, place: Place) -> Result<Self, ConfigError> {
        let cluster = cluster(&all, &place.context);
        let (ca_file, proxy) = (cluster.and_then(ca_file), cluster.and_then(proxy_url));
        let options = KubeConfigOptions { context: Some(place.context.clone()), ..KubeConfigOptions::default() };
        match kube_client::Config::from_custom_kubeconfig(all, &options).await {
            Ok(mut kube) => {
                if let Some(exec) = &mut kube.auth_info.exec {
                    may_ask(exec, &place, io::stdin().is_terminal())?;
                }
                kube.root_cert_file = ca_file;
                kube.proxy_url = proxy::of(proxy, &kube.cluster_url, |name| env::var(name).ok());
                Ok(Config { kube, place })
            }
            Err(error) => Err(ConfigError::context(&place, &chain(&error))),
        }
    }
}

fn read(paths: &[PathBuf]) -> Result<Kubeconfig, ConfigError> {
    let mut all = Kubeconfig::default();
    for path in paths {
        let read = Kubeconfig::read_from(path).and_then(|next| all.merge(next));
        all = read.map_err(|error| ConfigError::file(path, &chain(&error)))?;
    }
    Ok(all)
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn given(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// A plugin asks the user only where somebody sits; one that has to ask fails elsewhere.
fn may_ask(exec: &mut ExecConfig, place: &Place, is_terminal: bool) -> Result<(), ConfigError> {
    match exec.interactive_mode {
        _ if is_terminal => {}
        Some(ExecInteractiveMode::Always) => {
            let why = "exec plugin cannot support interactive mode: standard input is not a terminal";
            return Err(ConfigError::credentials(place, why.to_owned()));
        }
        _ => exec.interactive_mode = Some(ExecInteractiveMode::Never),
    }
    Ok(())
}

fn cluster<'a>(all: &'a Kubeconfig, context: &str) -> Option<&'a Cluster> {
    let context = all.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    all.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// The proxy that is named; one that cannot be read has been refused before.
fn proxy_url(cluster: &Cluster) -> Option<http::Uri> {
    cluster.proxy_url.as_ref().filter(|url| !url.is_empty())?.parse().ok()
}

/// The file with the certificates that vouch for a server, if it is not said what is in it.
fn ca_file(cluster: &Cluster) -> Option<PathBuf> {
    let said = cluster.certificate_authority_data.as_deref().is_some_and(|data| !data.is_empty());
    cluster.certificate_authority.as_ref().filter(|path| !said && !path.is_empty()).map(PathBuf::from)
}

/// Finds the names that are meant, and says what is missing.
fn place(all: &Kubeconfig, file: String, context: Option<&str>) -> Result<Place, ConfigError> {
    let chosen = context.or(all.current_context.as_deref()).filter(|name| !name.is_empty());
    let mut place = Place { file, ..Place::default() };
    let Some(name) = chosen else {
        let names: Vec<_> = all.contexts.iter().map(|context| context.name.as_str()).collect();
        let reason = match names.as_slice() {
            [] => "it has no contexts".to_owned(),
            names => format!("no context is current, and none was named; it has {}", names.join(", ")),
        };
        return Err(ConfigError::file(Path::new(&place.file), &reason));
    };
    name.clone_into(&mut place.context);
    let found = all.contexts.iter().find(|context| context.name == name).and_then(|named| named.context.as_ref());
    let Some(found) = found else { return Err(ConfigError::context(&place, "context was not found")) };
    if !all.clusters.iter().any(|cluster| cluster.name == found.cluster) {
        return Err(ConfigError::context(&place, &format!("cluster {:?} was not found", found.cluster)));
    }
    let user = found.user.clone().unwrap_or_default();
    if !user.is_empty() && !all.auth_infos.iter().any(|named| named.name == user) {
        return Err(ConfigError::context(&place, &format!("user {user:?} was not found")));
    }
    place.user = user;
    Ok(place)
}

/// The files to look into, and whether the user named them.
fn default_files() -> (Vec<PathBuf>, bool) {
    let named: Vec<PathBuf> = env::var_os(KUBECONFIG)
        .map(|list| env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect())
        .unwrap_or_default();
    if !named.is_empty() {
        return (named, true);
    }
    (env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(), false)
}

#[cfg(test)]
mod tests;
