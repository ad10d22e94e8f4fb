//! The server as a process: how it starts and ends, what it answers to hostile requests, and what survives kill -9.

mod controllers;
mod crash;
mod harness;
mod hostile;
mod lifecycle;
