//! One suite of verbs cases for every device and wire.
