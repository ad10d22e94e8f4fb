//! The shim of the process runtime as a program of its own, for tests: `capstan` itself plays this part elsewhere.

fn main() {
    let code = capstan_kubelet::runtime::process::process_init(std::env::args());
    std::process::exit(code.unwrap_or(2));
}
