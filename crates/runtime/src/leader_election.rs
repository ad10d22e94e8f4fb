//! Electing a leader by Lease.
