//! What devices read in frames from the link: where a checksum is that another device has left unmade, and the numbers of generated
//! packets.
//!
//! * A checksum is finished where it is known to be, and is right then; or nothing is written.
//! * A sink takes each frame for a generator's packet or for a foreign one, whatever its bytes, and says of all together what came.

use crate::input::Input;
use quietline_net::device::{
    Batch, Ends, GENERATOR_SIZES, Generator, NetDevice, Sink, Traffic, finish_checksum,
};
use quietline_net::forward::checksum::Sum;
use quietline_net::packet::{DropReason, Packets};
use std::ops::Range;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that were looked at.
    pub operations: u64,
    /// Those whose checksum was finished.
    pub finished: u64,
    /// Those that a sink took for a generator's.
    pub understood: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.finished += other.finished;
        self.understood += other.understood;
    }
}

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When a frame was taken for what it is not.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let mut tally = Tally::default();
    let packets = Packets::new().expect("there is memory");
    while !input.is_empty() {
        if input.one_in(16) {
            sink(&mut input, &packets, &mut tally);
        } else {
            unfinished(&mut input, &mut tally);
        }
    }
    assert_eq!(packets.head_stats().active, 0, "no packet is left");
    tally
}

/// Something wrong with a frame, at times: whether there is.
fn spoil(input: &mut Input<'_>, frame: &mut Vec<u8>) -> bool {
    let before = frame.clone();
    match input.below(4) {
        0 => {
            for _ in 0..1 + input.below(3) {
                let at = input.below(frame.len().min(100));
                frame[at] = input.byte() as u8;
            }
        }
        1 => frame.truncate(input.below(frame.len() + 1)),
        _ => {}
    }
    *frame != before
}

/// A frame whose checksum is its pseudo-header's sum alone.
struct Unfinished {
    frame: Vec<u8>,
    protocol: u8,
    /// Where its segment is, and where the checksum.
    segment: Range<usize>,
    sum: Range<usize>,
    /// What the checksum is of besides the segment.
    pseudo: Vec<u8>,
}

impl Unfinished {
    fn new(input: &mut Input<'_>) -> Self {
        let (protocol, at) = input.pick(&[(6, 16), (17, 6)]);
        let payload = if input.one_in(8) { 1400 } else { input.below(50) };
        let first = input.byte();
        let mut segment: Vec<u8> = (0..20 + payload).map(|i| (first + i * 3) as u8).collect();
        let len = segment.len() as u16;
        let mut frame = vec![2; 12];
        let v6 = input.one_in(2);
        let addresses: Vec<u8> = (0..if v6 { 32 } else { 8 }).map(|_| input.byte() as u8).collect();
        if v6 {
            // Headers in between: options for each hop, a way, options for the end.
            let kinds: Vec<u8> = (0..input.below(4)).map(|_| input.pick(&[0, 43, 60])).collect();
            let mut between = Vec::new();
            for i in 0..kinds.len() {
                let words = input.below(3);
                between.extend([kinds.get(i + 1).copied().unwrap_or(protocol), words as u8]);
                between.resize(between.len() + 6 + 8 * words, 1);
            }
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len + between.len() as u16).to_be_bytes());
            frame.extend([kinds.first().copied().unwrap_or(protocol), 64]);
            frame.extend(&addresses);
            frame.extend(between);
        } else {
            let options = 4 * input.below(11);
            frame.extend([0x08, 0x00, 0x45 + (options / 4) as u8, 0]);
            frame.extend((20 + options as u16 + len).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
            frame.extend(&addresses);
            frame.resize(frame.len() + options, 1);
        }
        let pseudo = [&addresses[..], &[0, protocol], &len.to_be_bytes()].concat();
        let sum = Sum::default().with(&pseudo).checksum().map(|byte| !byte);
        segment[at..at + 2].copy_from_slice(&sum);
        let start = frame.len();
        frame.extend(&segment);
        let end = frame.len();
        // What an Ethernet adds to short ones.
        frame.resize(end + input.pick(&[0, 0, 1, 6]), 0x55);
        Self { frame, protocol, segment: start..end, sum: start + at..start + at + 2, pseudo }
    }
}

