//! Types that documents and rows have as texts.

/// Makes the conversions that `#[serde(into = "String", try_from = "String")]` asks for, of a type that `Display` prints
/// and `FromStr` reads.
#[macro_export]
macro_rules! text_form {
    ($of:ty) => {
        impl From<$of> for String {
            fn from(value: $of) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $of {
            type Error = <Self as ::std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    };
}
