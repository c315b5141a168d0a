//! The tables are whole, and the percentages that the threads give agree with their values.

use quietline_seeds::{Basis, Better, Comparison, Spread, seeds, table};
use std::collections::HashSet;

/// The kernel of 2008 without any patch.
const BEFORE: &str = "before (net-next-2.6, November 2008)";

#[test]
fn every_table_is_a_rectangle_with_names_of_its_own() {
    let mut years = Vec::new();
    for seed in seeds() {
        years.push(seed.year);
        assert!(!seed.author.is_empty() && !seed.subject.is_empty() && !seed.machine.is_empty());
        assert!(seed.name.ends_with(&seed.year.to_string()), "{}", seed.name);
        let names: HashSet<_> = seed.tables.iter().map(|t| &t.name).collect();
        assert_eq!(names.len(), seed.tables.len(), "{}: two tables of one name", seed.name);
        for table in &seed.tables {
            let says = format!("{}, {}", seed.name, table.name);
            assert!(!table.title.is_empty() && !table.source.is_empty() && !table.unit.is_empty());
            assert!(!table.rows.is_empty() && !table.columns.is_empty(), "{says}: empty");
            for row in &table.rows {
                assert_eq!(row.values.len(), table.columns.len(), "{says}: {}", row.name);
                assert!(row.values.iter().any(|v| !v.is_nan()), "{says}: {}", row.name);
                assert!(row.values.iter().all(|v| !v.is_infinite()), "{says}: {}", row.name);
            }
            for names in [
                table.rows.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
                table.columns.iter().map(String::as_str).collect(),
            ] {
                let all = names.len();
                assert_eq!(names.into_iter().collect::<HashSet<_>>().len(), all, "{says}: names");
            }
        }
    }
    assert_eq!(years, [2008, 2010, 2013, 2015, 2017]);
}

