//! Names of the variants of an enum.

/// Makes `ALL`, `name`, `by_name` and `Display` of an enum from one list of its variants and their names. An enum with a
/// variant that is not in the list does not compile.
#[macro_export]
macro_rules! enum_names {
    ($of:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $of {
            /// All variants, in the order of the list.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name of the variant.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The variant that has this name.
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.name() == name)
            }
        }

        impl ::std::fmt::Display for $of {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
