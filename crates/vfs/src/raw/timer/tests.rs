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
                    // One in a few is due after the wheel's round.
                    let tick = at + 1 + (random(&mut state) >> (12 + random(&mut state) % 52));
                    wheel.insert(NonNull::from(&*timers[n]), tick);
                    model[n] = Some(tick);
                }
                2 => {
                    wheel.remove(&timers[n]);
                    model[n] = None;
                }
                _ => {
                    at += random(&mut state) >> (12 + random(&mut state) % 52);
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
                    assert!(
                        next.is_none_or(|next| next > at && next <= *first.unwrap()),
                        "not too late"
                    );
                }
            }
        }
        timers.iter().for_each(|timer| wheel.remove(timer));
        assert!(wheel.next().is_none());
    }
}

/// What is due later than the wheel can tell lies where it does not keep the wheel from others, and is rung in its time all the same.
#[test]
fn a_wheel_has_an_end() {
    let slot = ROUND / SLOTS as u64;
    for start in
        [0, 1, 63, 66_000_000_000, slot - 1, slot, slot + 1, ROUND - 1, ROUND, ROUND + 5 * slot + 7]
    {
        for far in [ROUND - slot - 1, ROUND - slot, ROUND - 1, ROUND, u64::MAX / 2 - start] {
            let (late, soon) = (Box::new(Timer::new()), Box::new(Timer::new()));
            let mut wheel = Wheel::new(start).unwrap();
            wheel.insert(NonNull::from(&*late), start + far);
            wheel.insert(NonNull::from(&*soon), start + 5);
            let mut due: Vec<*const Timer> = Vec::new();
            assert!(wheel.advance(start + 4, |timer| due.push(timer)).is_some());
            assert!(due.is_empty());
            assert!(
                wheel.advance(start + 6, |timer| due.push(timer)).is_some(),
                "the late one is in"
            );
            assert_eq!(due, [&raw const *soon]);
            let (end, time) = (wheel.last(), start + far);
            assert!(end >= start + ROUND - slot);
            for before in [end.min(time - 1), time - 1] {
                assert!(
                    wheel.advance(before, |timer| due.push(timer)).is_some(),
                    "it is in, and not due"
                );
                assert_eq!(due, [&raw const *soon]);
            }
            assert!(wheel.advance(time, |timer| due.push(timer)).is_none());
            assert_eq!(due, [&raw const *soon, &raw const *late]);
        }
    }
}
