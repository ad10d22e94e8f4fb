//! From the metrics of an autoscaler to a number of replicas.

use std::sync::Arc;

use capstan_api::{
    GroupVersion, Quantity,
    quantity::Format,
    selector::{LabelSelector, Selector},
};
use capstan_client::Client;
use capstan_clock::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{
        ContainerResourceMetricStatus, CrossVersionObjectReference, ExternalMetricSource, ExternalMetricStatus,
        HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource,
        ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
    },
    apimachinery::pkg::{api::resource::Quantity as Amount, apis::meta::v1::LabelSelector as MetaLabelSelector},
};

use super::{
    kinds::Kinds,
    metrics,
    replicas::{Proposal, Target, Tolerances, by_average, by_pods, by_value},
};

use crate::pod::Pod;

/// By which part usage may be off its target, unless the autoscaler says otherwise.
const TOLERANCE: f64 = 0.1;

/// What a metric asks for.
#[derive(Debug)]
pub(super) struct Computed {
    pub(super) replicas: i32,
    /// The metric in words, for events.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// Why a metric says nothing: the reason for machines, what is said in events and conditions, and what the whole says.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) error: String,
}

/// Why a metric says nothing, and what comes before that where the whole is told.
struct Why {
    before: String,
    message: String,
}

impl From<String> for Why {
    fn from(message: String) -> Self {
        Why { before: String::new(), message }
    }
}

impl From<&str> for Why {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// What a metric asks for, its name in words, and its status.
type Asked = Result<(Proposal, String, MetricStatus), Why>;

/// The present state that metrics are judged by.
pub(super) struct Present<'a> {
    pub(super) client: &'a Client,
    pub(super) kinds: &'a Kinds,
    pub(super) namespace: &'a str,
    pub(super) selector: &'a Selector,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// The tolerances of an autoscaler.
pub(super) fn tolerances(hpa: &HorizontalPodAutoscaler) -> Tolerances {
    let behavior = hpa.spec.behavior.as_ref();
    let of = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        let tolerance = rules.and_then(|rules| rules.tolerance.as_ref());
        tolerance.and_then(|tolerance| tolerance.0.parse::<Quantity>().ok()).map_or(TOLERANCE, |t| t.as_f64())
    };
    Tolerances {
        scale_down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
        scale_up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
    }
}

fn milli(amount: &Amount) -> i64 {
    amount.0.parse::<Quantity>().map(|quantity| quantity.milli_value()).unwrap_or_default()
}

fn amount(value: i64, resource: &str) -> Amount {
    let format = if resource == "memory" { Format::BinarySI } else { Format::DecimalSI };
    Amount(Quantity::new_milli(value, format).to_string())
}

/// The selector of a metric; all of it when there is none.
fn parse(selector: Option<&MetaLabelSelector>) -> Result<Selector, String> {
    let Some(selector) = selector else { return Ok(Selector::default()) };
    let selector = serde_json::to_value(selector).and_then(serde_json::from_value::<LabelSelector>);
    selector.map_err(|error| error.to_string()).and_then(|selector| selector.to_selector())
}

