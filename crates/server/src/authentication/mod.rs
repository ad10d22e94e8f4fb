//! Who asks: from a request's headers and client certificate to a user.
//!
//! The ways in are asked one after the other: a proxy in front that vouches for a user, a client certificate, a bearer
//! token (from the static file, of a service account, of a joining node). The first that knows the user decides. What
//! the others found wrong counts only if none does, and then the answer is 401: only who shows nothing is anonymous.
//! Nothing here waits; other objects are read from the caches.

mod bearer;
mod bootstrap_token;
mod certificate;
mod jwt;
mod openid;
mod request_header;
mod review;
mod service_account;
#[cfg(test)]
pub(crate) mod tests;
mod token_file;
mod token_request;

use std::{collections::BTreeSet, fmt, sync::Arc};

pub use bearer::strip_bearer_token;
use capstan_api::{Status, Str};
use capstan_clock::{SharedClock, Timestamp};
pub use certificate::{CertificatePool, InvalidAuthority, PeerCertificates};
use http::HeaderMap;
pub use openid::{JWKS_CONTENT_TYPE, JWKS_PATH, MAX_AGE_SECONDS, OPENID_CONFIG_PATH, OpenIdDocuments, OpenIdError};
pub use request_header::{HeaderNames, RequestHeaders};
pub(crate) use request_header::{header_text, header_texts, headers_with_prefix, remove_with_prefix};
pub use review::{self_subject_review, token_review};
pub use service_account::{
    LEGACY_ISSUER, SERVICE_ACCOUNTS_GROUP, ServiceAccountConfig, ServiceAccountToken, group_names, legacy_token,
    sign_claims, split_username, username,
};
pub use token_file::{StaticTokens, TokenFileError};
pub use token_request::{TokenIssuer, TokenRequestContext, token_request};

use crate::{
    authorization::{UserInfo, aggregate},
    objects::Objects,
};

/// The group of everybody who said who they are.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of those who did not.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not say who they are.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// Where a user's `extra` names the credential that was shown.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Which ways in there are; by default none.
#[derive(Default)]
pub struct Config {
    /// What this server calls itself in tokens; upstream's default is the issuer.
    pub api_audiences: Vec<Str>,
    /// Proxies that may vouch for users.
    pub request_headers: Option<RequestHeaders>,
    /// The authorities of client certificates.
    pub client_ca: Option<CertificatePool>,
    /// Tokens that never change.
    pub static_tokens: Option<StaticTokens>,
    /// Tokens of service accounts.
    pub service_accounts: Option<ServiceAccountConfig>,
    /// Whether the tokens of joining nodes are taken.
    pub bootstrap_tokens: bool,
    /// Whether those who show nothing are let in as `system:anonymous`.
    pub anonymous: bool,
}

/// Somebody who has been recognized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// Who.
    pub user: UserInfo,
    /// For which audiences the credential is good; empty if it is for all.
    pub audiences: Vec<Str>,
    /// What the client is to be warned of.
    pub warnings: Vec<&'static str>,
}

/// Why nobody was recognized although something was shown. For logs, and for TokenReviews; the client of a request is
/// only told [`unauthorized`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationError {
    problems: Vec<String>,
}

impl fmt::Display for AuthenticationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&aggregate(&self.problems).unwrap_or_default())
    }
}

impl std::error::Error for AuthenticationError {}

impl From<String> for AuthenticationError {
    fn from(problem: String) -> Self {
        AuthenticationError { problems: vec![problem] }
    }
}

impl From<&str> for AuthenticationError {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

/// What one way in says: somebody, nothing, or what is wrong.
type Outcome = Result<Option<Authenticated>, AuthenticationError>;

/// The answer to those who were not recognized.
#[must_use]
pub fn unauthorized() -> Status {
    Status::unauthorized("Unauthorized")
}

/// Decides who asks. Shared by all requests; never waits.
pub struct Authenticator {
    config: Config,
    objects: Arc<dyn Objects>,
    clock: SharedClock,
}

impl Authenticator {
    /// An authenticator with these ways in.
    #[must_use]
    pub fn new(config: Config, objects: Arc<dyn Objects>, clock: SharedClock) -> Self {
        Authenticator { config, objects, clock }
    }

    /// What this server calls itself in tokens.
    #[must_use]
    pub fn api_audiences(&self) -> &[Str] {
        &self.config.api_audiences
    }

    /// Who sent these headers over a connection with these client certificates. `None` is nobody: nothing was shown,
    /// and anonymous requests are not taken; like an error, it is answered with [`unauthorized`].
    ///
    /// # Errors
    /// When something was shown and none of the ways in accepts it.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificates>,
    ) -> Result<Option<Authenticated>, AuthenticationError> {
        self.authenticate_for(headers, peer, &self.config.api_audiences)
    }

