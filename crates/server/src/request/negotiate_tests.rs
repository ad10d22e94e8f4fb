//! Negotiation against what upstream answered.

use super::*;

const ROUTE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const HANDLER: &str = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAM: &str = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

const CONFIG_MAPS: Endpoint =
    Endpoint { protobuf: Protobuf::Yes, serves: Serves::Objects { tables: true }, streams: true };

fn show(answer: Result<Negotiated, Status>) -> String {
    match answer {
        Err(status) => {
            assert_eq!((status.code, status.reason.as_str()), (406, "NotAcceptable"));
            status.message
        }
        Ok(found) => {
            let transform = found.transform.map(|transform| format!(" {transform:?}")).unwrap_or_default();
            let pretty = if found.pretty { " pretty" } else { "" };
            format!("{:?}{transform}{pretty}", found.media_type)
        }
    }
}

#[test]
fn lists_of_config_maps() {
    for (accept, expected) in [
        ("", "Json"),
        ("application/json", "Json"),
        ("*/*", "Json"),
        ("application/*", ROUTE),
        ("*", ROUTE),
        ("text/html", ROUTE),
        ("application/", ROUTE),
        ("/", ROUTE),
        ("application", ROUTE),
        ("APPLICATION/JSON", ROUTE),
        ("application/cbor", ROUTE),
        ("application/yaml", "Yaml"),
        ("application/vnd.kubernetes.protobuf", "Protobuf"),
        ("application/json;q=0.1,application/yaml", "Yaml"),
        ("application/yaml;q=0.1,*/*", "Json"),
        ("text/plain,*/*;q=0.1", "Json"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "Json Table(V1)"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1beta1", "Json Table(V1beta1)"),
        ("application/json;as=Table", HANDLER),
        ("application/json;as=Table;g=x;v=v1", HANDLER),
        ("application/json;as=Foo;g=meta.k8s.io;v=v1", HANDLER),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1", "Yaml Table(V1)"),
        ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", HANDLER),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "Json PartialObjectMetadataList(V1)"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Json PartialObjectMetadata(V1)"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "Json Table(V1)"),
        ("application/json;as=Foo;g=meta.k8s.io;v=v1,application/json", "Json"),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList",
            "Json PartialObjectMetadataList(V1)",
        ),
        ("application/json;as=\"Table\";g=meta.k8s.io;v=v1", HANDLER),
        ("application/json;stream=watch", "Json"),
        ("application/json;stream=foo", HANDLER),
        ("application/yaml;stream=watch", HANDLER),
        ("application/json;stream=foo;stream=watch", "Json"),
        ("application/json;stream= ;pretty=1", "Json pretty"),
        ("application/json;sv=v1", "Json"),
        ("application/json;sv=v2;sv=v1", "Json"),
        ("application/json;sv=v2", HANDLER),
        ("application/json;v=v1", HANDLER),
        ("application/json ; pretty=1", "Json pretty"),
        ("application/json;q=0", "Json"),
        ("application/json;q=x,application/yaml;q=0.5", "Yaml"),
        ("application/json;foo=bar", "Json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", "Json"),
        (",,application/yaml", "Yaml"),
    ] {
        let answer = CONFIG_MAPS.check_accept(accept).and_then(|()| CONFIG_MAPS.negotiate(accept));
        assert_eq!(show(answer), expected, "{accept}");
    }
}

#[test]
fn streams() {
    for (accept, expected) in [
        ("", "application/json"),
        ("application/json;stream=watch", "application/json"),
        ("application/yaml", STREAM),
        ("application/yaml,application/json", STREAM),
        ("application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf;stream=watch"),
        ("*/*", "application/json"),
    ] {
        let answer = CONFIG_MAPS.negotiate_stream(accept);
        let said = answer.map_or_else(|status| status.message, |found| found.stream_content_type().to_owned());
        assert_eq!(said, expected, "{accept}");
    }
}

#[test]
fn what_endpoints_do_not_do() {
    let protobuf = "application/vnd.kubernetes.protobuf";
    let either = "application/vnd.kubernetes.protobuf,application/json";
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let found = "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2";
    let beta = "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2beta1";
    let without = "only the following media types are accepted: application/json, application/yaml";
    let custom = Endpoint { protobuf: Protobuf::Transforms, ..CONFIG_MAPS };
    let plain = Endpoint { protobuf: Protobuf::No, ..CONFIG_MAPS };
    let review = Endpoint { serves: Serves::Objects { tables: false }, ..CONFIG_MAPS };
    let documents = Endpoint { serves: Serves::Documents, ..CONFIG_MAPS };
    let aggregated = Endpoint { serves: Serves::AggregatedDiscovery, ..CONFIG_MAPS };
    for (endpoint, accept, expected) in [
        (plain, either, "Json"),
        (plain, protobuf, without),
        (custom, either, "Json"),
        (custom, protobuf, HANDLER),
        (custom, metadata, "Protobuf PartialObjectMetadata(V1)"),
        (review, table, HANDLER),
        (documents, table, HANDLER),
        (documents, beta, HANDLER),
        (documents, "application/json;sv=v1", HANDLER),
        (aggregated, "", HANDLER),
        (aggregated, "*/*", HANDLER),
        (aggregated, beta, HANDLER),
        (aggregated, found, "Json AggregatedDiscovery"),
        (aggregated, &format!("{found};profile=nopeer,{beta},application/json"), "Json AggregatedDiscovery"),
    ] {
        assert_eq!(show(endpoint.negotiate(accept)), expected, "{accept}");
    }
    let answer = aggregated.negotiate(found).unwrap();
    let expected = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(answer.content_type(), expected);
}

#[test]
fn the_refusal_of_a_route() {
    let status = check_route("application/yaml", &["application/json"]).unwrap_err();
    assert_eq!(status.message, "406: Not Acceptable\n\nAvailable representations: application/json");
    assert_eq!(status.details, Some(Box::default()));
}

#[test]
fn indentation() {
    for (query, agents) in [
        ("", [true, true, true, false, false]),
        ("pretty=false", [false; 5]),
        ("pretty=1", [true; 5]),
        ("pretty=x", [false; 5]),
        ("pretty=", [true, true, true, false, false]),
        ("prett%79=true", [true, true, true, false, false]),
        ("prett%79=true&pretty", [true; 5]),
    ] {
        let shown = ["curl/8", "Wget/1", "Mozilla/5.0 x", "wget", "kubectl"]
            .map(|agent| is_pretty(query, &Query::parse(query), agent));
        assert_eq!(shown, agents, "{query}");
    }
}
