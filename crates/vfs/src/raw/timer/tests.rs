//! The wheel against a sorted list.

use super::*;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

#[test]
fn a_wheel_is_a_sorted_list() {
    for seed in 0..200 {
        let mut state = seed;
        let timers: Vec<_> = (0..40).map(|_| Box::new(Timer::new())).collect();
        let start = random(&mut state) >> (20 + seed % 30);
        let mut wheel = Wheel::new(start).unwrap();
        let mut model: Vec<Option<u64>> = vec![None; timers.len()];
        let mut at = start;
        for _ in 0..600 {
            let n = random(&mut state) as usize % timers.len();
            match random(&mut state) % 4 {
                0 | 1 => {
                    wheel.remove(&timers[n]);
                    let tick = at + 1 + (random(&mut state) >> (24 + random(&mut state) % 40));
                    let tick = tick.min(wheel.now + ROUND - 1);
                    wheel.insert(NonNull::from(&*timers[n]), tick);
                    model[n] = Some(tick);
                }
                2 => {
                    wheel.remove(&timers[n]);
                    model[n] = None;
                }
                _ => {
                    at += random(&mut state) >> (24 + random(&mut state) % 40);
                    let mut due: Vec<*const Timer> = Vec::new();
                    let next = wheel.advance(at, |timer| due.push(timer));
                    let mut expected: Vec<*const Timer> = Vec::new();
                    for (timer, tick) in timers.iter().zip(&mut model) {
                        if tick.is_some_and(|tick| tick <= at) {
                            *tick = None;
                            expected.push(&**timer);
                        }
                    }
                    due.sort();
                    expected.sort();
                    assert_eq!(due, expected);
                    let first = model.iter().flatten().min();
                    assert_eq!(next.is_some(), first.is_some());
                    assert!(next.is_none_or(|next| next > at && next <= *first.unwrap()), "not too late");
                }
            }
        }
        timers.iter().for_each(|timer| wheel.remove(timer));
        assert!(wheel.next().is_none());
    }
}
