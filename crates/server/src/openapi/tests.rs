//! Documents against what upstream publishes.

use super::*;

/// Writes all documents to a folder, to be compared with upstream's by hand.
#[test]
#[ignore = "writes files"]
fn dump() {
    let Ok(folder) = std::env::var("OPENAPI_DUMP") else { return };
    let open_api = OpenApi::new();
    let snapshot = open_api.snapshot();
    for (path, lazy) in &snapshot.v3 {
        let file = format!("{folder}/{}.json", path.replace('/', "__"));
        std::fs::write(file, v3(&snapshot, path, lazy).json()).unwrap();
    }
    std::fs::write(format!("{folder}/v2.json"), v2(&snapshot).json()).unwrap();
    let packed: usize = snapshot.v3.values().map(|lazy| lazy.get().unwrap().packed.len()).sum();
    let length: usize = snapshot.v3.values().map(|lazy| lazy.get().unwrap().length).sum();
    println!(
        "v3 {length} bytes, packed {packed}; v2 {} packed {}",
        snapshot.v2.get().unwrap().length,
        snapshot.v2.get().unwrap().packed.len()
    );
}
