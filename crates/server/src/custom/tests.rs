//! Custom resources over a server in this process.