/// Finishes a checksum, of a frame that is right or not.
fn unfinished(input: &mut Input<'_>, tally: &mut Tally) {
    let Unfinished { mut frame, protocol, segment, sum, pseudo } = Unfinished::new(input);
    let spoiled = spoil(input, &mut frame);
    let before = frame.clone();
    let done = finish_checksum(&mut frame);
    tally.operations += 1;
    tally.finished += u64::from(done);
    let changed: Vec<usize> = (0..frame.len()).filter(|i| frame[*i] != before[*i]).collect();
    if !done {
        assert!(
            spoiled && changed.is_empty(),
            "what is unfinished is finished, or nothing is written"
        );
        return;
    }
    // Two bytes, whatever they were taken for.
    assert!(changed.iter().all(|at| at - changed[0] < 2), "{changed:?}");
    if !spoiled {
        assert!(changed.iter().all(|at| sum.contains(at)), "{changed:?} are not {sum:?}");
        assert!(Sum::default().with(&pseudo).with(&frame[segment]).is_right(), "a right checksum");
        assert!(protocol != 17 || frame[sum] != [0, 0], "to UDP that is none");
    }
}

/// Packets of a generator, some of them spoiled, lost, or there twice, end in a sink.
fn sink(input: &mut Input<'_>, packets: &Packets, tally: &mut Tally) {
    let v6 = input.one_in(2);
    let flows = 1 + input.below(5) as u32;
    let count = 1 + input.below(100) as u64;
    let least = if v6 { 78 } else { *GENERATOR_SIZES.start() };
    let size = least + input.below(GENERATOR_SIZES.end() - least + 1);
    let ends = if v6 { Ends::TEST_V6 } else { Ends::TEST_V4 };
    let traffic = Traffic { size, flows, count: Some(count), ends, ..Traffic::default() };
    let mut generator = Generator::new(packets, &traffic).expect("such packets can be");
    let mut sink = Sink::new(256, flows).expect("there is memory");
    sink.check_sums(true);
    let (mut batch, mut given, mut wrong, mut twice) = (Batch::new(), 0, 0, 0);
    while !generator.is_done() {
        generator.poll(1, &mut batch).expect("there is memory");
        let mut skb = batch.pop().expect("a packet");
        let mut bytes = skb.data().to_vec();
        match input.below(8) {
            // It is lost.
            1 => {
                skb.kfree_skb(DropReason::NotSpecified);
                continue;
            }
            2 if spoil(input, &mut bytes) => {
                skb.kfree_skb(DropReason::NotSpecified);
                skb = packets.alloc_skb(bytes.len()).expect("there is memory");
                skb.put_data(&bytes).expect("there is room");
                wrong += 1;
            }
            3 => {
                assert!(batch.push(skb.copy().expect("there is memory")).is_ok());
                (given, twice) = (given + 1, twice + 1);
            }
            _ => {}
        }
        assert!(batch.push(skb).is_ok());
        given += 1;
        sink.xmit(&mut batch);
        sink.complete(usize::MAX);
    }
    let found = sink.tally();
    tally.operations += given;
    tally.understood += found.received;
    assert_eq!(
        (found.received + found.foreign, sink.stats().tx_packets),
        (given, given),
        "{found:?}"
    );
    assert!(found.foreign + found.bad_sums <= wrong, "{found:?}");
    if wrong == 0 {
        assert_eq!(
            (found.duplicated, found.reordered, found.late, found.bad_sums),
            (twice, 0, 0, 0)
        );
        // Those at the end of a flow are not missed.
        assert!(found.lost <= count - (given - twice), "{found:?}");
    }
}
