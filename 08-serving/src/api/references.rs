//! Schemas inside another schema, with their references.
//!
//! `{"$ref": "#/$defs/City"}` means the `City` of the document that it stands in, counted from that document's root.
//! Functions' parameters are documents of their own, and a call is held to one schema of all functions. So each of them
//! becomes a definition of that schema, under its function's name, and what its references point at is found there:
//! `#/$defs/weather/$defs/City`.

use serde_json::{Map, Value, json};

/// Schemas by name, to be put into one.
pub(super) struct Definitions(Vec<(String, Value)>);

/// Words whose values are schemas by names of their own.
const SCHEMAS_BY_NAME: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Words whose values are JSON of any kind, and no schemas.
const JSON: [&str; 4] = ["const", "enum", "default", "examples"];

impl Definitions {
    /// These schemas, each with its name, which must be letters that a JSON pointer has as they are.
    pub(super) fn of<'a>(named: impl Iterator<Item = (&'a str, Value)>) -> Self {
        let one = |(name, mut schema): (&str, Value)| {
            // Here it is known by its name, and what points at it by its identifier is told so.
            let id = schema.as_object_mut().and_then(|fields| fields.remove("$id"));
            let id = id.as_ref().and_then(Value::as_str).unwrap_or_default();
            moved(&mut schema, id.trim_end_matches('#'), &format!("#/$defs/{name}"));
            (name.to_owned(), schema)
        };
        Definitions(named.map(one).collect())
    }

    /// A schema of any of them; `around` is what stands around each, given its name and what refers to it.
    pub(super) fn schema(self, around: impl Fn(&str, Value) -> Value) -> Value {
        let one =
            |(name, _): &(String, Value)| around(name, json!({"$ref": format!("#/$defs/{name}")}));
        let any: Vec<Value> = self.0.iter().map(one).collect();
        json!({"anyOf": any, "$defs": self.0.into_iter().collect::<Map<String, Value>>()})
    }
}

/// Makes a schema that was a document, identified so, the part of another that `root` points at.
fn moved(schema: &mut Value, id: &str, root: &str) {
    match schema {
        Value::Array(several) => several.iter_mut().for_each(|schema| moved(schema, id, root)),
        // What has an identifier of its own is a document wherever it stands.
        Value::Object(fields) if !fields.get("$id").is_some_and(Value::is_string) => {
            for (word, value) in fields {
                match (&**word, value) {
                    ("$ref", Value::String(reference)) => {
                        // `#` is the whole document. A name (`#city`) is not counted from the root.
                        let inside = reference.strip_prefix(id).unwrap_or(reference);
                        if matches!(inside, "" | "#") || inside.starts_with("#/") {
                            *reference = format!("{root}{}", inside.trim_start_matches('#'));
                        }
                    }
                    (word, Value::Object(named)) if SCHEMAS_BY_NAME.contains(&word) => {
                        named.values_mut().for_each(|schema| moved(schema, id, root));
                    }
                    (word, value) if !JSON.contains(&word) => moved(value, id, root),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_find_what_they_found_before() {
        let nested = json!({
            "$id": "https://example.com/f",
            "properties": {
                "all": {"$ref": "#"}, "one": {"items": [{"$ref": "#/properties/a%20b"}]},
                "named": {"$ref": "#city"}, "elsewhere": {"$ref": "https://example.com/#/x"},
                // Properties may be called what words of schemas are.
                "$ref": {"type": "string"}, "enum": {"$ref": "#/$defs/City"},
                // And what is no schema may look like one.
                "data": {"const": {"$ref": "#/a"}, "default": {"$ref": "#"}},
                "whole": {"$ref": "https://example.com/f"}, "part": {"$ref": "https://example.com/f#/x"},
                "other": {"$ref": "https://example.com/f2#/x"},
                "own": {"$id": "https://example.com/own", "items": {"$ref": "#/x"}},
            },
            "$defs": {"City": {"anyOf": [{"$ref": "#/$defs/City"}, true]}},
        });
        let schema = Definitions::of([("f", nested.clone())].into_iter())
            .schema(|name, schema| json!({"title": name, "not": schema}));
        assert_eq!(schema["anyOf"], json!([{"title": "f", "not": {"$ref": "#/$defs/f"}}]));
        let moved = &schema["$defs"]["f"];
        let is = |pointer: &str, expected: &str| {
            assert_eq!(moved.pointer(pointer).unwrap(), expected, "{pointer}");
        };
        is("/properties/all/$ref", "#/$defs/f");
        is("/properties/one/items/0/$ref", "#/$defs/f/properties/a%20b");
        is("/properties/enum/$ref", "#/$defs/f/$defs/City");
        is("/$defs/City/anyOf/0/$ref", "#/$defs/f/$defs/City");
        is("/properties/whole/$ref", "#/$defs/f");
        is("/properties/part/$ref", "#/$defs/f/x");
        for as_it_was in ["named", "elsewhere", "other", "$ref", "data", "own"] {
            assert_eq!(moved["properties"][as_it_was], nested["properties"][as_it_was]);
        }
    }
}
