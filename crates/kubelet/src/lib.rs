//! The life of pods on a node: registration, lifecycle, volumes, runtimes.
