use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use isotherm_core::{
    AgeHistogram, Attribution, Attrs, Nanos, PageAges, TargetId, TargetView, Thresholds,
};
use isotherm_record::{Event, Reader, RecordingHeader, TargetInfo};
use isotherm_view::{By, Column, Key};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::scene;

const MIB: u64 = 1 << 20;

fn options(colors: Colors) -> TopOptions {
    TopOptions {
        thresholds: Thresholds::default(),
        refresh: Duration::from_secs(1),
        memory: 16 << 20,
        groups: false,
        colors,
        save_to: "saved.rec".into(),
    }
}

/// Three processes for `seconds`: process 0 is hot in its second half, and its heap is idle for 20 s.
fn app(colors: Colors, seconds: u64) -> App {
    let mut app = App::new(&options(colors));
    for (id, comm) in [(0, "redis-server"), (1, "postgres"), (2, "na\x1bme")] {
        let fact = TargetInfo { id: TargetId(id), pid: Some(1000 + id), command: comm.into() };
        app.news(SourceEvent::Event(Event::Target(fact)));
        app.news(SourceEvent::Event(Event::Attribution(Attribution {
            target: TargetId(id),
            at: Nanos(0),
            comm: comm.into(),
            cgroup: format!("/services/{}", id / 2).into(),
            swapped: 5 * MIB * u64::from(id),
            major_faults: 0,
        })));
    }
    for seq in 0..seconds {
        let hz = if seq >= seconds / 2 { 200.0 } else { 0.0 };
        let maps = vec![
            scene::mapping(0, 8 * MIB, "[heap]"),
            scene::mapping(1 << 30, (1 << 30) + 64 * MIB, ""),
        ];
        let regions =
            vec![scene::region(0, 8 * MIB, 0.0), scene::region(1 << 30, (1 << 30) + 64 * MIB, hz)];
        let mut idle = AgeHistogram::default();
        idle.add(20_000, 2048);
        let ages = PageAges { idle, sampling: 1, ..PageAges::default() };
        let first = TargetView { ages: Some(Arc::new(ages)), ..scene::target(0, maps, regions) };
        let others = (1..3).map(|id| {
            let size = 16 * MIB * u64::from(id);
            scene::target(
                id,
                vec![scene::mapping(0, size, "[heap]")],
                vec![scene::region(0, size, 1.0)],
            )
        });
        let targets = std::iter::once(first).chain(others).collect();
        app.news(SourceEvent::Event(Event::Snapshot(scene::snapshot(seq, 1.0, targets).into())));
    }
    app.tick();
    app
}

fn press(app: &mut App, keys: &str) -> Vec<Effect> {
    keys.chars()
        .filter_map(|c| app.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)))
        .collect()
}

