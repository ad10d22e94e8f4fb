//! Measurements, as the metrics APIs have them.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use capstan_api::{GroupVersion, Quantity, selector::Selector};
use capstan_client::{Client, Error};
use capstan_clock::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};

use super::replicas::{PodMetric, PodMetrics};

/// The window of measurements that do not say theirs.
const DEFAULT_WINDOW: Duration = Duration::from_mins(1);

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Measured {
    metadata: Named,
    timestamp: Timestamp,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<MeasuredContainer>,
}

#[derive(Deserialize)]
struct MeasuredContainer {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: Named,
    timestamp: Timestamp,
    #[serde(default)]
    window_seconds: Option<u64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct ExternalValue {
    value: Quantity,
}

/// Percent-encodes what may be in a path or a query.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'*' => out.push(byte.into()),
            // Writing into memory does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

fn selected(path: String, parameters: &[(&str, &Selector)]) -> String {
    let parts: Vec<_> = (parameters.iter().filter(|(_, selector)| !selector.is_everything()))
        .map(|(name, selector)| format!("{name}={}", escape(&selector.to_string())))
        .collect();
    if parts.is_empty() { path } else { format!("{path}?{}", parts.join("&")) }
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Error> {
    let text = client.get_raw(path).await?;
    serde_json::from_slice(&text).map_err(|error| Error::Decode(error.to_string()))
}

/// How much of a resource pods use: all of their containers, or one of them.
///
/// # Errors
/// There are no measurements.
pub(super) async fn resource(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    resource: &str,
    container: &str,
) -> Result<PodMetrics, String> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let list: List<Measured> = get(client, &selected(path, &[("labelSelector", selector)]))
        .await
        .map_err(|error| format!("unable to fetch metrics from resource metrics API: {error}"))?;
    if list.items.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    Ok(list.items.into_iter().filter_map(|measured| of_pod(measured, resource, container)).collect())
}

fn of_pod(measured: Measured, resource: &str, container: &str) -> Option<(String, PodMetric)> {
    let usage = |measured: &MeasuredContainer| measured.usage.get(resource).map(Quantity::milli_value);
    let value = if container.is_empty() {
        // A pod of which a part is not known is not known.
        let parts: Option<Vec<i64>> = measured.containers.iter().map(usage).collect();
        parts.filter(|parts| !parts.is_empty())?.into_iter().sum()
    } else {
        measured.containers.iter().find(|candidate| candidate.name == container).and_then(usage)?
    };
    let window = measured.window.parse::<capstan_api::Duration>().ok();
    let window = Duration::from_nanos(window.and_then(|window| u64::try_from(window.0).ok()).unwrap_or_default());
    Some((measured.metadata.name, PodMetric { timestamp: measured.timestamp, window, value }))
}

/// Asks in the newest version that the server has.
async fn custom(client: &Client, path: &str) -> Result<Vec<MetricValue>, String> {
    let ask = |version: &'static str| async move {
        get::<List<MetricValue>>(client, &format!("/apis/custom.metrics.k8s.io/{version}/{path}")).await
    };
    let answer = match ask("v1beta2").await {
        Err(error) if error.status().is_some_and(|status| status.code == 404) => match ask("v1beta1").await {
            // What the newer version said is more to the point.
            Err(_) => Err(error),
            found => found,
        },
        other => other,
    };
    let list = answer.map_err(|error| format!("unable to fetch metrics from custom metrics API: {error}"))?;
    if list.items.is_empty() {
        return Err("no metrics returned from custom metrics API".to_owned());
    }
    Ok(list.items)
}

/// What is measured of each pod.
///
/// # Errors
/// There are no measurements.
pub(super) async fn pods(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    metric: &str,
    metric_selector: &Selector,
) -> Result<PodMetrics, String> {
    let path = format!("namespaces/{namespace}/pods/*/{}", escape(metric));
    let path = selected(path, &[("labelSelector", selector), ("metricLabelSelector", metric_selector)]);
    let values = custom(client, &path).await?;
    let each = |value: MetricValue| {
        let window = value.window_seconds.map_or(DEFAULT_WINDOW, Duration::from_secs);
        let metric = PodMetric { timestamp: value.timestamp, window, value: value.value.milli_value() };
        (value.described_object.name, metric)
    };
    Ok(values.into_iter().map(each).collect())
}

/// What is measured of one object, by its resource.
///
/// # Errors
/// There is no measurement.
pub(super) async fn object(
    client: &Client,
    namespace: &str,
    resource: (&GroupVersion, &str),
    name: &str,
    metric: &str,
    metric_selector: &Selector,
) -> Result<i64, String> {
    let (group_version, resource) = resource;
    let path = match (group_version.group.as_ref(), resource) {
        ("", "namespaces") => format!("namespaces/{namespace}/metrics/{}", escape(metric)),
        ("", resource) => format!("namespaces/{namespace}/{resource}/{}/{}", escape(name), escape(metric)),
        (group, resource) => {
            format!("namespaces/{namespace}/{resource}.{group}/{}/{}", escape(name), escape(metric))
        }
    };
    let values = custom(client, &selected(path, &[("metricLabelSelector", metric_selector)])).await?;
    values.first().map(|value| value.value.milli_value()).ok_or_else(|| "no metrics returned".to_owned())
}

/// What is measured of things outside the cluster, summed up.
///
/// # Errors
/// There are no measurements.
pub(super) async fn external(
    client: &Client,
    namespace: &str,
    metric: &str,
    selector: &Selector,
) -> Result<i64, String> {
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}", escape(metric));
    let list: List<ExternalValue> = get(client, &selected(path, &[("labelSelector", selector)]))
        .await
        .map_err(|error| format!("unable to fetch metrics from external metrics API: {error}"))?;
    if list.items.is_empty() {
        return Err("no metrics returned from external metrics API".to_owned());
    }
    Ok(list.items.iter().fold(0_i64, |sum, value| sum.saturating_add(value.value.milli_value())))
}
