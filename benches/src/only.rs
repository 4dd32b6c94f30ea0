//! The rows that a run is limited to.

/// The flag that limits a run to some rows.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct OnlyArgs {
    /// Only rows whose names contain this, in capitals or not.
    #[arg(long, default_value = "")]
    only: String,
}

impl OnlyArgs {
    /// Whether a row is wanted.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.only.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_do_not_matter() {
        let only = OnlyArgs { only: "kv".to_owned() };
        assert!(only.has("KV in 80 tensors") && !only.has("all-reduce of 8 B"));
        assert!(OnlyArgs::default().has("any row"));
    }
}