fn key(app: &mut App, code: KeyCode) -> Option<Effect> {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn screen(app: &App, width: u16, height: u16) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(app: &App, width: u16, height: u16) -> Vec<String> {
    let buffer = screen(app, width, height);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

#[test]
fn the_table_fits_in_80_by_24() {
    let app = app(Colors::None, 180);
    let lines = lines(&app, 80, 24);
    assert_eq!(
        lines[0],
        "isotherm  3 proc  hot 64M  warm 48M  cold 8.0M  unkn 0  own 1.0 %  lost 0.0 %"
    );
    assert_eq!(lines[1], "hot from 10 Hz, cold from 5 s  last 3 min  live");
    assert!(lines[2].starts_with("hot ▁▁▁▁▁") && lines[2].contains("███  cold █"), "{}", lines[2]);
    assert_eq!(
        lines[3],
        " NAME             PID   RES  HOTv  WARM  COLD  UNKN  OLD SAVED RF/S PSI% hot"
    );
    assert_eq!(
        lines[4],
        ">redis-server    1000   72M   64M     0  8.0M     0  60s     0    0    - ▁▁▁▅███"
    );
    assert!(lines[5].starts_with(" postgres "), "{}", lines[5]);
    assert!(!lines[6].contains('\x1b') && lines[6].contains("1002"), "{}", lines[6]);
    assert!(lines[23].starts_with("? help"));
}

/// A number that is cut would read as another one.
#[test]
fn the_first_line_leaves_out_the_name_of_the_program_before_a_number() {
    let app = app(Colors::None, 180);
    let [cut, whole] = [76, 77].map(|width| lines(&app, width, 24)[0].clone());
    assert_eq!(whole, format!("isotherm  {cut}"));
    assert!(cut.starts_with("3 proc") && cut.ends_with("lost 0.0 %"), "{cut}");
}

/// The record that is played is an import of another tool's recording.
#[test]
fn memory_whose_residency_is_missing_is_not_called_resident() {
    let mut app = app(Colors::None, 180);
    let mut facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    facts.missing.residency = true;
    app.news(SourceEvent::Event(Event::Header(facts)));
    app.tick();
    let table = lines(&app, 80, 24);
    assert_eq!(
        table[4],
        ">redis-server    1000     ?   64M     0  8.0M     0  60s     0    0    - ▁▁▁▅███"
    );
    key(&mut app, KeyCode::Enter);
    app.tick();
    let page = lines(&app, 80, 24).join("\n");
    assert!(page.contains("64M, ? resident, from") && page.contains("    ?   64M"), "{page}");
}

/// It takes the place of the pressure, if there is no room for both.
#[test]
fn the_own_cost_is_divided_by_resident_memory() {
    let mut app = app(Colors::None, 180);
    let wide = lines(&app, 100, 24);
    assert!(wide[3].ends_with("  OLD SAVED RF/S PSI% OWN% hot"), "{}", wide[3]);
    assert!(wide[4].contains("  60s     0    0    - 0.60 \u{2581}"), "{}", wide[4]);
    let narrow = lines(&app, 85, 24);
    assert!(narrow[3].ends_with(" RF/S PSI% hot"), "{}", narrow[3]);
    press(&mut app, "ssssssss");
    assert_eq!(app.column, Column::OwnCost);
    let sorted = lines(&app, 80, 24);
    assert_eq!(
        sorted[3],
        " NAME             PID   RES   HOT  WARM  COLD  UNKN  OLD SAVED RF/S OWNv own cos"
    );
    for (line, name, own) in [(4, "redis", "0.60"), (5, "na", "0.27"), (6, "postgres", "0.13")] {
        let text = &sorted[line];
        assert!(
            text[1..].starts_with(name) && text.contains(&format!(" 0 {own} ███████")),
            "{text}"
        );
    }
    assert!(lines(&app, 86, 24)[3].contains(" PSI% OWNv "));
}

#[test]
fn keys_sort_groups_by_each_column() {
    let mut app = app(Colors::None, 20);
    key(&mut app, KeyCode::Tab);
    let all = ["/", "/services", "/services/0", "/services/1"];
    let swapped = ["/", "/services", "/services/1", "/services/0"];
    press(&mut app, "ss");
    for (column, expected) in [
        (Column::Unknown, all),
        (Column::OldestCold, all),
        (Column::Saved, swapped),
        (Column::Refaults, all),
        (Column::Pressure, all),
        (Column::OwnCost, all),
    ] {
        press(&mut app, "s");
        let names: Vec<_> = app.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((app.column, names), (column, expected.to_vec()));
    }
    press(&mut app, "r");
    assert_eq!(app.rows[0].name, "/services/1");
}

#[test]
fn keys_sort_filter_and_switch() {
    let mut app = app(Colors::None, 20);
    let names = |app: &App| app.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&app)[0], "redis-server");
    press(&mut app, "s");
    assert_eq!((app.column, names(&app)[0].as_str()), (Column::Warm, "na\x1bme"));
    press(&mut app, "r");
    assert_eq!(names(&app)[0], "redis-server");
    press(&mut app, "/post");
    assert_eq!(names(&app), ["postgres"]);
    assert!(lines(&app, 80, 24)[23].starts_with("filter: post_"));
    key(&mut app, KeyCode::Enter);
    // Keys are commands again, and the filter stays.
    press(&mut app, "s");
    assert_eq!((app.rows.len(), &app.mode), (1, &KeyMode::Normal));
    key(&mut app, KeyCode::Esc);
    assert_eq!(app.rows.len(), 3);
    key(&mut app, KeyCode::Tab);
    press(&mut app, "SSS");
    assert_eq!((app.by, app.column), (By::Cgroup, Column::Resident));
    assert_eq!(names(&app), ["/", "/services", "/services/0", "/services/1"]);
    app.selected = Some(Key::Cgroup("/services/1".into()));
    key(&mut app, KeyCode::Enter);
    assert_eq!((app.by, names(&app).len()), (By::Process, 1));
}

#[test]
fn the_selection_follows_its_row_and_scrolls() {
    let mut app = app(Colors::None, 20);
    key(&mut app, KeyCode::Down);
    let selected = app.selected.clone();
    assert_eq!(app.selection(), 1);
    press(&mut app, "r");
    assert_eq!(app.selected, selected);
    key(&mut app, KeyCode::PageDown);
    assert_eq!(app.selection(), 2);
    // Two rows at most fit.
    assert!(lines(&app, 80, 10).iter().any(|line| line.starts_with('>')));
}

