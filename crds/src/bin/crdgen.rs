//! Writes the CRDs to `crds/generated`.

use penstock_crds::schema;
use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    fs::create_dir_all(&folder)?;
    for crd in schema::all() {
        fs::write(folder.join(format!("{}.yaml", crd.spec.names.plural)), schema::yaml(&crd))?;
    }
    Ok(())
}
