//! An object without a Rust type, read and changed field by field.
//!
//! ```text
//! cargo run -p capstan-api --example unstructured
//! ```

use std::error::Error;

use capstan_api::{Unstructured, json};

const AT: &str = r#"{
  "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
  "kind": "At",
  "metadata": { "name": "example-at", "namespace": "default", "labels": { "season": "winter" } },
  "spec": { "schedule": "2026-12-24T18:00:00Z", "command": "echo Merry Christmas" },
  "status": { "phase": "PENDING" }
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut at = Unstructured::decode(AT.as_bytes())?;

    println!("{:<22} {}", "kind", at.gvk());
    println!("{:<22} {}/{}", "object", at.namespace(), at.name());
    for path in [&["spec", "schedule"][..], &["spec", "command"], &["status", "phase"], &["status", "message"]] {
        // Nothing is not an error: the field is just not there.
        println!("{:<22} {}", path.join("."), at.nested_str(path)?.unwrap_or("-"));
    }
    println!("{:<22} {:?}", "metadata.labels", at.labels());

    // Maps that are missing on the way are made.
    at.set_nested(["status", "phase"], "RUNNING")?;
    at.set_nested(["status", "attempts", "count"], 1)?;
    at.remove_nested(["metadata", "labels"]);
    println!("\nchanged:\n{}", json::to_pretty_string(&at.clone().into()));

    // What is not what it should be says so, and where.
    println!("\nerrors:");
    at.set_nested(["spec", "schedule"], 3)?;
    for error in [
        at.nested_str(["spec", "schedule"]).err(),
        at.nested_i64(["status", "attempts"]).err(),
        at.nested_str(["spec", "command", "shell"]).err(),
        at.set_nested(["spec", "command", "shell"], "sh").err(),
    ] {
        println!("  {}", error.ok_or("that should have failed")?);
    }
    let nameless = Unstructured::decode(br#"{"metadata":{"name":"example-at"}}"#);
    println!("  {}", nameless.err().ok_or("that should have failed")?);
    Ok(())
}
