//! Devices where there is no memory. (Faults are the whole process's: a test of its own.)

use quietline_net::device::*;
use quietline_net::packet::Packets;
use rustix::io::Errno;

#[test]
fn a_generator_without_memory() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let mut generator = Generator::new(&packets, &Traffic::default()).unwrap();
    let mut batch = Batch::new();
    quietline_platform::fault::fail_from(1);
    let polled = generator.poll(64, &mut batch);
    let ring = TxRing::new(64).map(drop);
    let pair = Pair::new(64).map(drop);
    let sink = Sink::new(64, 1).map(drop);
    quietline_platform::fault::fail_nth(0);
    assert_eq!((polled, batch.len(), generator.made()), (Err(Errno::NOMEM), 0, 0));
    assert_eq!((ring, pair, sink), (Err(Errno::NOMEM), Err(Errno::NOMEM), Err(Errno::NOMEM)));
    assert_eq!(generator.poll(64, &mut batch), Ok(64));
    drop(batch);
    assert_eq!(packets.head_stats().active, 0);
}
