//! What a client asks for, read from the request's method, target and headers.
//!
//! From the outside in: [`url`] takes the target apart, [`query`] its parameters; [`info`] says which verb is asked of
//! which resource; [`negotiate`] and [`body`] settle the forms of the answer and of the request's body; [`options`] and
//! its neighbours are what each verb can be told. All of it is pure, takes hostile input, and costs time in proportion
//! to the input.

pub mod accept;
pub mod body;
pub mod continue_token;
pub mod delete_options;
pub mod info;
pub mod list_options;
pub mod negotiate;
pub mod options;
pub mod query;
pub mod resource_version;
pub mod url;

#[cfg(test)]
mod hostile;

pub use body::{PatchType, body_media_type};
pub use continue_token::ContinueToken;
pub use delete_options::DeleteOptions;
pub use info::RequestInfo;
pub use list_options::ListOptions;
pub use negotiate::{Endpoint, MediaType, Negotiated, Transform};
pub use options::{GetOptions, PatchOptions, WriteOptions};
pub use query::Query;
pub use url::Url;
