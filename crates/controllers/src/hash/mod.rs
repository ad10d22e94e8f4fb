//! The hashes by which revisions of templates are named: upstream's own, so that either manager goes on with what the
//! other one made.

mod dump;

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// The letters and digits of names that are made up. Vowels are missing so that no words come out.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const OFFSET_32: u32 = 0x811c_9dc5;
const PRIME_32: u32 = 0x0100_0193;

/// FNV-1a, in 32 bits.
pub(crate) fn fnv32a(parts: &[&[u8]]) -> u32 {
    parts.iter().copied().flatten().fold(OFFSET_32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME_32))
}

/// FNV-1, in 32 bits.
pub(crate) fn fnv32(parts: &[&[u8]]) -> u32 {
    parts.iter().copied().flatten().fold(OFFSET_32, |hash, byte| hash.wrapping_mul(PRIME_32) ^ u32::from(*byte))
}

/// A number as part of a name.
pub(crate) fn safe_encode(number: u32) -> String {
    number.to_string().bytes().map(|byte| char::from(SAFE[usize::from(byte) % SAFE.len()])).collect()
}

/// The hash of a template; `collision_count` makes another one of it when the name is taken.
pub(crate) fn template_hash(template: &PodTemplateSpec, collision_count: Option<i32>) -> String {
    let text = dump::pod_template(&serde_json::to_value(template).unwrap_or_default());
    let mut probe = [0; 8];
    let probe: &[u8] = match collision_count {
        None => &[],
        Some(count) => {
            probe[..4].copy_from_slice(&count.to_le_bytes());
            &probe
        }
    };
    safe_encode(fnv32a(&[text.as_bytes(), probe]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_go() {
        // What Go's hash/fnv and rand.SafeEncodeString say.
        assert_eq!((fnv32a(&[b"foo", b"bar"]), fnv32(&[b"foobar"])), (0xbf9c_f968, 0x31f0_b262));
        assert_eq!(safe_encode(0xbf9c_f968), "7658c79c64");
    }

    #[test]
    fn templates() {
        // What Go says of the same JSON: fnv32a of dump.ForHash of the template.
        let small = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"one"}]}}"#;
        for (json, expected) in [(small, "546bcbd669"), (include_str!("template.json"), "59bbc6cc49")] {
            let template: PodTemplateSpec = serde_json::from_str(json).unwrap();
            assert_eq!(template_hash(&template, None), expected, "{json}");
            assert_ne!(template_hash(&template, Some(1)), expected);
        }
    }
}
