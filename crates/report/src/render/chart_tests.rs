use super::*;
use crate::filter::Options;
use crate::regions::RegionsBuilder;
use crate::scene::{mapping, region, snapshot, target};
use crate::wss::WssBuilder;
use isotherm_core::Snapshot;

const MIB: u64 = 1 << 20;

/// Four MiB, of which `hot` are hot and one more is touched.
fn touched(seq: u64, hot: u64) -> Snapshot {
    let regions = vec![
        region(0, hot * MIB, 50.0),
        region(hot * MIB, (hot + 1) * MIB, 1.0),
        region((hot + 1) * MIB, 4 * MIB, 0.0),
    ];
    snapshot(seq, 1.0, vec![target(0, vec![mapping(0, 4 * MIB, "")], regions)])
}

fn wss() -> Wss {
    let mut builder = WssBuilder::new(Options::default());
    [1, 1, 2, 2].iter().zip(0..).for_each(|(&hot, seq)| builder.push(&touched(seq, hot)));
    builder.finish(&[50.0]).unwrap()
}

/// The colours of a line of pixels.
fn line(picture: &Picture, y: usize) -> Vec<Rgb> {
    let file = picture.png().unwrap();
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let width = reader.next_frame(&mut bytes).unwrap().width as usize;
    bytes.as_chunks::<3>().0[y * width..(y + 1) * width].to_vec()
}

#[test]
fn areas_are_as_high_as_their_values() {
    let wss = wss();
    let picture = wss_picture(&wss).unwrap();
    // The upper border is at 1.06 x 3 MiB: 1.5 MiB are hot in the second half only.
    let at = |mib: f64| HEAD + HEIGHT - (mib / (3.0 * 1.06) * HEIGHT as f64) as usize;
    let (hot, touched) = (color::at(0.62), color::at(0.2));
    let pixels = line(&picture, at(1.52));
    for (left, width) in [(LEFT, OVER_TIME), (LEFT + PLOT - DISTRIBUTION, DISTRIBUTION)] {
        assert_eq!(pixels[left + width / 4], touched);
        assert_eq!(pixels[left + width * 3 / 4], hot);
    }
    let pixels = line(&picture, at(2.52));
    assert_eq!(pixels[LEFT + OVER_TIME / 4], PAPER);
    assert_eq!(pixels[LEFT + OVER_TIME * 3 / 4], touched);
}

#[test]
fn a_gap_in_time_stays_empty() {
    let mut builder = WssBuilder::new(Options::default());
    [0, 3].iter().for_each(|&seq| builder.push(&touched(seq, 1)));
    let wss = builder.finish(&[]).unwrap();
    let columns = wss.hot_bytes.columns(&wss.basis, OVER_TIME);
    let there = |part: usize| columns[OVER_TIME * part / 8].is_some();
    assert_eq!([1, 3, 5, 7].map(there), [true, false, false, true]);
}

#[test]
fn both_files_state_their_basis() {
    let mut builder = RegionsBuilder::new(Options::default());
    (0..4).for_each(|seq| builder.push(&touched(seq, 1)));
    let regions = builder.finish(&[50.0]).unwrap();
    for picture in [regions_picture(&regions).unwrap(), wss_picture(&wss()).unwrap()] {
        let svg = picture.svg().unwrap();
        for text in ["hot: touched at 10 Hz or more", "unknown: 0 B of 4.0 MiB", "looked at"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(picture.png().unwrap().starts_with(b"\x89PNG"));
    }
}
