//! What can be wrong with a config, and where to mend it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::Place;

/// Why a config is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no kubeconfig, and this does not run in a pod.
    Nowhere {
        /// The files that could have been.
        files: Vec<PathBuf>,
        /// Why the pod's account does not serve.
        in_cluster: String,
    },
    /// A kubeconfig cannot be read.
    File {
        /// Which.
        file: String,
        /// Why.
        reason: String,
    },
    /// A kubeconfig says something that makes no sense of a context.
    Context {
        /// The file, or files.
        file: String,
        /// The context.
        context: String,
        /// Why.
        reason: String,
    },
    /// The credentials of a user do not work: files are missing, a plugin fails.
    User {
        /// The file, or files.
        file: String,
        /// The context.
        context: String,
        /// The user; empty if the config names none.
        user: String,
        /// Why.
        reason: String,
    },
    /// The account of the pod cannot be used.
    InCluster(String),
}

impl ConfigError {
    pub(super) fn file(file: &Path, reason: &str) -> Self {
        ConfigError::File { file: file.display().to_string(), reason: reason.to_owned() }
    }

    pub(super) fn context(place: &Place, reason: &str) -> Self {
        ConfigError::Context { file: place.file.clone(), context: place.context.clone(), reason: reason.to_owned() }
    }

    pub(crate) fn user(place: &Place, error: &dyn std::error::Error) -> Self {
        ConfigError::credentials(place, chain(error))
    }

    pub(crate) fn token_file(place: &Place, path: &str, error: &std::io::Error) -> Self {
        ConfigError::credentials(place, format!("failed to read token file {path:?}: {error}"))
    }

    pub(crate) fn ca_file(place: &Place, path: &Path, error: &std::io::Error) -> Self {
        ConfigError::context(place, &format!("failed to read certificate authority {}: {error}", path.display()))
    }

    /// In client-go's words, with what the kubeconfig says to that.
    pub(crate) fn plugin_missing(place: &Place, command: &str, hint: &str) -> Self {
        let hint = if hint.is_empty() { String::new() } else { format!("\n\n{hint}") };
        ConfigError::credentials(place, format!("exec: executable {command} not found{hint}"))
    }

    pub(super) fn credentials(place: &Place, reason: String) -> Self {
        let Place { file, context, user } = place.clone();
        ConfigError::User { file, context, user, reason }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Nowhere { files, in_cluster } => {
                let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
                let files = if files.is_empty() { "there is no home".to_owned() } else { files.join(", ") };
                write!(f, "no kubeconfig found ({files}), and not in a cluster: {in_cluster}")
            }
            ConfigError::File { file, reason } => write!(f, "kubeconfig {file}: {reason}"),
            ConfigError::Context { file, context, reason } => {
                write!(f, "kubeconfig {file}: context {context:?}: {reason}")
            }
            ConfigError::User { file, context, user, reason } => {
                let place = Place { file: file.clone(), context: context.clone(), user: user.clone() };
                write!(f, "credentials of {place}: {reason}")
            }
            ConfigError::InCluster(reason) => write!(f, "the account of the pod: {reason}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// An error and what is behind it, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        next = error.source();
    }
    text
}
