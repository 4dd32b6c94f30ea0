//! [`Sheet`]: named values that are printed as the lines of a C tool, or as JSON.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Text, and the values in it by name.
#[derive(Debug, Default)]
pub struct Sheet {
    text: String,
    fields: Vec<(&'static str, Data)>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Data {
    Value(Value),
    Sheets(Vec<Sheet>),
}

impl Sheet {
    /// Adds text that has no value.
    pub fn text(&mut self, text: impl Display) {
        self.text.push_str(&text.to_string());
    }

    /// Adds a value with its text; the text may have several lines.
    pub fn field(&mut self, name: &'static str, value: impl Into<Value>, text: impl Display) {
        self.text(text);
        self.fields.push((name, Data::Value(value.into())));
    }

    /// Adds sheets, one text behind the other.
    pub fn sheets(&mut self, name: &'static str, sheets: Vec<Self>) {
        sheets.iter().for_each(|sheet| self.text(&sheet.text));
        self.fields.push((name, Data::Sheets(sheets)));
    }

    /// Returns the text.
    pub fn as_text(&self) -> &str {
        &self.text
    }
}

/// The values by name, in their order.
impl Serialize for Sheet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields.iter().map(|(name, data)| (name, data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_is_text_and_json_of_the_same_order() {
        let mut port = Sheet::default();
        port.field("port", 1, "\tport:\t1\n");
        let mut sheet = Sheet::default();
        sheet.field("name", "mlx5_0", "name: mlx5_0\n");
        sheet.text("\n");
        sheet.sheets("ports", vec![port]);
        assert_eq!(sheet.as_text(), "name: mlx5_0\n\n\tport:\t1\n");
        assert_eq!(serde_json::to_string(&sheet).unwrap(), r#"{"name":"mlx5_0","ports":[{"port":1}]}"#);
    }
}
