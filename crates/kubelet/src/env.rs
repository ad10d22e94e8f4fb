//! The environment of a container: services, config maps, secrets, fields of the pod, and `$(VAR)` in all of it.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Service};

use crate::{
    downward::{self, Facts},
    env_file,
};

/// What the environment of a container is made of. Objects that are not there are `None`.
#[derive(Debug, Default)]
pub struct Ingredients {
    /// Config maps of the pod's namespace by name.
    pub config_maps: BTreeMap<String, Option<ConfigMap>>,
    /// Secrets of the pod's namespace by name.
    pub secrets: BTreeMap<String, Option<Secret>>,
    /// The services of the pod's namespace and the cluster's own.
    pub services: Vec<Service>,
    /// The pod's volumes by name, and where on the node they are.
    pub volumes: BTreeMap<String, PathBuf>,
}

/// The names of the config maps and secrets that a container's environment needs.
#[must_use]
pub fn needs(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut maps, mut secrets) = (Vec::new(), Vec::new());
    for from in container.env_from.iter().flatten() {
        maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
        secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
        maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.clone()));
        secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.clone()));
    }
    (maps, secrets)
}

/// The environment, or why there is none: a `CreateContainerConfigError`.
///
/// # Errors
/// Something that is not optional is not there.
pub fn environment(
    pod: &Pod,
    container: &Container,
    facts: &Facts,
    from: &Ingredients,
) -> Result<Vec<(String, String)>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let services = service_variables(&from.services, namespace, links);
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut put = |known: &mut BTreeMap<String, String>, name: &str, value: String| {
        if known.insert(name.to_owned(), value).is_none() {
            order.push(name.to_owned());
        }
    };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let optional = reference.optional.unwrap_or(false);
            let map = present(&from.config_maps, "configmap", &reference.name, optional)?;
            for (key, value) in map.iter().flat_map(|map| map.data.iter().flatten()) {
                put(&mut known, &format!("{prefix}{key}"), value.clone());
            }
        }
        if let Some(reference) = &source.secret_ref {
            let optional = reference.optional.unwrap_or(false);
            let secret = present(&from.secrets, "secret", &reference.name, optional)?;
            for (key, value) in secret.iter().flat_map(|secret| secret.data.iter().flatten()) {
                put(&mut known, &format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
            }
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (_, None) => {
                let text = var.value.as_deref().unwrap_or_default();
                expand(text, |name| known.get(name).or_else(|| services.get(name)).cloned())
            }
            (_, Some(source)) => {
                if let Some(field) = &source.field_ref {
                    downward::field(pod, &field.field_path, facts)?
                } else if let Some(resource) = &source.resource_field_ref {
                    downward::resource(pod, Some(container), resource, facts)?
                } else if let Some(key) = &source.config_map_key_ref {
                    let optional = key.optional.unwrap_or(false);
                    let map = present(&from.config_maps, "configmap", &key.name, optional)?;
                    let value = map.and_then(|map| map.data.as_ref()?.get(&key.key).cloned());
                    match value {
                        Some(value) => value,
                        None if optional => continue,
                        None => {
                            return Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", key.key, key.name));
                        }
                    }
                } else if let Some(key) = &source.secret_key_ref {
                    let optional = key.optional.unwrap_or(false);
                    let secret = present(&from.secrets, "secret", &key.name, optional)?;
                    let value = secret.and_then(|secret| secret.data.as_ref()?.get(&key.key));
                    match value {
                        Some(value) => String::from_utf8_lossy(&value.0).into_owned(),
                        None if optional => continue,
                        None => {
                            return Err(format!("couldn't find key {} in Secret {namespace}/{}", key.key, key.name));
                        }
                    }
                } else if let Some(file) = &source.file_key_ref {
                    let (volume, key) = (&file.volume_name, &file.key);
                    let Some(place) = from.volumes.get(volume) else {
                        return Err(format!("cannot find the volume \"{volume}\" referenced by FileKeyRef"));
                    };
                    let value = env_file::read(place, &file.path, key)?;
                    if value.is_empty() {
                        if file.optional == Some(true) {
                            continue;
                        }
                        let path = place.join(&file.path);
                        let path = path.display();
                        return Err(format!("environment variable key \"{key}\" not found in file \"{path}\""));
                    }
                    value
                } else {
                    continue;
                }
            }
        };
        put(&mut known, &var.name, value);
    }
    for (name, value) in services {
        if !known.contains_key(&name) {
            put(&mut known, &name, value);
        }
    }
    Ok(order
        .into_iter()
        .filter_map(|name| {
            let value = known.remove(&name)?;
            Some((name, value))
        })
        .collect())
}

fn present<'a, T>(
    all: &'a BTreeMap<String, Option<T>>,
    kind: &str,
    name: &str,
    optional: bool,
) -> Result<Option<&'a T>, String> {
    match all.get(name).and_then(Option::as_ref) {
        None if !optional => Err(format!("{kind} \"{name}\" not found")),
        found => Ok(found),
    }
}

