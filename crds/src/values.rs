//! Small types that several components share: durations, sizes, secrets, references.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, collections::BTreeMap, time};

/// A span of time, written as `500ms`, `30s`, `5m` or `1h30m` (the syntax of Go, without signs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub time::Duration);

/// Units and their seconds; `ms` before `m`, which it begins with.
const DURATION_UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

impl Duration {
    /// That many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(time::Duration::from_millis(millis))
    }

    /// That many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(time::Duration::from_secs(seconds))
    }

    /// Reads what the rule of the schema allows, and no more than the standard library can hold.
    fn parse(text: &str) -> Option<Self> {
        let mut total = time::Duration::ZERO;
        let mut rest = text;
        while !rest.is_empty() {
            let (number, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
            let (unit, seconds) = DURATION_UNITS.into_iter().find(|(name, _)| unit.starts_with(name))?;
            if !number.starts_with(|c: char| c.is_ascii_digit()) || !number.ends_with(|c: char| c.is_ascii_digit()) {
                return None;
            }
            let part = time::Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
            total = total.checked_add(part)?;
            rest = &rest[number.len() + unit.len()..];
        }
        (!text.is_empty()).then_some(Self(total))
    }

    /// The span as the standard library's type.
    pub const fn get(self) -> time::Duration {
        self.0
    }
}

impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        match () {
            () if self.0.subsec_nanos() != 0 => write!(f, "{}ms", self.0.as_millis()),
            () if seconds > 0 && seconds.is_multiple_of(3600) => write!(f, "{}h", seconds / 3600),
            () if seconds > 0 && seconds.is_multiple_of(60) => write!(f, "{}m", seconds / 60),
            () => write!(f, "{seconds}s"),
        }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("\"{text}\" is not a duration; write for example 500ms, 30s, 5m or 1h30m")))
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 32, "x-kubernetes-validations": [{
            "rule": r"self.matches('^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$')",
            "message": "not a duration; write for example 500ms, 30s, 5m or 1h30m",
            "messageExpression": "'\"' + self + '\" is not a duration; write for example 500ms, 30s, 5m or 1h30m'"}]})
    }
}

/// An amount of bytes, written as a Kubernetes quantity: `512Ki`, `64Mi`, `2Gi`, or a plain number of bytes in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

impl ByteSize {
    /// That many mebibytes.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, factor) =
            SIZE_UNITS.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor))).unwrap_or((text, 1));
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self);
        }
        let fraction = number.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| number.parse::<f64>().ok())??;
        Some(Self((fraction * factor as f64) as u64))
    }
}

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = SIZE_UNITS[..4].iter().rev().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match unit {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("\"{text}\" is not a size; write for example 512Ki, 64Mi or 2Gi")))
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 24, "x-kubernetes-validations": [{
            "rule": r"self.matches('^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$')",
            "message": "not a size; write for example 512Ki, 64Mi or 2Gi",
            "messageExpression": "'\"' + self + '\" is not a size; write for example 512Ki, 64Mi or 2Gi'"}]})
    }
}

/// A JSON object whose content no schema describes. Only below atomic lists, where it cannot switch off
/// the API server's tolerance for rules that come later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeObject(pub serde_json::Map<String, serde_json::Value>);

impl JsonSchema for FreeObject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "FreeObject".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// A Kubernetes quantity that may be a number (`cpu: 2`) or text (`500m`, `256Mi`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub k8s_openapi::apimachinery::pkg::util::intstr::IntOrString);

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"})
    }
}

/// A key of a Secret in the same namespace. Locally it is read from `--secrets-dir DIR/NAME/KEY` or the
/// environment variable `PENSTOCK_SECRET_<NAME>_<KEY>` (upper case, other characters `_`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[.]?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$"))]
    pub key: String,
}

/// Where a credential comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialSource {
    /// A key of a Secret.
    pub secret_key_ref: SecretKeyRef,
}

/// A credential: taken from a Secret, never written into the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// Where the value comes from.
    pub value_from: CredentialSource,
}

/// An object of the same namespace, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// CPU and memory of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the pod is guaranteed, for example `{cpu: 500m, memory: 128Mi}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,
    /// What the pod may not exceed, for example `{memory: 256Mi}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Quantity>,
}

/// How a value is written to a field that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateMode {
    /// Replace what is there.
    #[default]
    Overwrite,
    /// Add to what is there; a single value becomes a list.
    Append,
    /// Leave what is there.
    Skip,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_quantities() {
        for (text, bytes) in [
            ("5Mi", Some(5 << 20)),
            ("64Ki", Some(65_536)),
            ("1.5k", Some(1_500)),
            ("12", Some(12)),
            ("", None),
            ("-1Ki", None),
            ("5 MB", None),
            ("1e3", None),
        ] {
            assert_eq!(ByteSize::parse(text).map(ByteSize::bytes), bytes, "{text}");
        }
    }

    #[test]
    fn durations_survive_a_round_trip() {
        for text in ["500ms", "30s", "5m", "24h", "0s"] {
            let parsed: Duration = serde_json::from_value(text.into()).expect(text);
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn durations_are_read_as_the_rule_allows_and_never_overflow() {
        let too_long = format!("{}h", "9".repeat(20));
        for (text, millis) in [
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1_500)),
            ("2m500ms", Some(120_500)),
            ("", None),
            ("5", None),
            ("90 sec", None),
            ("-5s", None),
            ("1.s", None),
            (".5s", None),
            ("1.2.3s", None),
            ("1d", None),
            (too_long.as_str(), None),
        ] {
            let parsed = Duration::parse(text).map(|duration| duration.get().as_millis());
            assert_eq!(parsed, millis, "{text}");
        }
    }
}
