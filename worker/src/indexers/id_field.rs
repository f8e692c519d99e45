//! The field or column of a file that receives the id, next to a field of the document that has the same name.

use super::{Projection, Rejected};
use crate::document::{Document, Value};

/// A field of the document that is called like the field for the id must say the same, or one of both would be lost.
pub(super) fn check_id_field(document: &Document, id_name: &str, id: &str, projection: &Projection) -> Result<(), Rejected> {
    let Some(value) = document.fields().get(id_name) else { return Ok(()) };
    let same = match value {
        Value::Text(text) => text == id,
        Value::Int(number) => number.to_string() == id,
        Value::Uint(number) => number.to_string() == id,
        Value::Bool(flag) => flag.to_string() == id,
        _ => false,
    };
    if same || !projection.fields(document).any(|(key, _)| key == id_name) {
        return Ok(());
    }
    Err(Rejected(format!("the field `{id_name}` is not the id `{id}`, which is written under that name: set idName to another name")))
}