    /// The same for other audiences than the server's own: a TokenReview's.
    pub(crate) fn authenticate_for(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificates>,
        audiences: &[Str],
    ) -> Outcome {
        let now = self.clock.now();
        let mut union = Union::default();
        // Upstream asks about the server's own token before anything else, so its refusal comes first in what
        // TokenReviews report.
        let bearer = bearer::authorization_header(headers);
        if bearer.token.is_some() {
            union.problems.push(bearer::INVALID_TOKEN.into());
        }
        if let (Some(peer), Some(proxies)) = (peer, &self.config.request_headers) {
            let found = proxies.authenticate(headers, peer, now);
            union.add(self.for_all_audiences(audiences, found));
        }
        if let (None, Some(peer), Some(pool)) = (&union.found, peer, &self.config.client_ca) {
            union.add(pool.authenticate(peer, now));
        }
        if self.takes_tokens() {
            if let (None, Some(token)) = (&union.found, bearer.token) {
                union.add(self.token(token, audiences, now));
            }
            if union.found.is_none() {
                union.add(match bearer::websocket_protocol(headers) {
                    Ok(Some(token)) => self.token(&token, audiences, now),
                    Ok(None) => Ok(None),
                    Err(problem) => Err(problem.into()),
                });
            }
        } else {
            // Nobody reads tokens, so nobody refuses them.
            union.problems.retain(|problem| problem != bearer::INVALID_TOKEN);
        }
        let found = match union.finish()? {
            Some(mut found) => {
                add_authenticated(&mut found.user);
                Some(found)
            }
            None if self.config.anonymous => Some(Authenticated {
                user: UserInfo::new(SYSTEM_ANONYMOUS, [SYSTEM_UNAUTHENTICATED]),
                audiences: audiences.to_vec(),
                warnings: Vec::new(),
            }),
            None => None,
        };
        Ok(found.map(|mut found| {
            found.warnings.extend(bearer.warning);
            found
        }))
    }

    /// Removes what was shown from the headers, so that nothing behind this can read it: tokens, and a proxy's words.
    pub fn strip(&self, headers: &mut HeaderMap) {
        strip_bearer_token(headers);
        RequestHeaders::standard_names().strip(headers);
        if let Some(proxies) = &self.config.request_headers {
            proxies.names.strip(headers);
        }
    }

    fn takes_tokens(&self) -> bool {
        self.config.static_tokens.is_some() || self.config.service_accounts.is_some() || self.config.bootstrap_tokens
    }

    fn token(&self, token: &str, audiences: &[Str], now: Timestamp) -> Outcome {
        let mut union = Union::default();
        if let Some(tokens) = &self.config.static_tokens {
            let found = tokens.get(token).map(|user| Authenticated { user: user.clone(), ..Authenticated::default() });
            union.add(self.for_all_audiences(audiences, Ok(found)));
        }
        if let (None, Some(accounts)) = (&union.found, &self.config.service_accounts) {
            let api = &self.config.api_audiences;
            union.add(accounts.authenticate(token, audiences, api, &*self.objects, now));
        }
        if union.found.is_none() && self.config.bootstrap_tokens {
            let found = bootstrap_token::authenticate(token, &*self.objects, now);
            union.add(self.for_all_audiences(audiences, Ok(found)));
        }
        match union.finish()? {
            Some(found) => Ok(Some(found)),
            None => Err(bearer::INVALID_TOKEN.into()),
        }
    }

    /// A way in that knows no audiences is good for the server's own.
    fn for_all_audiences(&self, wanted: &[Str], outcome: Outcome) -> Outcome {
        if wanted.is_empty() {
            return outcome;
        }
        let audiences = intersect(&self.config.api_audiences, wanted);
        if audiences.is_empty() {
            return Ok(None);
        }
        Ok(outcome?.map(|found| Authenticated { audiences, ..found }))
    }
}

/// Those of `wanted` that `own` has.
fn intersect(own: &[Str], wanted: &[Str]) -> Vec<Str> {
    wanted.iter().filter(|audience| own.contains(audience)).cloned().collect()
}

/// Everybody who is somebody is in `system:authenticated`, unless the way in decided otherwise.
fn add_authenticated(user: &mut UserInfo) {
    if user.name != SYSTEM_ANONYMOUS && !user.in_group(SYSTEM_AUTHENTICATED) && !user.in_group(SYSTEM_UNAUTHENTICATED) {
        user.groups.push(SYSTEM_AUTHENTICATED.into());
    }
}

/// The first that is found, or all that is wrong.
#[derive(Default)]
struct Union {
    found: Option<Authenticated>,
    problems: Vec<String>,
}

impl Union {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Ok(found) => self.found = self.found.take().or(found),
            Err(error) => self.problems.extend(error.problems),
        }
    }

    fn finish(self) -> Outcome {
        match self.found {
            Some(found) => Ok(Some(found)),
            None if self.problems.is_empty() => Ok(None),
            None => {
                // Nested errors count once each.
                let mut seen = BTreeSet::new();
                let problems = self.problems.into_iter().filter(|problem| seen.insert(problem.clone())).collect();
                Err(AuthenticationError { problems })
            }
        }
    }
}
