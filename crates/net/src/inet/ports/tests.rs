//! Port tables by themselves.

use super::range::EPHEMERAL;
use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};

const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn claim(ip: impl Into<IpAddr>) -> Claim {
    let ip = ip.into();
    Claim { local: Local::of(ip, false), v6: ip.is_ipv6(), reuse: false, reuseport: false, uid: 0 }
}

fn sender(port: u16) -> SocketAddr {
    SocketAddr::new(LO, port)
}

#[test]
fn one_owner_unless_they_share() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let any = claim(Ipv4Addr::UNSPECIFIED);
    let held = ports.bind(80, any, 1, None).unwrap();
    assert_eq!(held, Holding::Own(80, 1));
    assert_eq!(ports.bind(80, any, 2, None), Err(Errno::ADDRINUSE));
    assert_eq!(ports.bind(80, claim(LO), 2, None), Err(Errno::ADDRINUSE));
    assert_eq!(ports.bind(80, claim(Ipv6Addr::UNSPECIFIED), 2, None), Err(Errno::ADDRINUSE));
    ports.bind(80, claim(Ipv6Addr::LOCALHOST), 3, None).unwrap();
    ports.release(held, None);
    ports.bind(80, claim(LO), 2, None).unwrap();
    assert_eq!(ports.held(), (1, 2));
}

#[test]
fn addresses_may_be_used_again_by_those_who_both_ask() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let shared = Claim { reuse: true, ..claim(LO) };
    let one = ports.bind(80, shared, 1, None).unwrap();
    let two = ports.bind(80, shared, 2, None).unwrap();
    assert_eq!(ports.bind(80, claim(LO), 3, None), Err(Errno::ADDRINUSE));
    // The first one that listens has it to itself.
    ports.change(one, shared, None, Some(&1), true).unwrap();
    assert_eq!(ports.change(two, shared, None, Some(&2), true), Err(Errno::ADDRINUSE));
    assert_eq!(ports.bind(80, shared, 4, None), Err(Errno::ADDRINUSE));
    assert_eq!(ports.find(SocketAddr::new(LO, 80), sender(5)), Some(1));
}

#[test]
fn senders_are_spread_over_those_who_share_a_port() {
    let ports = Ports::<usize>::new(Taken::ByAny).unwrap();
    let balanced = Claim { reuseport: true, ..claim(LO) };
    for id in 0..4 {
        ports.bind(80, balanced, id, Some(&id)).unwrap();
    }
    let stranger = Claim { uid: 1, ..balanced };
    assert_eq!(ports.bind(80, stranger, 9, None), Err(Errno::ADDRINUSE));
    let mut counts = [0; 4];
    for port in 1..=20_000 {
        let found = ports.find(SocketAddr::new(LO, 80), sender(port)).unwrap();
        assert_eq!(
            ports.find(SocketAddr::new(LO, 80), sender(port)),
            Some(found),
            "the same again"
        );
        counts[found] += 1;
    }
    assert!(counts.iter().all(|&n| (4_500..5_500).contains(&n)), "{counts:?}");
}

#[test]
fn the_connected_comes_before_the_close_and_the_close_before_the_wide() {
    let ports = Ports::<u32>::new(Taken::ByLatest).unwrap();
    let reuse = |ip: IpAddr| Claim { reuse: true, ..claim(ip) };
    let to = SocketAddr::new(LO, 80);
    ports.bind(80, reuse(Ipv6Addr::UNSPECIFIED.into()), 1, Some(&1)).unwrap();
    assert_eq!(ports.find(to, sender(5)), Some(1));
    ports.bind(80, reuse(Ipv4Addr::UNSPECIFIED.into()), 2, Some(&2)).unwrap();
    assert_eq!(ports.find(to, sender(5)), Some(2));
    ports.bind(80, reuse(LO), 3, Some(&3)).unwrap();
    let latest = ports.bind(80, reuse(LO), 4, Some(&4)).unwrap();
    assert_eq!(ports.find(to, sender(5)), Some(4), "the latest of equals");
    ports.change(latest, reuse(LO), Some(sender(6)), Some(&4), false).unwrap();
    assert_eq!(ports.find(to, sender(5)), Some(3));
    assert_eq!(ports.find(to, sender(6)), Some(4));
    assert_eq!(ports.find(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 80), sender(5)), Some(1));
    assert_eq!(ports.find(SocketAddr::new(LO, 81), sender(5)), None);
}

#[test]
fn of_those_that_are_connected_alike_the_last_one_hears() {
    let ports = Ports::<u32>::new(Taken::ByLatest).unwrap();
    let near = Claim { reuse: true, ..claim(LO) };
    let wide = Claim { reuse: true, ..claim(Ipv4Addr::UNSPECIFIED) };
    let to = SocketAddr::new(LO, 80);
    let [one, two] = [1, 2].map(|n| ports.bind(80, wide, n as usize, Some(&n)).unwrap());
    let connect = |held, n, from| ports.change(held, near, Some(from), Some(&n), false).unwrap();
    connect(two, 2, sender(5));
    connect(one, 1, sender(5));
    assert_eq!(ports.find(to, sender(5)), Some(1));
    // Elsewhere and back: as it was.
    connect(two, 2, sender(6));
    assert_eq!((ports.find(to, sender(5)), ports.find(to, sender(6))), (Some(1), Some(2)));
    connect(two, 2, sender(5));
    assert_eq!(ports.find(to, sender(5)), Some(1));
    // With its address it loses its place, and is the latest to have another.
    ports.change(two, wide, None, Some(&2), false).unwrap();
    assert_eq!((ports.find(to, sender(5)), ports.find(to, sender(6))), (Some(1), Some(2)));
    connect(two, 2, sender(5));
    assert_eq!(ports.find(to, sender(5)), Some(2));
}