/// Found by a new user: the first row of the first page was selected, sank, and took the page away from the hottest rows.
#[test]
fn without_a_selection_the_first_rows_are_shown() {
    let mut app = app(Colors::None, 20);
    let first = app.rows[0].key.clone();
    press(&mut app, "r");
    assert_ne!(app.rows[0].key, first);
    assert_eq!(app.selection(), 0);
    key(&mut app, KeyCode::Down);
    key(&mut app, KeyCode::Up);
    press(&mut app, "r");
    assert_eq!(app.selection(), 0, "at the top it stays there");
}

#[test]
fn a_process_shows_its_heat_mappings_and_ages() {
    let mut app = app(Colors::None, 180);
    key(&mut app, KeyCode::Enter);
    let all = lines(&app, 80, 24);
    assert_eq!(all[2], "redis-server (pid 1000)");
    assert!(all[3].starts_with("anonymous 64M, 64M resident, from 0x40000000"), "{}", all[3]);
    assert!(all[4].starts_with("......") && all[4].ends_with("%%%%%%"), "{}", all[4]);
    assert!(all.iter().any(|line| line.starts_with("-3:00") && line.ends_with("now")));
    assert!(all.iter().any(|line| line.starts_with(">anonymous") && line.contains("64M   64M")));
    assert!(all.iter().any(|line| line.contains("from 10s    8.0M ####")), "{all:#?}");
    key(&mut app, KeyCode::Down);
    key(&mut app, KeyCode::Enter);
    let zoomed = lines(&app, 80, 24);
    assert!(zoomed[2].contains("0x0-0x800000") && zoomed[3].starts_with("[heap] 8.0M"));
    key(&mut app, KeyCode::Esc);
    // The table, which is not shown, has other rows.
    key(&mut app, KeyCode::Tab);
    assert_eq!(lines(&app, 80, 24)[2], "redis-server (pid 1000)");
    key(&mut app, KeyCode::Esc);
    assert_eq!(app.page, ViewPage::Table);
}

