//! Functions that fill a scheme, put together.

use super::{RegisterError, Scheme};

/// Functions that add types to a scheme, collected so that one call adds all.
///
/// ```
/// use capstan_api::scheme::{RegisterError, Scheme, SchemeBuilder};
///
/// fn add_orders(scheme: &mut Scheme) -> Result<(), RegisterError> {
///     # let _ = scheme;
///     Ok(()) // scheme.add_known_type::<Order>()
/// }
///
/// let shop = SchemeBuilder::new().register(add_orders);
/// let everything = SchemeBuilder::new().register(move |scheme| shop.add_to_scheme(scheme));
/// everything.add_to_scheme(&mut Scheme::new("example"))?;
/// # Ok::<(), RegisterError>(())
/// ```
#[derive(Default)]
pub struct SchemeBuilder(Vec<Box<AddToScheme>>);

type AddToScheme = dyn Fn(&mut Scheme) -> Result<(), RegisterError> + Send + Sync;

impl std::fmt::Debug for SchemeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SchemeBuilder({} functions)", self.0.len())
    }
}

impl SchemeBuilder {
    /// No functions yet.
    #[must_use]
    pub fn new() -> Self {
        SchemeBuilder::default()
    }

    /// Adds a function.
    #[must_use]
    pub fn register(mut self, add: impl Fn(&mut Scheme) -> Result<(), RegisterError> + Send + Sync + 'static) -> Self {
        self.0.push(Box::new(add));
        self
    }

    /// Calls all functions in their order, until one fails.
    ///
    /// # Errors
    /// What the function said that failed.
    pub fn add_to_scheme(&self, scheme: &mut Scheme) -> Result<(), RegisterError> {
        self.0.iter().try_for_each(|add| add(scheme))
    }
}
