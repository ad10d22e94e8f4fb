//! Which flow schema and priority level a request belongs to. Requests are told apart here and nothing more: none waits
//! and none is refused.

mod rules;
#[cfg(test)]
mod tests;

pub(crate) mod status;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use capstan_api::{Map, Str};
use http::{HeaderMap, HeaderName, HeaderValue};

use self::rules::Rule;
use crate::{authorization::Attributes, validation::read};

/// The header that names the flow schema.
pub const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
/// The header that names the priority level.
pub const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// The schema for what no other takes.
const CATCH_ALL: &str = "catch-all";
/// The precedence of a schema that does not say.
const DEFAULT_PRECEDENCE: i64 = 1000;

/// Where a request belongs.
#[derive(Debug, PartialEq, Eq)]
pub struct Flow {
    /// The name of the flow schema.
    pub flow_schema: Str,
    /// The name of the priority level.
    pub priority_level: Str,
    flow_schema_uid: HeaderValue,
    priority_level_uid: HeaderValue,
}

impl Flow {
    /// Says so in the headers of the answer.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(FLOW_SCHEMA_UID, self.flow_schema_uid.clone());
        headers.insert(PRIORITY_LEVEL_UID, self.priority_level_uid.clone());
    }
}

/// What is read from a FlowSchema.
#[derive(Clone)]
struct Schema {
    precedence: i64,
    uid: HeaderValue,
    priority_level: Str,
    rules: Arc<[Rule]>,
}

#[derive(Default)]
struct Objects {
    schemas: BTreeMap<Str, Schema>,
    /// Names of priority levels and their uids.
    levels: BTreeMap<Str, HeaderValue>,
}

/// The schemas in the order in which they are asked, and the one for what none takes.
#[derive(Default)]
struct Index {
    schemas: Vec<(Arc<Flow>, Arc<[Rule]>)>,
    catch_all: Option<Arc<Flow>>,
}

/// FlowSchemas and PriorityLevelConfigurations as they are stored. Writers make a new index; requests look at the one
/// that was there when they came.
#[derive(Default)]
pub struct FlowControl {
    objects: Mutex<Objects>,
    index: RwLock<Arc<Index>>,
}

impl FlowControl {
    /// Takes note of an object that was written; others than the two kinds are left alone.
    pub fn upsert(&self, object: &Map) {
        let metadata = read::at(object, "metadata");
        let name: Str = read::text(metadata, "name").into();
        let uid = HeaderValue::from_str(read::text(metadata, "uid")).unwrap_or(HeaderValue::from_static(""));
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        match read::text(object, "kind") {
            "FlowSchema" => {
                let spec = read::at(object, "spec");
                let schema = Schema {
                    // Validation asks for 1 to 10000; zero is not set.
                    precedence: read::int(spec, "matchingPrecedence").filter(|&n| n != 0).unwrap_or(DEFAULT_PRECEDENCE),
                    uid,
                    priority_level: read::text(read::at(spec, "priorityLevelConfiguration"), "name").into(),
                    rules: read::objects(spec, "rules").map(|(_, rule)| Rule::read(rule)).collect(),
                };
                objects.schemas.insert(name, schema);
            }
            "PriorityLevelConfiguration" => _ = objects.levels.insert(name, uid),
            _ => return,
        }
        self.publish(&objects);
    }

    /// Takes note of an object that was deleted.
    pub fn remove(&self, kind: &str, name: &str) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            "FlowSchema" => _ = objects.schemas.remove(name),
            "PriorityLevelConfiguration" => _ = objects.levels.remove(name),
            _ => return,
        }
        self.publish(&objects);
    }

    fn publish(&self, objects: &Objects) {
        let mut index = Index::default();
        let mut sorted: Vec<_> = objects.schemas.iter().collect();
        // Names are sorted already, and the sort keeps their order.
        sorted.sort_by_key(|(_, schema)| schema.precedence);
        for (name, schema) in sorted {
            // A schema whose level does not exist takes nothing.
            let Some(level) = objects.levels.get(&schema.priority_level) else { continue };
            let flow = Arc::new(Flow {
                flow_schema: name.clone(),
                priority_level: schema.priority_level.clone(),
                flow_schema_uid: schema.uid.clone(),
                priority_level_uid: level.clone(),
            });
            if name == CATCH_ALL {
                index.catch_all = Some(Arc::clone(&flow));
            }
            index.schemas.push((flow, Arc::clone(&schema.rules)));
        }
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(index);
    }

    /// Where a request belongs; `None` as long as there is no catch-all.
    #[must_use]
    pub fn classify(&self, request: &Attributes<'_>) -> Option<Arc<Flow>> {
        let index = Arc::clone(&self.index.read().unwrap_or_else(PoisonError::into_inner));
        let matching = index.schemas.iter().find(|(_, rules)| rules.iter().any(|rule| rule.matches(request)));
        matching.map(|(flow, _)| flow).or(index.catch_all.as_ref()).map(Arc::clone)
    }
}
