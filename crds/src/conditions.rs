//! Conditions, reasons and phases.
