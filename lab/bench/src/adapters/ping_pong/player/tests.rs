//! What goes wrong on the way is found, and both sides end together.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;

use super::{BETWEEN_LOOKS, LAST, Lane, Player, Tally};
use crate::harness::Worker;
use quietline_platform::atomic::AtomicBool;
use std::sync::Arc;

/// Gives what it was given to give, and then back what was sent, with some bits turned.
struct Toy {
    script: RefCell<VecDeque<u8>>,
    sent: RefCell<Vec<u8>>,
    turned: u8,
}

impl Lane for Toy {
    type Error = Infallible;

    fn send(&self, byte: u8) -> Result<bool, Infallible> {
        self.sent.borrow_mut().push(byte);
        Ok(true)
    }

    fn receive(&self) -> Result<Option<u8>, Infallible> {
        let scripted = self.script.borrow_mut().pop_front();
        Ok(scripted.or_else(|| self.sent.borrow().last().map(|byte| byte ^ self.turned)))
    }
}

fn player(serves: bool, script: &[u8], turned: u8) -> Player<Toy> {
    let script = RefCell::new(script.iter().copied().collect());
    let lane = Some(Toy { script, sent: RefCell::default(), turned });
    Player { lane, serves, number: 0, done: 0, tally: Arc::new(Tally::default()) }
}

fn run(player: &mut Player<Toy>, ops: u64, stop: bool) -> Result<u64, String> {
    player.run(ops, &AtomicBool::new(stop)).map_err(|fault| fault.to_string())
}

#[test]
fn the_last_byte_says_so_and_numbers_go_on() {
    let mut first = player(true, &[], 0);
    assert_eq!(run(&mut first, 3, false), Ok(3));
    assert_eq!(run(&mut first, 200, false), Ok(200));
    assert_eq!(run(&mut first, u64::MAX, true), Ok(BETWEEN_LOOKS));
    let sent = first.lane.expect("nothing went wrong").sent.into_inner();
    assert_eq!(sent[..4], [1, 2, 3 | LAST, 4]);
    let last: Vec<usize> =
        (1..).zip(&sent).filter(|(_, byte)| **byte & LAST != 0).map(|(at, _)| at).collect();
    assert_eq!(last, [3, 203, 219]);

    let mut second = player(false, &[1, 2, 3 | LAST, 4 | LAST], 0);
    assert_eq!((run(&mut second, 1, true), run(&mut second, 9, false)), (Ok(3), Ok(1)));
    assert_eq!(
        second.lane.expect("nothing went wrong").sent.into_inner(),
        [1, 2, 3 | LAST, 4 | LAST]
    );
}

#[test]
fn a_wrong_byte_is_found_and_ends_the_way() {
    let mut first = player(true, &[], 1);
    assert_eq!(run(&mut first, 5, false), Err("1 was sent, and 0 came back".to_owned()));
    assert_eq!(run(&mut first, 5, false), Err("the way is broken".to_owned()));
    let mut second = player(false, &[1, 3], 0);
    assert_eq!(run(&mut second, 5, false), Err("3 came after 1".to_owned()));
    assert!(second.lane.is_none());
}

#[test]
fn who_waits_for_one_that_has_gone_is_told() {
    // Nothing sent, nothing to come.
    assert_eq!(
        run(&mut player(false, &[], 0), 5, false),
        Err("the other side has gone".to_owned())
    );
}
