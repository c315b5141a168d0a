//! Operations as steps: the contract executed by a back end that keeps other threads out meanwhile.

/// One operation on the words from an index on, by name.
macro_rules! operate {
    ($area:expr, $index:expr, $name:ident($($argument:expr),*)) => {{
        // Some contracts ask nothing of the caller, and then their steps are safe.
        #[allow(unused_unsafe)]
        // SAFETY: the step's words are ours while it lasts; the rest is the caller's promise.
        $crate::backend::percpu::step(&$area, |words| unsafe { words.$name($index, $($argument),*) })
    }};
}

/// The same: the operation has one body here.
macro_rules! operate_restartable {
    ($area:expr, $index:expr, $name:ident($($argument:expr),*), $missing:expr) => {
        $crate::percpu::step::operate!($area, $index, $name($($argument),*))
    };
}

pub(crate) use {operate, operate_restartable};
