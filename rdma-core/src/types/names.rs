//! Names of the numbers that devices report.

/// Gives an integer newtype its constants, and prints each by a text. A number without a name is printed behind
/// `$kind`.
macro_rules! names {
    ($type:ident, $kind:literal: $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($number);)*
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str($text),)*
                    Self(other) => write!(f, concat!($kind, " {}"), other),
                }
            }
        }
    };
}

pub(super) use names;