#[test]
fn of_equals_the_latest_hears_unless_it_balances_in_version_6() {
    let to = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 80);
    for (one, two, found) in [(false, false, 2), (false, true, 1), (true, false, 2)] {
        let ports = Ports::<u32>::new(Taken::ByLatest).unwrap();
        for (n, reuseport) in [(1, one), (2, two)] {
            let claim = Claim { reuse: true, reuseport, ..claim(Ipv6Addr::LOCALHOST) };
            ports.bind(80, claim, n as usize, Some(&n)).unwrap();
        }
        assert_eq!(ports.find(to, sender(5)), Some(found), "{one} {two}");
    }
}

#[test]
fn for_datagrams_only_the_latest_is_asked() {
    for (taken, wide) in
        [(Taken::ByAny, Err(Errno::ADDRINUSE)), (Taken::ByLatest, Ok(Holding::Own(80, 3)))]
    {
        let ports = Ports::<u32>::new(taken).unwrap();
        let balanced = |ip: Ipv4Addr| Claim { reuseport: true, ..claim(ip) };
        ports.bind(80, claim(Ipv4Addr::new(127, 0, 0, 2)), 1, None).unwrap();
        ports.bind(80, balanced(Ipv4Addr::LOCALHOST), 2, None).unwrap();
        assert_eq!(ports.bind(80, balanced(Ipv4Addr::UNSPECIFIED), 3, None), wide);
        // The latest that it meets.
        assert_eq!(
            ports.bind(80, balanced(Ipv4Addr::new(127, 0, 0, 2)), 4, None).is_ok(),
            wide.is_ok()
        );
        assert_eq!(ports.bind(80, claim(LO), 5, None), Err(Errno::ADDRINUSE));
    }
}

#[test]
fn all_ports_are_given_out_and_then_none() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let all = usize::from(EPHEMERAL.1 - EPHEMERAL.0) + 1;
    let mut seen = std::collections::BTreeSet::new();
    let mut last = None;
    for id in 0..all {
        let held = ports.bind(0, claim(LO), id, None).unwrap();
        assert!((EPHEMERAL.0..=EPHEMERAL.1).contains(&held.port()));
        assert!(seen.insert(held.port()), "given out twice");
        last = Some(held);
    }
    assert_eq!(ports.bind(0, claim(LO), all, None), Err(Errno::ADDRINUSE));
    assert_eq!(ports.bind_auto(claim(LO), LO, sender(80)), Err(Errno::ADDRNOTAVAIL));
    ports.release(last.unwrap(), None);
    assert_eq!(ports.bind_auto(claim(LO), LO, sender(80)).unwrap().port(), last.unwrap().port());
    // Another address does not clash with any.
    ports.bind(0, claim(Ipv6Addr::LOCALHOST), all, None).unwrap();
}

#[test]
fn connections_to_different_places_share_a_port() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let all = usize::from(EPHEMERAL.1 - EPHEMERAL.0) + 1;
    let mut held = Vec::new();
    for to in [sender(80), sender(81)] {
        let mut used = std::collections::BTreeSet::new();
        for _ in 0..all {
            let one = ports.bind_auto(claim(LO), LO, to).unwrap();
            assert!(used.insert(one.port()), "two connections with the same ends");
            held.push((one, (sender(one.port()), to)));
        }
        assert_eq!(ports.bind_auto(claim(LO), LO, to), Err(Errno::ADDRNOTAVAIL), "{to}");
    }
    assert_eq!(ports.held(), (all, 2 * all));
    held.into_iter().for_each(|(held, tuple)| ports.release(held, Some(tuple)));
    assert_eq!(ports.held(), (0, 0));
}

#[test]
fn a_connection_is_there_once() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let held = ports.bind(40_000, claim(LO), 1, None).unwrap();
    for to in 1..=300 {
        assert_eq!(ports.enter((sender(40_000), sender(to))), Ok(true));
        assert_eq!(ports.enter((sender(40_000), sender(to))), Ok(false));
        assert!(
            ports.has((sender(40_000), sender(to))) && !ports.has((sender(to), sender(40_000)))
        );
    }
    ports.leave((sender(40_000), sender(7)));
    assert_eq!(ports.enter((sender(40_000), sender(7))), Ok(true));
    (1..=300).for_each(|to| ports.leave((sender(40_000), sender(to))));
    ports.release(held, None);
    assert_eq!(ports.held(), (0, 0));
}

#[test]
fn connections_of_a_listener_keep_its_port() {
    let ports = Ports::<u32>::new(Taken::ByAny).unwrap();
    let plain = claim(Ipv4Addr::UNSPECIFIED);
    let listener = ports.bind(80, plain, 1, Some(&1)).unwrap();
    let ends: Vec<_> = (0..1000).map(|_| ports.join(80, claim(LO)).unwrap()).collect();
    ports.release(listener, None);
    assert_eq!(ports.find(SocketAddr::new(LO, 80), sender(5)), None);
    assert_eq!(ports.bind(80, plain, 2, None), Err(Errno::ADDRINUSE));
    ends.into_iter().for_each(|end| ports.release(end, None));
    ports.bind(80, plain, 2, None).unwrap();
}
