//! Who asks, and whether they may, as the API server says: by TokenReview and SubjectAccessReview.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use capstan_client::{Api, BoxFuture, Client};
use capstan_clock::{Moment, SharedClock};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};

use super::{Authorizer, User};

/// For how long it is remembered that somebody may, that they may not, and whose a token is.
const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
const TOKEN_FOR: Duration = Duration::from_secs(120);
/// How many answers are remembered; when there are more, all are forgotten.
const MAX_KEPT: usize = 1024;

/// Asks the API server.
#[derive(Debug)]
pub struct Webhook {
    client: Client,
    clock: SharedClock,
    node: String,
    kept: Mutex<Kept>,
}

/// User, verb and subresource.
type Question = (String, String, String);

#[derive(Debug, Default)]
struct Kept {
    decisions: HashMap<Question, (Moment, bool)>,
    tokens: HashMap<String, (Moment, Option<User>)>,
}

impl Webhook {
    /// Asks about the node of this name.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, node: &str) -> Self {
        Webhook { client, clock, node: node.to_owned(), kept: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn decide(&self, user: &User, verb: &str, subresource: &str) -> bool {
        let question = (user.name.clone(), verb.to_owned(), subresource.to_owned());
        let now = self.clock.monotonic();
        if let Some((until, decision)) = self.kept().decisions.get(&question).copied()
            && until > now
        {
            return decision;
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        // Who can't be asked about may not.
        let Ok(answer) = Api::<SubjectAccessReview>::all(&self.client).create(&review).await else { return false };
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let mut kept = self.kept();
        if kept.decisions.len() >= MAX_KEPT {
            kept.decisions.clear();
        }
        kept.decisions.insert(question, (now.plus(if allowed { ALLOWED_FOR } else { DENIED_FOR }), allowed));
        allowed
    }

    async fn review(&self, token: &str) -> Option<User> {
        let now = self.clock.monotonic();
        if let Some((until, user)) = self.kept().tokens.get(token).cloned()
            && until > now
        {
            return user;
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = Api::<TokenReview>::all(&self.client).create(&review).await.ok()?.status?;
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user =
            user.map(|user| User { name: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() });
        let mut kept = self.kept();
        if kept.tokens.len() >= MAX_KEPT {
            kept.tokens.clear();
        }
        kept.tokens.insert(token.to_owned(), (now.plus(TOKEN_FOR), user.clone()));
        user
    }
}

impl Authorizer for Webhook {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<User>> {
        Box::pin(self.review(token))
    }

    fn allows<'a>(&'a self, user: &'a User, verb: &'a str, subresource: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(self.decide(user, verb, subresource))
    }
}
