//! Configurations that are right, and what is said of those that are not.

use super::*;

fn parse(body: &str) -> Result<SchedulerConfig, String> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{body}");
    let no_way = |_: &ExtenderConfig| Err("no way".to_owned());
    SchedulerConfig::parse(text.as_bytes(), &Registry::default(), no_way).map_err(|error| error.to_string())
}

fn plugins_at(profile: &Profile, point: Point) -> String {
    let all = profile.at(point).map(|(plugin, weight)| match point {
        Point::Score => format!("{}={weight}", plugin.name()),
        _ => plugin.name().to_owned(),
    });
    all.collect::<Vec<_>>().join(" ")
}

#[test]
fn defaults() {
    let config = parse("").unwrap();
    let expected = Profile::default();
    assert_eq!(config.profiles.len(), 1);
    assert_eq!(config.profiles[0].scheduler_name, "default-scheduler");
    for point in [Point::PreEnqueue, Point::Filter, Point::Score, Point::PostFilter, Point::Bind] {
        assert_eq!(plugins_at(&config.profiles[0], point), plugins_at(&expected, point));
    }
    assert!(plugins_at(&expected, Point::Score).starts_with("TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1"));
}

#[test]
fn sets() {
    let config = parse(
        "profiles: [{schedulerName: mine, plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, \
         weight: 7}]}, multiPoint: {disabled: [{name: DefaultPreemption}]}}}]",
    )
    .unwrap();
    assert_eq!(plugins_at(&config.profiles[0], Point::Score), "ImageLocality=7");
    assert_eq!(config.profiles[0].preemption(), None);
    let config = parse("profiles: [{plugins: {multiPoint: {enabled: [{name: ImageLocality, weight: 5}]}}}]").unwrap();
    assert!(plugins_at(&config.profiles[0], Point::Score).contains("ImageLocality=5"));
}

#[test]
fn what_is_wrong() {
    for (body, expected) in [
        ("profiles: [{plugins: {score: {enabled: [{name: Nobody}]}}}]", "Score plugin \"Nobody\" does not exist"),
        (
            "profiles: [{plugins: {multiPoint: {enabled: [{name: Nobody}]}}}]",
            "MultiPoint plugin \"Nobody\" does not exist",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodePorts}]}}}]",
            "plugin \"NodePorts\" does not extend Score plugin",
        ),
        ("profiles: [{plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}}]", "weight -1 is out of range"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName: Duplicate value: \"a\""),
        ("profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]", "at least one bind plugin is needed"),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 2",
            "must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ("extenders: [{urlPrefix: 'http://x', prioritizeVerb: p}]", "must have a positive weight applied to it"),
        ("extenders: [{urlPrefix: 'http://x', filterVerb: f}]", "extenders[0]: no way"),
        ("profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]", "[0-100]"),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]}]",
            "strategy Best is not supported",
        ),
        (
            "profiles: [{pluginConfig: [{name: DefaultPreemption, args: {minCandidates: 1}}]}]",
            "unknown field `minCandidates`",
        ),
        ("nonsense: 1", "unknown field `nonsense`"),
    ] {
        let error = parse(body).map(drop).unwrap_err();
        assert!(error.contains(expected), "{body}: {error}");
    }
    let other = SchedulerConfig::parse(b"apiVersion: v1\nkind: Pod", &Registry::default(), |_| Err(String::new()));
    assert!(other.unwrap_err().to_string().contains("no kind \"Pod\" is registered for version \"v1\""));
}