/// A selector as upstream's messages print it.
fn shown(selector: Option<&MetaLabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions: String = (selector.match_expressions.iter().flatten())
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

impl Present<'_> {
    /// What one metric asks for.
    pub(super) async fn compute(&self, spec: &MetricSpec) -> Result<Computed, Failed> {
        let (reason, prefix, result) = match spec.type_.as_str() {
            "Resource" => {
                let Some(source) = &spec.resource else { return Err(unknown(spec)) };
                let result = self.resource(&source.name, "", &source.target).await.map(|(proposal, name, current)| {
                    let resource = Some(ResourceMetricStatus { name: source.name.clone(), current });
                    (proposal, name, MetricStatus { type_: spec.type_.clone(), resource, ..MetricStatus::default() })
                });
                let prefix = format!("failed to get {} resource metric value", source.name);
                ("FailedGetResourceMetric", prefix, result)
            }
            "ContainerResource" => {
                let Some(source) = &spec.container_resource else { return Err(unknown(spec)) };
                let result = self.resource(&source.name, &source.container, &source.target).await;
                let result = result.map(|(proposal, name, current)| {
                    let (container, resource) = (source.container.clone(), source.name.clone());
                    let status = Some(ContainerResourceMetricStatus { name: resource, container, current });
                    let type_ = spec.type_.clone();
                    (proposal, name, MetricStatus { type_, container_resource: status, ..MetricStatus::default() })
                });
                let prefix = format!("failed to get {} container metric value", source.container);
                ("FailedGetContainerResourceMetric", prefix, result)
            }
            "Pods" => {
                let Some(source) = &spec.pods else { return Err(unknown(spec)) };
                let prefix = "failed to get pods metric value".to_owned();
                ("FailedGetPodsMetric", prefix, self.pods(source).await)
            }
            "Object" => {
                let Some(source) = &spec.object else { return Err(unknown(spec)) };
                let prefix = "failed to get object metric value".to_owned();
                ("FailedGetObjectMetric", prefix, self.object(source).await)
            }
            "External" => {
                let Some(source) = &spec.external else { return Err(unknown(spec)) };
                let prefix = format!("failed to get {} external metric value", source.metric.name);
                ("FailedGetExternalMetric", prefix, self.external(source).await)
            }
            _ => return Err(unknown(spec)),
        };
        match result {
            Ok((proposal, name, status)) => Ok(Computed { replicas: proposal.replicas, name, status }),
            Err(Why { before, message }) => {
                Err(Failed { reason, error: format!("{prefix}: {before}{message}"), message })
            }
        }
    }

    fn usage(&self, metrics: super::replicas::PodMetrics, target: &Amount) -> Result<Proposal, String> {
        let target = Target::Usage(milli(target));
        by_pods(metrics, self.pods, "", target, self.spec_replicas, self.tolerances, self.now)
    }

    async fn resource(
        &self,
        resource: &str,
        container: &str,
        target: &MetricTarget,
    ) -> Result<(Proposal, String, MetricValueStatus), Why> {
        let (target, name) = match (&target.average_value, target.average_utilization) {
            (Some(value), _) => (Target::Usage(milli(value)), format!("{resource} resource")),
            (None, Some(percent)) => {
                let kind = if container.is_empty() { "resource" } else { "container resource" };
                let name = format!("{resource} {kind} utilization (percentage of request)");
                (Target::Utilization { percent, container }, name)
            }
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average \
                            value (usage) target was set"
                    .into());
            }
        };
        let what = if matches!(target, Target::Usage(_)) { "usage" } else { "utilization" };
        let measured = metrics::resource(self.client, self.namespace, self.selector, resource, container).await;
        let measured = measured.map_err(|why| format!("unable to get metrics for resource {resource}: {why}"));
        let proposal = measured.and_then(|measured| {
            by_pods(measured, self.pods, resource, target, self.spec_replicas, self.tolerances, self.now)
        });
        let proposal = proposal.map_err(|why| format!("failed to get {resource} {what}: {why}"))?;
        let current = MetricValueStatus {
            average_utilization: proposal.utilization,
            average_value: Some(amount(proposal.usage, resource)),
            value: None,
        };
        Ok((proposal, name, current))
    }

    async fn pods(&self, source: &PodsMetricSource) -> Asked {
        let (name, selector) = (&source.metric.name, parse(source.metric.selector.as_ref())?);
        let measured = metrics::pods(self.client, self.namespace, self.selector, name, &selector).await;
        let measured = measured.map_err(|why| format!("unable to get metric {name}: {why}"))?;
        let target = source.target.average_value.as_ref().ok_or("no average value target was set")?;
        let proposal = self.usage(measured, target)?;
        let current =
            MetricValueStatus { average_value: Some(amount(proposal.usage, "")), ..MetricValueStatus::default() };
        let status = MetricStatus {
            type_: "Pods".to_owned(),
            pods: Some(PodsMetricStatus { metric: source.metric.clone(), current }),
            ..MetricStatus::default()
        };
        Ok((proposal, format!("pods metric {name}"), status))
    }

    async fn object(&self, source: &ObjectMetricSource) -> Asked {
        let (metric, described) = (&source.metric, &source.described_object);
        let selector = parse(metric.selector.as_ref())?;
        let value = self.object_value(described, &metric.name, &selector).await.map_err(|why| {
            let CrossVersionObjectReference { kind, name, .. } = described;
            // Upstream has these in this order.
            format!("unable to get metric {}: {kind} on {} {name}/{why}", metric.name, self.namespace)
        });
        let mut current = MetricValueStatus::default();
        let (proposal, name) = match (source.target.type_.as_str(), &source.target.value, &source.target.average_value)
        {
            ("Value", Some(target), _) => {
                let proposal = by_value(value?, milli(target), self.pods, self.spec_replicas, self.tolerances)?;
                current.value = Some(amount(proposal.usage, ""));
                (proposal, format!("{} metric {}", described.kind, metric.name))
            }
            ("AverageValue", _, Some(target)) => {
                let before = format!("failed to get {} object metric: ", metric.name);
                let value = value.map_err(|message| Why { before, message })?;
                let proposal = by_average(value, milli(target), self.status_replicas, self.tolerances);
                current.average_value = Some(amount(proposal.usage, ""));
                (proposal, format!("external metric {}({})", metric.name, shown(metric.selector.as_ref())))
            }
            _ => {
                return Err(
                    "invalid object metric source: neither a value target nor an average value target was set".into()
                );
            }
        };
        let object = ObjectMetricStatus { described_object: described.clone(), metric: metric.clone(), current };
        let status = MetricStatus { type_: "Object".to_owned(), object: Some(object), ..MetricStatus::default() };
        Ok((proposal, name, status))
    }

    async fn object_value(
        &self,
        described: &CrossVersionObjectReference,
        metric: &str,
        selector: &Selector,
    ) -> Result<i64, String> {
        let api_version = described.api_version.as_deref().unwrap_or_default();
        let group_version = api_version.parse::<GroupVersion>().map_err(|error| error.to_string())?;
        let resource = self.kinds.resource(self.client, &group_version, &described.kind).await?;
        let resource = (&group_version, resource.resource.as_ref());
        metrics::object(self.client, self.namespace, resource, &described.name, metric, selector).await
    }

    async fn external(&self, source: &ExternalMetricSource) -> Asked {
        let metric = &source.metric;
        let (name, shown) = (&metric.name, shown(metric.selector.as_ref()));
        let selector = parse(metric.selector.as_ref())?;
        let value = metrics::external(self.client, self.namespace, name, &selector).await;
        let value =
            value.map_err(|why| format!("unable to get external metric {}/{name}/{shown}: {why}", self.namespace));
        let mut current = MetricValueStatus::default();
        let proposal = match (&source.target.average_value, &source.target.value) {
            (Some(target), _) => {
                let before = format!("failed to get {name} external metric: ");
                let value = value.map_err(|message| Why { before, message })?;
                let proposal = by_average(value, milli(target), self.status_replicas, self.tolerances);
                current.average_value = Some(amount(proposal.usage, ""));
                proposal
            }
            (None, Some(target)) => {
                let before = format!("failed to get external metric {name}: ");
                let proposal = value
                    .and_then(|value| by_value(value, milli(target), self.pods, self.spec_replicas, self.tolerances))
                    .map_err(|message| Why { before, message })?;
                current.value = Some(amount(proposal.usage, ""));
                proposal
            }
            (None, None) => {
                return Err(
                    "invalid external metric source: neither a value target nor an average value target was set".into(),
                );
            }
        };
        let external = Some(ExternalMetricStatus { metric: metric.clone(), current });
        let status = MetricStatus { type_: "External".to_owned(), external, ..MetricStatus::default() };
        Ok((proposal, format!("external metric {name}({shown})"), status))
    }
}

fn unknown(spec: &MetricSpec) -> Failed {
    let message = format!("unknown metric source type {:?}", spec.type_);
    Failed { reason: "InvalidMetricSourceType", error: message.clone(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_print_as_in_go() {
        let selector: MetaLabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        }))
        .unwrap();
        assert_eq!(shown(None), "nil");
        assert_eq!(
            shown(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement\
             {LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
    }
}