/// What `enableServiceLinks` gives, and the cluster's own service in any case.
fn service_variables(services: &[Service], namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let name = |text: &str| text.replace('-', "_").to_uppercase();
    for service in services {
        let (Some(spec), Some(own)) = (&service.spec, &service.metadata.name) else { continue };
        let ip = spec.cluster_ip.as_deref().unwrap_or_default();
        let of = service.metadata.namespace.as_deref().unwrap_or_default();
        let master = of == "default" && own == "kubernetes";
        let ports = spec.ports.as_deref().unwrap_or_default();
        if ip.is_empty() || ip == "None" || ports.is_empty() || !(master || (of == namespace && links)) {
            continue;
        }
        let prefix = name(own);
        all.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
        all.insert(format!("{prefix}_SERVICE_PORT"), ports[0].port.to_string());
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        for (index, port) in ports.iter().enumerate() {
            let number = port.port;
            if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                all.insert(format!("{prefix}_SERVICE_PORT_{}", name(port_name)), number.to_string());
            }
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let lower = protocol.to_lowercase();
            let url = format!("{lower}://{host}:{number}");
            if index == 0 {
                all.insert(format!("{prefix}_PORT"), url.clone());
            }
            let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
            all.insert(format!("{link}_PROTO"), lower);
            all.insert(format!("{link}_PORT"), number.to_string());
            all.insert(format!("{link}_ADDR"), ip.to_owned());
            all.insert(link, url);
        }
    }
    all
}

/// A command with what the container's own variables say, as far as that stands in its spec.
#[must_use]
pub fn expand_static(command: &[String], container: &Container) -> Vec<String> {
    let known: BTreeMap<&str, &str> = container
        .env
        .iter()
        .flatten()
        .map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or_default()))
        .collect();
    command.iter().map(|word| expand(word, |name| known.get(name).map(|value| (*value).to_owned()))).collect()
}

/// Replaces `$(NAME)` by what is known of it; `$$` is a dollar sign, and what is not known stays as it is.
#[must_use]
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn variables_in_text() {
        let cases = [
            ("$(A)", "1"),
            ("$$(A)", "$(A)"),
            ("x$(A)$(B)y", "x1$(B)y"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$$$(A)", "$1"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, |name| (name == "A").then(|| "1".to_owned())), expected, "{text}");
        }
    }

    #[test]
    fn variables_in_a_probe() {
        let container: Container = serde_json::from_value(json!({"name": "c", "env": [{"name": "PORT", "value": "80"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}))
        .unwrap();
        let command = ["check", ":$(PORT)", "<$(IP)>", "$(OTHER)"].map(str::to_owned);
        assert_eq!(expand_static(&command, &container), ["check", ":80", "<>", "$(OTHER)"]);
    }

    fn check(container: Value, expected: Result<&[&str], &str>) {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}},
            "spec": {"containers": [], "nodeName": "n", "enableServiceLinks": true}}))
            .unwrap();
        let container: Container = serde_json::from_value(container).unwrap();
        let map = json!({"data": {"k": "v", "other": "w"}});
        let secret = json!({"data": {"password": "c2VjcmV0"}});
        let service = json!({"metadata": {"name": "my-db", "namespace": "ns"},
            "spec": {"clusterIP": "10.0.0.5", "ports": [{"port": 5432, "name": "sql"}]}});
        let from = Ingredients {
            config_maps: [("m".to_owned(), Some(serde_json::from_value(map).unwrap()))].into(),
            secrets: [("s".to_owned(), Some(serde_json::from_value(secret).unwrap()))].into(),
            services: vec![serde_json::from_value(service).unwrap()],
            volumes: [("v".to_owned(), PathBuf::from("/"))].into(),
        };
        let facts = Facts { pod_ips: vec!["10.1.1.1".into()], ..Facts::default() };
        let got = environment(&pod, &container, &facts, &from);
        match expected {
            Err(text) => assert_eq!(got.unwrap_err(), text),
            Ok(lines) => {
                let got: Vec<_> = got.unwrap().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
                assert_eq!(&got[..lines.len()], lines);
                assert!(got.contains(&"MY_DB_SERVICE_PORT_SQL=5432".to_owned()), "{got:?}");
                assert!(got.contains(&"MY_DB_PORT_5432_TCP=tcp://10.0.0.5:5432".to_owned()), "{got:?}");
            }
        }
    }

    #[test]
    fn where_values_come_from() {
        check(
            json!({"name": "c",
                "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
                "env": [{"name": "X", "value": "$(P_k) at $(MY_DB_SERVICE_HOST)"},
                        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "other"}}},
                        {"name": "N", "valueFrom": {"configMapKeyRef":
                            {"name": "m", "key": "no", "optional": true}}}]}),
            Ok(&["P_k=v", "P_other=w", "password=secret", "X=v at 10.0.0.5", "IP=10.1.1.1", "L=b", "K=w"]),
        );
        check(
            json!({"name": "c", "env": [{"name": "N", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "no"}}}]}),
            Err("couldn't find key no in ConfigMap ns/m"),
        );
        let file = |volume: &str| {
            let source = json!({"volumeName": volume, "path": "no-such-file", "key": "k"});
            json!({"name": "c", "env": [{"name": "N", "valueFrom": {"fileKeyRef": source}}]})
        };
        check(file("v"), Err("couldn't parse env file"));
        check(file("w"), Err("cannot find the volume \"w\" referenced by FileKeyRef"));
        check(json!({"name": "c", "envFrom": [{"secretRef": {"name": "no"}}]}), Err("secret \"no\" not found"));
    }
}
