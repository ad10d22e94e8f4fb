//! Pods of 4 KB each as JSON, of which who manages which fields is about a third; and a source of them in this process,
//! so that what is counted is the informer's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use capstan_api::{GroupVersionKind, Status, options::ListOptions, watch_event::WatchEvent};
use capstan_client::{BoxFuture, Error, ListPage, ListerWatcher, Watch, WatchStream};

const PAGE: usize = 500;

/// Who manages which fields of a pod of a Deployment.
const MANAGED: &str = r#"{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",
"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},
"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"6f0c5b8e\"}":{}}},
"f:spec":{"f:containers":
{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"MODE\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},
"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},
"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},
"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},
"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},
"f:terminationGracePeriodSeconds":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1",
"time":"2026-01-01T00:00:09Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":
{".":{},"f:status":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}},
"subresource":"status"}"#;

pub(crate) fn pod(at: usize) -> String {
    let managed = MANAGED.replace('\n', "");
    let text = format!(
        r#"{{"metadata":{{"name":"web-7d4b9c6f5d-{at:06}","generateName":"web-7d4b9c6f5d-","namespace":"shop-{}",
"uid":"0b3c1f7e-5a52-4c8a-9b6a-{at:012}","resourceVersion":"{at}","creationTimestamp":"2026-01-01T00:00:00Z",
"labels":{{"app":"web","pod-template-hash":"7d4b9c6f5d"}},
"annotations":{{"checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
"prometheus.io/path":"/metrics","prometheus.io/port":"8080","prometheus.io/scrape":"true",
"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}},
"ownerReferences":[{{"apiVersion":"apps/v1",
"kind":"ReplicaSet",
"name":"web-7d4b9c6f5d","uid":"6f0c5b8e-1f5c-4d1c-8d0c-111111111111","controller":true,"blockOwnerDeletion":true}}],
"managedFields":[{managed}]}},"spec":{{"volumes":[{{"name":"kube-api-access-x7k2p","projected":{{"sources":[
{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt",
"items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"web",
"image":"registry.example.com/shop/web:1.27.3","ports":[{{"containerPort":8080,"protocol":"TCP"}}],
"env":[{{"name":"MODE","value":"production"}}],"resources":{{"limits":{{"memory":"256Mi"}},
"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"kube-api-access-x7k2p","readOnly":true,
"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"terminationMessagePath":"/dev/termination-log",
"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always",
"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default",
"nodeName":"node-{}","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[
{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},
{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],
"priority":0,
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[
{{"type":"Initialized","status":"True","lastTransitionTime":"2026-01-01T00:00:01Z"}},
{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:09Z"}},
{{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}],"hostIP":"10.1.0.7",
"podIP":"10.2.3.4","podIPs":[{{"ip":"10.2.3.4"}}],"startTime":"2026-01-01T00:00:01Z",
"containerStatuses":[{{"name":"web",
"state":{{"running":{{"startedAt":"2026-01-01T00:00:08Z"}}}},"lastState":{{}},"ready":true,"restartCount":0,
"image":"registry.example.com/shop/web:1.27.3",
"imageID":"registry.example.com/shop/web@sha256:0000000000000000000000000000000000000000000000000000000000000000",
"containerID":"containerd://{at:064}","started":true}}],"qosClass":"Burstable"}}}}"#,
        at % 50,
        at % 100,
    );
    text.replace('\n', "")
}

/// So many pods. How often all of them were listed is counted.
#[derive(Debug)]
pub(crate) struct Pods {
    pub(crate) count: usize,
    pub(crate) lists: Arc<AtomicUsize>,
}

impl ListerWatcher for Pods {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move {
            let from = options.continue_token.parse().unwrap_or(0);
            let to = (from + PAGE).min(self.count);
            let mut continue_token = String::new();
            if to < self.count {
                continue_token = to.to_string();
            } else {
                self.lists.fetch_add(1, Ordering::SeqCst);
            }
            Ok(ListPage {
                item_kind: Some(GroupVersionKind::new("", "v1", "Pod")),
                resource_version: self.count.to_string(),
                continue_token,
                items: (from..to).map(|at| Bytes::from(pod(at))).collect(),
                is_protobuf: false,
            })
        })
    }

    fn watch(&self, _: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async { Ok(WatchStream::new(Expired)) })
    }
}

/// A watch that says that its version is gone, so that everything is listed again.
struct Expired;

impl Watch for Expired {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        Poll::Ready(Some(Err(Status::resource_expired("too old resource version").into())))
    }
}

/// What the process takes of the machine's memory, and the most it ever took, in KB.
pub(crate) fn resident() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|kb| kb.parse().ok()).unwrap_or(0)
    };
    (of("VmRSS:"), of("VmHWM:"))
}
