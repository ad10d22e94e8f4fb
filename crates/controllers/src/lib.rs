//! The control loops of Kubernetes, one module each, reaching state only through the API.
