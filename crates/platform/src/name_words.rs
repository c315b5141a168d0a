//! Names for the words of hot structures, for whoever looks at lines.

/// `name_words!(object => "Type" { field, other })`: in a simulation, the words of `object`'s fields are called
/// `Type.field` and so on from here on. `name_words!(value, "Type.field")` names a value as a whole. In every other build it is nothing, and `object` is not evaluated.
#[cfg(quietline_sim)]
#[macro_export]
macro_rules! name_words {
    ($value:expr, $name:literal) => {{
        let value = &$value;
        let bytes = ::core::mem::size_of_val(value);
        $crate::sim::name(::core::ptr::from_ref(value).cast::<u8>().addr(), bytes, $name);
    }};
    ($object:expr => $type:literal { $($field:ident),* $(,)? }) => {{
        let object = &$object;
        $(
            let field = &object.$field;
            $crate::sim::name(
                ::core::ptr::from_ref(field).cast::<u8>().addr(),
                ::core::mem::size_of_val(field),
                concat!($type, ".", stringify!($field)),
            );
        )*
    }};
}

/// `name_words!(object => "Type" { field, other })`: in a simulation, the words of `object`'s fields are called
/// `Type.field` and so on from here on. `name_words!(value, "Type.field")` names a value as a whole. In every other build it is nothing, and `object` is not evaluated.
#[cfg(not(quietline_sim))]
#[macro_export]
macro_rules! name_words {
    ($value:expr, $name:literal) => {};
    ($object:expr => $type:literal { $($field:ident),* $(,)? }) => {};
}
