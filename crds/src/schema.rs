//! From the types to CRDs.
