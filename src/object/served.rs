//! Objects that API servers store in a version which they no longer serve.
//!
//! CustomResourceDefinitions are the only ones: stored as `v1beta1`, served as `v1`. What follows is what
//! `apiextensions-apiserver/pkg/apis/apiextensions/v1/conversion.go` does with what has already been read.

use super::{Map, Object, Value};

/// Of `spec` in `v1beta1`, and of each version in `v1`.
const OF_VERSIONS: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("validation", "schema"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

impl Object {
    /// Converts a CustomResourceDefinition of `apiextensions.k8s.io/v1beta1` into `v1`, as which API servers and
    /// `kubectl` show it. All other objects stay as they are.
    pub fn convert_to_served_version(&mut self) {
        if self.kind() != "CustomResourceDefinition" || self.api_version() != "apiextensions.k8s.io/v1beta1" {
            return;
        }
        let Some(root) = self.value.as_object_mut() else { return };
        root.insert("apiVersion", Value::from("apiextensions.k8s.io/v1"));
        if let Some(spec) = root.get_mut("spec").and_then(Value::as_object_mut) {
            convert_spec(spec);
        }
    }
}

fn convert_spec(spec: &mut Map) {
    let version = spec.remove("version");
    if let Some(version) = version
        && spec.get("versions").and_then(Value::as_array).is_none_or(<[Value]>::is_empty)
    {
        let mut only = Map::default();
        only.insert("name", version);
        only.insert("served", Value::Bool(true));
        only.insert("storage", Value::Bool(true));
        spec.insert("versions", Value::Array(vec![Value::Object(only)]));
    }
    // A pointer in `v1beta1`, and left out of `v1` when it is false.
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    let of_all: Vec<_> = OF_VERSIONS
        .iter()
        .filter_map(|(here, there)| {
            spec.remove(here).filter(|value| *value != Value::Null).map(|value| (*there, value))
        })
        .collect();
    if let Some(Value::Array(versions)) = spec.get_mut("versions") {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            for (key, value) in &of_all {
                version.insert(key, value.clone());
            }
            if let Some(Value::Array(columns)) = version.get_mut("additionalPrinterColumns") {
                for column in columns.iter_mut().filter_map(Value::as_object_mut) {
                    rename(column, "JSONPath", "jsonPath");
                }
            }
        }
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let client_config = conversion.remove("webhookClientConfig");
        let review_versions = conversion.remove("conversionReviewVersions");
        if client_config.is_some() || review_versions.is_some() {
            let mut webhook = Map::default();
            webhook.insert("conversionReviewVersions", review_versions.unwrap_or(Value::Null));
            if let Some(client_config) = client_config {
                webhook.insert("clientConfig", client_config);
            }
            conversion.insert("webhook", Value::Object(webhook));
        }
    }
}

fn rename(map: &mut Map, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode;

    fn served(spec: &str) -> String {
        let version = "apiextensions.k8s.io/v1beta1";
        let text = format!(r#"{{"kind":"CustomResourceDefinition","apiVersion":"{version}","spec":{spec}}}"#);
        let mut object = decode(text.as_bytes()).unwrap();
        object.convert_to_served_version();
        assert_eq!(object.api_version(), "apiextensions.k8s.io/v1");
        serde_json::to_string(object.value.get("spec").unwrap()).unwrap()
    }

    /// A definition as kube-apiserver 1.36 stored it, without its metadata and status, and as `kubectl get` showed it.
    #[test]
    fn a_stored_definition_is_what_kubectl_shows() {
        let stored = r#"{"group":"stable.example.com","version":"v1","names":{"plural":"widgets",
            "singular":"widget","kind":"Widget","listKind":"WidgetList"},"scope":"Namespaced","validation":
            {"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
            "x-kubernetes-preserve-unknown-fields":true}}}},"versions":[{"name":"v1","served":true,"storage":true}],
            "conversion":{"strategy":"None"},"preserveUnknownFields":false}"#;
        let shown = concat!(
            r#"{"conversion":{"strategy":"None"},"group":"stable.example.com","names":{"kind":"Widget","#,
            r#""listKind":"WidgetList","plural":"widgets","singular":"widget"},"scope":"Namespaced","#,
            r#""versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"spec":{"type":"object","#,
            r#""x-kubernetes-preserve-unknown-fields":true}},"type":"object"}},"served":true,"storage":true}]}"#
        );
        assert_eq!(served(stored), shown);
    }

    #[test]
    fn what_all_versions_share_is_that_of_each() {
        assert_eq!(
            served(
                r#"{"versions":[{"name":"a","schema":{}},{"name":"b","additionalPrinterColumns":[{"JSONPath":".x"}]}],
                "subresources":{"status":{}},"selectableFields":[{"jsonPath":".y"}],"preserveUnknownFields":true}"#
            ),
            concat!(
                r#"{"preserveUnknownFields":true,"versions":["#,
                r#"{"name":"a","schema":{},"selectableFields":[{"jsonPath":".y"}],"subresources":{"status":{}}},"#,
                r#"{"additionalPrinterColumns":[{"jsonPath":".x"}],"name":"b","selectableFields":[{"jsonPath":".y"}],"#,
                r#""subresources":{"status":{}}}]}"#
            )
        );
        assert_eq!(
            served(r#"{"version":"v1","additionalPrinterColumns":[{"name":"x","JSONPath":".x"}]}"#),
            concat!(
                r#"{"versions":[{"additionalPrinterColumns":[{"jsonPath":".x","name":"x"}],"name":"v1","#,
                r#""served":true,"storage":true}]}"#
            )
        );
    }

    #[test]
    fn webhooks_are_a_level_deeper() {
        let before = r#"{"strategy":"Webhook","webhookClientConfig":{"url":"u"},"conversionReviewVersions":["v1"]}"#;
        let after =
            r#"{"strategy":"Webhook","webhook":{"clientConfig":{"url":"u"},"conversionReviewVersions":["v1"]}}"#;
        let spec = |conversion: &str| format!(r#"{{"conversion":{conversion}}}"#);
        assert_eq!(served(&spec(before)), spec(after));
    }

    #[test]
    fn other_objects_stay_as_they_are() {
        for text in [
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"version":"v1"}}"#,
            r#"{"kind":"CronJob","apiVersion":"batch/v1beta1","spec":{"version":"v1"}}"#,
        ] {
            let object = decode(text.as_bytes()).unwrap();
            let mut converted = object.clone();
            converted.convert_to_served_version();
            assert!(converted == object);
        }
    }
}
