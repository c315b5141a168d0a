use super::{cpu_list, cpu_model, load_average};

#[test]
fn cpu_lists_are_counted() {
    assert_eq!(cpu_list("0-1\n"), 2);
    assert_eq!(cpu_list("0-3,8,10-11"), 7);
    assert_eq!(cpu_list("0"), 1);
    assert_eq!(cpu_list(""), 0);
}

#[test]
fn the_processor_names_itself() {
    assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU: fast\n"), "Some CPU: fast");
    assert_eq!(cpu_model("processor: 0\nCPU part\t: 0xd40\n"), "0xd40");
    assert_eq!(cpu_model(""), "unknown");
}

#[test]
fn load_averages_are_read() {
    assert_eq!(load_average("0.52 1.00 2.25 1/300 77\n"), [0.52, 1.0, 2.25]);
}
