//! What a cache is asked to be, at random.

use super::raw::{self, HOOKED};
use crate::input::Input;
use quietline_slab::{Debug, MAX_OBJECT, Merge, Options, Tunables};
use quietline_sync::rcu;

/// What is kept of an object between its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// Its bytes: there is a constructor.
    Constructed,
    /// And a destructor.
    Ends,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) options: Options,
}

/// Many small ones, as checking large ones takes long.
const SIZES: [usize; 24] = [
    0, 1, 4, 7, 8, 8, 12, 16, 20, 24, 32, 40, 64, 64, 100, 128, 192, 192, 256, 320, 600, 1000,
    4096, 9000,
];
const LARGE: [usize; 3] = [2048, 12_000, MAX_OBJECT];

impl Plan {
    pub(crate) fn read(input: &mut Input<'_>, name: &'static str) -> Self {
        let kind =
            input.pick(&[Kind::Plain, Kind::Plain, Kind::Plain, Kind::Constructed, Kind::Ends]);
        let size = match kind {
            Kind::Plain if input.one_in(30) => input.pick(&LARGE),
            Kind::Plain => input.pick(&SIZES),
            _ => input.pick(&HOOKED),
        };
        let tunables = tunables(input);
        let mut options = Options {
            sheaves: !input.one_in(8),
            merge: input.pick(&[Merge::Default, Merge::Never, Merge::Always]),
            min_objects: tunables.min_objects,
            min_order: tunables.min_order,
            min_partial: tunables.min_partial,
            cpu_partial: tunables.cpu_partial,
            sheaf_capacity: tunables.sheaf_capacity,
            look_ahead: tunables.look_ahead,
            ..Options::new(name, size, 1 << input.below(8))
        };
        if kind != Kind::Plain {
            let hooks = raw::hooks(size);
            options.ctor =
                Some(if kind == Kind::Ends { hooks.construct_once } else { hooks.construct });
            options.dtor = (kind == Kind::Ends).then_some(hooks.destroy);
            options.release = input.one_in(2).then_some(hooks.release);
            if input.one_in(2) {
                options.typesafe = Some(rcu::global().expect("memory for the domain"));
            }
            if input.one_in(3) {
                options.link_offset = Some(8 + input.below((size - 8) / 4) * 4);
            }
        }
        Self { kind, options }
    }
}

/// Any checks; none that are slow, most of the time.
pub(crate) fn checks(input: &mut Input<'_>) -> Debug {
    if input.one_in(20) {
        Debug::ALL
    } else {
        Debug::from_bits_truncate(input.byte() as u8) - Debug::TRACK
    }
}

/// Any tunables; zeros are defaults.
pub(crate) fn tunables(input: &mut Input<'_>) -> Tunables {
    Tunables {
        min_objects: input.pick(&[0, 0, 1, 2, 9, 40, 300]),
        min_order: input.pick(&[0, 0, 0, 1, 2, 3, 4, 9]),
        min_partial: input.pick(&[5, 5, 0, 1, 3, 50]),
        cpu_partial: input.pick(&[0, 0, 1, 2, 7, 30, 1000]),
        sheaf_capacity: input.pick(&[0, 0, 1, 2, 3, 5, 13, 40, 700]),
        look_ahead: input.pick(&[0, 0, 1, 2, 10]),
    }
}

/// Whether what is in force is what was asked for: anything for a default, less only where documented.
pub(crate) fn in_force(asked: Tunables, now: Tunables) -> bool {
    let is = |asked: usize, now: usize| if asked == 0 { now > 0 } else { asked == now };
    is(asked.min_objects, now.min_objects)
        && now.min_order == asked.min_order.min(4)
        && now.min_partial == asked.min_partial
        && is(asked.cpu_partial.min(now.sheaf_capacity), now.cpu_partial)
        && now.cpu_partial <= now.sheaf_capacity
        && is(asked.sheaf_capacity, now.sheaf_capacity)
        && is(asked.look_ahead, now.look_ahead)
}