/// A typing error in a value shows here.
#[test]
fn values_agree_with_the_percentages_that_the_messages_give() {
    let mut checked = 0;
    for seed in seeds() {
        for table in &seed.tables {
            let Some(improvement) = &table.improvement else { continue };
            assert_eq!(improvement.values.len(), table.rows.len(), "{}", table.name);
            if let Some(pairs) = &improvement.from {
                assert_eq!(pairs.len(), table.rows.len(), "{}", table.name);
                assert!(improvement.from_unit.is_some() && improvement.tolerance <= 0.06);
            }
            for (row, given) in table.rows.iter().zip(&improvement.values) {
                let computed = table.given_improvement(&row.name);
                assert!(
                    (computed - given).abs() <= improvement.tolerance,
                    "{}, {}, {}: {given} % in the message, {computed:.2} % computed",
                    seed.name,
                    table.name,
                    row.name
                );
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 12 + 3 * 14 + 12);
}

/// Each list of oprofile gives samples and percentages.
#[test]
fn percentages_of_profiles_agree_with_their_samples() {
    let mut checked = 0;
    for table in seeds().iter().flat_map(|seed| &seed.tables) {
        let Some(all) = &table.all_samples else { continue };
        for row in &table.rows {
            let samples = row.samples.as_ref().expect("a row of a table with samples has some");
            assert_eq!(samples.len(), all.len(), "{}", row.name);
            for ((percent, samples), all) in row.values.iter().zip(samples).zip(all) {
                assert_eq!(percent.is_nan(), samples.is_nan(), "{}", row.name);
                if !percent.is_nan() {
                    // Four digits after the point are given.
                    let computed = samples / all * 100.0;
                    assert!((computed - percent).abs() < 0.000_051, "{}: {computed}", row.name);
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 2 * 17 + 3 * 27 + 33 + 31 + 29);
}

#[test]
fn gains_are_differences_of_the_rows() {
    let mut checked = 0;
    for table in seeds().iter().flat_map(|seed| &seed.tables) {
        let Some(gains) = &table.gains else { continue };
        let mut before = gains.before;
        for row in &table.rows {
            let remains = table.expect(&row.name, &gains.of);
            let gain = table.expect(&row.name, &gains.column);
            assert!((before - remains - gain).abs() < 0.001, "{}, {}", table.name, row.name);
            before = remains;
            checked += 1;
        }
    }
    assert_eq!(checked, 5 + 5 + 7);
}

/// CPU time is at most the wall-clock time of all CPUs, and nearly that in 2008.
#[test]
fn cpu_seconds_fill_the_wall_clock_time() {
    let (real, cpu) = (table("sockets-2008", "versions"), table("sockets-2008", "cpu-seconds"));
    for row in real.rows.iter().map(|row| &row.name) {
        for (column, cpus) in [("1 CPU", 1.0), ("8 CPUs", 8.0)] {
            let Some(seconds) = real.value(row, column) else { continue };
            let time = |kind: &str| cpu.expect(row, &format!("{kind}, {column}"));
            let part = (time("user") + time("sys")) / (seconds * cpus);
            assert!((0.92..1.01).contains(&part), "{row}, {column}: {part}");
        }
    }
}

/// Sums over the functions of a list.
#[test]
fn shares_of_waiting_are_sums_from_the_profile() {
    let (waiting, profile) = (table("sockets-2008", "waiting"), table("sockets-2008", "profile"));
    let sum = |column: &str, functions: &[&str]| {
        functions.iter().map(|function| profile.expect(function, column)).sum::<f64>()
    };
    let mnt_count = ["_atomic_dec_and_lock (mntput())", "init_file"];
    let of_lock = ["_atomic_dec_and_lock", "d_instantiate", "d_alloc"];
    for (row, computed) in [
        (0, sum("before", &of_lock)),
        (1, sum("version 2", &mnt_count)),
        (2, sum("version 2, slub_min_order=3", &mnt_count)),
    ] {
        let typed: f64 = waiting.rows[row].values.iter().filter(|value| !value.is_nan()).sum();
        assert!((typed - computed).abs() < 0.0002, "{typed}, {computed}");
    }
}

/// What the message of 2015 says of its packet rates.
#[test]
fn packet_rates_agree_with_the_times_that_they_save() {
    let rate = |row| table("bulk-2015", "forwarding").expect(row, "i7-4790K");
    let saves = |row| table("bulk-2015", "forwarding gain").expect(row, "i7-4790K");
    let time = |row| table("bulk-2015", "forwarding time").expect(row, "i7-4790K");
    let tuned = "bulk free, cpu_partial=256, min_partial=9";
    let nomerge = "bulk free, slab_nomerge";
    for (from, to, row) in [
        ("before", "bulk free", "bulk free"),
        ("bulk free", tuned, "tuning, after bulk free"),
        ("before", tuned, "bulk free and tuning"),
        ("bulk free", nomerge, "slab_nomerge, after bulk free (computed)"),
        ("before", nomerge, "bulk free and slab_nomerge (computed)"),
    ] {
        let computed = 1e9 / rate(from) - 1e9 / rate(to);
        assert!((computed - saves(row)).abs() < 0.01, "{row}: {computed}");
    }
    for row in ["before", "bulk free", tuned, nomerge] {
        assert!((1e9 / rate(row) - time(row)).abs() < 0.005, "{row}");
    }
}

/// The tables of 2015 that are computed from others: locked exchanges for a packet, and ratios.
#[test]
fn the_profile_as_exchanges_follows_from_the_profile() {
    let profile = table("bulk-2015", "forwarding profile");
    let exchanges = table("bulk-2015", "forwarding exchanges");
    let ratio = table("bulk-2015", "forwarding ratio");
    let time = |row| table("bulk-2015", "forwarding time").expect(row, "i7-4790K");
    for (row, function) in [
        ("to free: cmpxchg_double_slab", "cmpxchg_double_slab"),
        ("refills and lists: __cmpxchg_double_slab", "__cmpxchg_double_slab"),
    ] {
        for column in ["before", "bulk free"] {
            let share = profile.expect(function, column) / 100.0;
            let computed = share * time(column) * 4.0 / (9.0 + 19.0);
            let stored = exchanges.expect(row, column);
            assert!((computed - stored).abs() < 0.006, "{row}, {column}: {computed}");
        }
    }
    for row in &ratio.rows {
        let of = |column| profile.expect(&row.name, column);
        let computed = of("before") / of("bulk free");
        assert!((computed - row.values[0]).abs() < 0.05, "{}: {computed}", row.name);
    }
}

/// The message gives the differences of the means, too.
#[test]
fn look_ahead_costs_what_the_message_says() {
    let cost = table("bulk-2015", "look-ahead cost");
    let given = [2.01, 1.54, 1.73, 8.94, 26.81];
    for (row, given) in cost.rows.iter().zip(given) {
        assert!((row.values[1] - row.values[0] - given).abs() < 0.015, "{}", row.name);
        let spread = table("bulk-2015", "look-ahead spread");
        for (column, mean) in cost.columns.iter().zip(&row.values) {
            let of = |title: &str| spread.expect(&row.name, &format!("{column}, {title}"));
            assert!(of("least") < *mean && *mean < of("most"), "{}, {column}", row.name);
        }
    }
}

#[test]
fn values_are_printed_as_the_message_has_them() {
    let of = |name| table("bulk-2015", name);
    assert_eq!(of("patchset").text(22.075), "22.075");
    assert_eq!(of("patchset").text(10.52), "10.520");
    assert_eq!(of("instructions").text(9.0), "9");
    assert_eq!(of("delay").text(5.84), "5.84");
    assert_eq!(of("forwarding profile").text(0.2), "0.20");
    assert_eq!(of("forwarding profile").text(f64::NAN), "-");
}

#[test]
fn a_spread_has_its_median_between_its_ends() {
    assert_eq!(Spread::of([]), None);
    let of =
        |values: &[f64]| Spread::of(values.iter().copied()).map(|s| (s.median, s.least, s.most));
    assert_eq!(of(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
    assert_eq!(of(&[4.0, 1.0]), Some((2.5, 1.0, 4.0)));
}

#[test]
fn missing_values_are_missing() {
    let versions = table("sockets-2008", "versions");
    assert_eq!(versions.value("version 1, SLAB", "1 CPU"), None);
    assert_eq!(versions.value("version 1, SLAB", "8 CPUs"), Some(8.128));
}

#[test]
#[should_panic(expected = "has no row version 4")]
fn a_wrong_name_is_an_error() {
    let _value = table("sockets-2008", "versions").value("version 4", "8 CPUs");
}

#[test]
fn a_comparison_states_errors_and_lists_what_is_missing() {
    let versions = table("sockets-2008", "versions");
    assert_eq!(versions.better, Better::Less);
    let mut comparison = Comparison::new(versions, "a test");
    comparison.add(versions, BEFORE, "1 CPU", 1.561, Basis::Fitted);
    comparison.add(versions, "version 3", "8 CPUs", 1.218, Basis::Predicted);
    comparison.explain("page clearing is not modelled", |point| point.row == "version 3");
    // The thread has no value there.
    comparison.add(versions, "version 1, SLAB", "1 CPU", 1.0, Basis::Predicted);
    comparison.miss_the_rest(versions, "not tried");
    assert_eq!(comparison.points.len(), 2);
    let point = comparison.point("version 3", "8 CPUs").expect("it was added");
    assert!((comparison.error(point) + 0.25).abs() < 0.001, "{}", comparison.error(point));
    let values = versions.rows.iter().flat_map(|row| &row.values).filter(|v| !v.is_nan()).count();
    assert_eq!(comparison.missing.len(), values - 2);
    let text = comparison.to_string();
    assert!(text.contains("-25 %  predicted; page clearing is not modelled"), "{text}");
    let missing = format!("{} values of the thread without one of ours: not tried", values - 2);
    assert!(text.contains(&missing), "{text}");
}

/// The errors of percentages are differences: a part of a small percentage would say little.
#[test]
fn errors_of_percentages_are_in_points() {
    let profile = table("dentries-2013", "profile");
    let mut comparison = Comparison::new(profile, "a test");
    comparison.add(profile, "_raw_spin_lock", "with", 3.88, Basis::Predicted);
    let point = &comparison.points[0];
    assert!((comparison.error(point) - 0.025).abs() < 1e-9);
    assert_eq!(comparison.error_text(point), "+2.5 points");
}

#[test]
fn improvements_of_ours_stand_beside_those_of_the_thread() {
    let throughput = table("epoll-2017", "throughput");
    let mut comparison = Comparison::new(throughput, "a test");
    comparison.add(throughput, "1", "before", 100.0, Basis::Fitted);
    let of = |comparison: &Comparison| comparison.improvement(Better::More, "1", "after", "before");
    assert_eq!(of(&comparison), None);
    comparison.add(throughput, "1", "after", 95.0, Basis::Predicted);
    assert!((of(&comparison).expect("both are there") + 5.0).abs() < 1e-9);
    assert_eq!(Better::Neither.improvement(1.0, 2.0), None);
}

/// A gain of 0 has no relative error.
#[test]
fn errors_of_gains_are_parts_of_the_seconds_before() {
    let patches = table("sockets-2008", "patches-3");
    let mut comparison = Comparison::new(patches, "a test");
    comparison.add(patches, "nr_inodes", "8 CPUs", 24.0, Basis::Predicted);
    comparison.add_gain(patches, "nr_inodes", 26.5);
    let point = comparison.point("nr_inodes", "gain").expect("it was added");
    assert!((comparison.error(point) - 0.1).abs() < 1e-9);
    assert_eq!(comparison.error_text(point), "+2.50 s");
}
