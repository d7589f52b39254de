#[test]
fn load() {
    let t = std::time::Instant::now();
    let w = isotherm_linux::Walker::load();
    println!("{:?}", t.elapsed());
    match w { Ok(w) => println!("zero {:x?}", w.zero_frames()), Err(e) => panic!("{e}") }
    println!("{}", std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("Vm")).collect::<Vec<_>>().join("\n"));
}