#[test]
fn colours_fall_back_and_none_are_used_without() {
    let colors_of = |colors| {
        let mut app = app(colors, 180);
        key(&mut app, KeyCode::Enter);
        let buffer = screen(&app, 80, 24);
        let cell = &buffer[(78, 5)];
        (cell.symbol().to_owned(), cell.fg, cell.bg)
    };
    let hot = |colors: Colors| colors.rate(200.0).unwrap();
    for colors in [Colors::True, Colors::Ansi256, Colors::Ansi16] {
        assert_eq!(colors_of(colors), ("▀".to_owned(), hot(colors), hot(colors)));
    }
    assert!(matches!(hot(Colors::True), Color::Rgb(..)));
    assert!(matches!(hot(Colors::Ansi256), Color::Indexed(16..)));
    let mut plain = app(Colors::None, 180);
    key(&mut plain, KeyCode::Enter);
    let buffer = screen(&plain, 80, 24);
    assert!(buffer.content().iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
}

#[test]
fn time_can_be_sought_and_the_present_goes_on() {
    let mut app = app(Colors::None, 180);
    let hot = |app: &App| app.rows.iter().map(|row| row.figures.heat.hot).max();
    assert_eq!(hot(&app), Some(64 * MIB));
    press(&mut app, "[[[[");
    assert_eq!(hot(&app), Some(0));
    assert!(lines(&app, 80, 24)[1].contains("PAUSED at -2:00"), "{}", lines(&app, 80, 24)[1]);
    press(&mut app, "]");
    assert!(lines(&app, 80, 24)[1].contains("PAUSED at -1:30"));
    key(&mut app, KeyCode::End);
    assert_eq!((hot(&app), app.at), (Some(64 * MIB), None));
    // It neither leaves the history nor moves with the present while it is paused.
    press(&mut app, "[[[[[[[[[[");
    assert!(lines(&app, 80, 24)[1].contains("PAUSED at -3:00"));
}

#[test]
fn a_paused_view_does_not_show_the_next_snapshot() {
    let mut app = app(Colors::None, 60);
    let shown = |app: &App| app.moment().map(|m| m.snapshot.seq);
    press(&mut app, " ");
    assert_eq!(shown(&app), Some(59));
    let idle = scene::target(0, vec![], vec![]);
    app.news(SourceEvent::Event(Event::Snapshot(scene::snapshot(60, 1.0, vec![idle]).into())));
    app.tick();
    assert_eq!(shown(&app), Some(59));
    press(&mut app, " ");
    assert_eq!(shown(&app), Some(60));
}

#[test]
fn the_limits_of_hot_and_cold_change_the_whole_history() {
    let mut app = app(Colors::None, 60);
    press(&mut app, "hhh");
    assert_eq!(app.view().thresholds().hot_hz, 1.0);
    assert!(lines(&app, 80, 24)[0].contains("hot 112M"));
    press(&mut app, "CCC");
    assert_eq!(app.view().thresholds().cold_age, Duration::from_secs(60));
    press(&mut app, "C");
    assert!(lines(&app, 80, 24)[0].contains("cold 0"), "{}", lines(&app, 80, 24)[0]);
}

#[test]
fn a_marked_time_is_saved_as_a_record() {
    let mut app = app(Colors::None, 180);
    press(&mut app, "[[mw");
    // From the mark to the shown time would be nothing: seek on, and mark its end.
    key(&mut app, KeyCode::Esc);
    press(&mut app, "]m");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part.rec");
    assert!(press(&mut app, "w").is_empty());
    for _ in 0..20 {
        key(&mut app, KeyCode::Backspace);
    }
    press(&mut app, path.to_str().unwrap());
    let Some(Effect::Save(to, span)) = key(&mut app, KeyCode::Enter) else { panic!("not saved") };
    assert_eq!(
        (to.as_path(), span.end.since(span.start)),
        (path.as_path(), Duration::from_secs(30))
    );
    app.saved(save::save(app.view(), &span, &to));
    assert!(lines(&app, 120, 24)[23].starts_with("saved 30 snapshots to "), "{}", app.message);
    let events: Vec<Event> = Reader::open(&path).unwrap().map(Result::unwrap).collect();
    let snapshots = events.iter().filter(|e| matches!(e, Event::Snapshot(_))).count();
    assert_eq!(snapshots, 30);
}

#[test]
fn every_size_can_be_drawn() {
    for page in ["", "\n"] {
        let mut app = app(Colors::True, 30);
        if page == "\n" {
            key(&mut app, KeyCode::Enter);
        }
        for width in (1..200).step_by(13) {
            for height in (1..60).step_by(3) {
                let _ = screen(&app, width, height);
            }
        }
        press(&mut app, "?");
        let help = lines(&app, 80, 24);
        for (keys, _) in keys::HELP {
            assert!(help.iter().any(|line| line.starts_with(&format!(" {keys}"))), "{keys}");
        }
    }
    assert!(lines(&App::new(&options(Colors::None)), 80, 24)[2].starts_with("Waiting"));
}

#[test]
fn keys_and_what_they_do_fit_in_80_columns() {
    for (keys, does) in keys::HELP {
        assert!(keys.len() <= 15 && 17 + does.len() <= 80, "{keys}: {does}");
    }
}

#[test]
fn the_column_of_the_order_has_an_arrow() {
    let mut app = app(Colors::None, 10);
    for column in Column::ALL {
        app.column = column;
        for (descending, arrow) in [(true, 'v'), (false, '^')] {
            app.descending = descending;
            let titles = &lines(&app, 80, 24)[3];
            let marked = titles.split_whitespace().filter(|title| title.ends_with(arrow));
            assert_eq!(marked.count(), 1, "{column:?}: {titles}");
        }
    }
}

/// Numbers of targets stand for other processes, so that nothing of the first service may stay.
#[test]
fn another_service_is_shown_from_its_start() {
    let mut app = app(Colors::None, 10);
    press(&mut app, "h m");
    key(&mut app, KeyCode::Enter);
    app.news(SourceEvent::Restarted);
    app.tick();
    let waiting = lines(&app, 80, 24);
    assert!(waiting[2].starts_with("Waiting"), "{waiting:#?}");
    assert_eq!(waiting[23], "the service was restarted");
    assert_eq!(app.view().thresholds().hot_hz, 5.0, "the limits stay");
    let target = scene::target(0, vec![], vec![scene::region(0, MIB, 1.0)]);
    app.news(SourceEvent::Event(Event::Snapshot(scene::snapshot(0, 1.0, vec![target]).into())));
    app.tick();
    let table = lines(&app, 80, 24);
    assert!(table[1].ends_with("live") && table[4].starts_with(">target 0"), "{table:#?}");
}

#[test]
fn the_end_of_the_source_is_shown() {
    let mut app = app(Colors::None, 10);
    app.news(SourceEvent::Ended(Ok("all processes have ended".into())));
    assert!(lines(&app, 80, 24)[1].ends_with("ENDED: all processes have ended"));
    assert_eq!(press(&mut app, "q"), [Effect::Quit]);
}
