//! The paths of the server: the page and its data. `docs/abi/testing/web.md` describes them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use isotherm_report::rate_color;
use isotherm_view::By;
use isotherm_view::cell::byte_rates;
use serde::Deserialize;
use tokio::sync::{Semaphore, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::io::ReaderStream;

use crate::guard::{Admitted, Guard, HEADERS, Pass, Refused};
use crate::source::{PageSource, PointQuery, SourceError, SpanQuery, TileQuery};

/// Minimum time between two events of a client.
const EVENT_EVERY: Duration = Duration::from_millis(250);
/// Bytes of a record that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The shared state of all requests.
pub struct Shared {
    /// the recordings of the page
    pub sources: Vec<Arc<PageSource>>,
    /// a number that changes when a source does
    pub changes: watch::Receiver<u64>,
    /// the access control
    pub guard: Guard,
    /// numbers of refused requests
    pub refused: Arc<Refused>,
    /// connections now
    pub connections: Arc<AtomicUsize>,
    /// Answers that read or draw much are made one after the other.
    pub heavy: Arc<Semaphore>,
}

/// The files of the page.
const ASSETS: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../assets/style.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    ("/heatmap.js", "text/javascript; charset=utf-8", include_str!("../assets/heatmap.js")),
    ("/charts.js", "text/javascript; charset=utf-8", include_str!("../assets/charts.js")),
];

/// Opens the page without the token, so that the token does not stay in the address and the history. It is not a
/// redirect, because a browser that follows a link of another site sends no `SameSite=Strict` cookie to its target.
const FIRST_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>isotherm</title>\
    <meta http-equiv=\"refresh\" content=\"0;url=/\"><p><a href=\"/\">isotherm</a></p></html>\n";

/// All paths, behind the guard.
pub fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in ASSETS {
        let file = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
        router = router.route(path, get(file));
    }
    router
        .route("/api/state", get(state))
        .route("/api/palette", get(palette))
        .route("/api/events", get(events))
        .route("/api/source/{source}/targets", get(targets))
        .route("/api/source/{source}/series", get(series))
        .route("/api/source/{source}/axis", get(axis))
        .route("/api/source/{source}/tile", get(tile))
        .route("/api/source/{source}/point", get(point))
        .route("/api/source/{source}/table", get(table))
        .route("/api/source/{source}/ages", get(ages))
        .route("/api/source/{source}/marks", get(marks))
        .route("/api/source/{source}/picture", get(picture))
        .route("/api/source/{source}/record", get(record))
        .fallback(async || {
            Failure(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned())
        })
        .layer(from_fn_with_state(Arc::clone(&shared), guarded))
        .with_state(shared)
}

/// Checks a request, and adds the headers of every answer.
async fn guarded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let checked = shared.guard.check(request.method(), request.uri(), request.headers());
    if let (Ok(_), Some(connection)) = (checked, request.extensions().get::<Admitted>()) {
        connection.admit();
    }
    let mut response = match checked {
        Ok(Pass::Known) => next.run(request).await,
        Ok(Pass::First) => {
            let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            let mut response = (kind, FIRST_PAGE).into_response();
            if let Ok(cookie) = HeaderValue::from_str(&shared.guard.set_cookie()) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(refusal) => {
            shared.refused.count(refusal);
            let mut response = refusal.answer().into_response();
            // Later data in the connection is not read.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An error as an answer.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl From<SourceError> for Failure {
    fn from(e: SourceError) -> Self {
        let status = match &e {
            SourceError::NotFound(_) | SourceError::Filter(_) => StatusCode::NOT_FOUND,
            SourceError::Changed => StatusCode::CONFLICT,
            SourceError::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            SourceError::Invalid(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failure(status, e.to_string())
    }
}

type Answer<T> = Result<T, Failure>;

fn source_of(shared: &Shared, number: usize) -> Answer<Arc<PageSource>> {
    let none = || Failure(StatusCode::NOT_FOUND, "there is no source of this number".to_owned());
    shared.sources.get(number).map(Arc::clone).ok_or_else(none)
}

/// Calls `ask` with a source: at once, or in a thread that may wait for the disk.
async fn with<T: Send + 'static>(
    shared: Arc<Shared>,
    source: usize,
    ask: impl FnOnce(&PageSource) -> Result<T, SourceError> + Send + 'static,
) -> Answer<T> {
    let source = source_of(&shared, source)?;
    // To hand a short answer to another thread would cost more CPU time than the answer.
    if !source.is_record() {
        return Ok(ask(&source)?);
    }
    elsewhere(source, ask).await
}

/// Asks on another thread, so that other requests need not wait.
async fn elsewhere<T: Send + 'static>(
    source: Arc<PageSource>,
    ask: impl FnOnce(&PageSource) -> Result<T, SourceError> + Send + 'static,
) -> Answer<T> {
    let asked = tokio::task::spawn_blocking(move || ask(&source)).await;
    let failed = |_| {
        Failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed: please report it".to_owned())
    };
    Ok(asked.map_err(failed)??)
}

/// The same, one after the other, also if the client does not wait for the answer.
async fn heavy<T: Send + 'static>(
    shared: Arc<Shared>,
    source: usize,
    ask: impl FnOnce(&PageSource) -> Result<T, SourceError> + Send + 'static,
) -> Answer<T> {
    let source = source_of(&shared, source)?;
    let permit = Arc::clone(&shared.heavy).acquire_owned().await;
    elsewhere(source, move |source| {
        let _permit = permit;
        ask(source)
    })
    .await
}

fn all_states(shared: &Shared) -> serde_json::Value {
    let sources: Vec<_> = shared.sources.iter().map(|source| source.state()).collect();
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "sources": sources,
        "refused": &*shared.refused,
        "connections": shared.connections.load(Ordering::Relaxed),
    })
}

async fn state(State(shared): State<Arc<Shared>>) -> Json<serde_json::Value> {
    Json(all_states(&shared))
}

/// The colours of the 84 levels of rates, and the rates.
async fn palette() -> Json<serde_json::Value> {
    let hz = byte_rates();
    let colors: Vec<_> = hz.iter().map(|hz| rate_color(f64::from(*hz))).collect();
    Json(serde_json::json!({ "hz": hz, "colors": colors }))
}

/// The state, whenever it changes. A slow client gets the newest state, and misses those between.
async fn events(
    State(shared): State<Arc<Shared>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = WatchStream::new(shared.changes.clone()).throttle(EVENT_EVERY);
    let event = move |_| Ok(Event::default().data(all_states(&shared).to_string()));
    Sse::new(changes.map(event)).keep_alive(KeepAlive::default())
}

type Number = Path<usize>;

async fn targets(State(shared): State<Arc<Shared>>, Path(n): Number) -> Answer<impl IntoResponse> {
    Ok(Json(with(shared, n, |source| Ok(source.targets())).await?))
}

async fn series(State(shared): State<Arc<Shared>>, Path(n): Number) -> Answer<impl IntoResponse> {
    Ok(Json(with(shared, n, |source| Ok(source.series())).await?))
}

/// Which target.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetQuery {
    target: u32,
}

async fn axis(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<TargetQuery>,
) -> Answer<impl IntoResponse> {
    Ok(Json(with(shared, n, move |source| source.axis(q.target)).await?))
}

async fn tile(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<TileQuery>,
) -> Answer<impl IntoResponse> {
    let cells = with(shared, n, move |source| source.tile(&q)).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], cells))
}

async fn point(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<PointQuery>,
) -> Answer<impl IntoResponse> {
    Ok(Json(with(shared, n, move |source| source.point(&q)).await?))
}

/// Which time, and what kind of rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableQuery {
    ms: f64,
    #[serde(default)]
    by: Rows,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Rows {
    #[default]
    Process,
    Cgroup,
}

async fn table(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<TableQuery>,
) -> Answer<impl IntoResponse> {
    let by = match q.by {
        Rows::Process => By::Process,
        Rows::Cgroup => By::Cgroup,
    };
    Ok(Json(with(shared, n, move |source| source.table(q.ms, by)).await?))
}

/// Which target and time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgesQuery {
    target: u32,
    ms: f64,
}

async fn ages(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<AgesQuery>,
) -> Answer<impl IntoResponse> {
    Ok(Json(with(shared, n, move |source| source.ages(q.target, q.ms)).await?))
}

async fn marks(State(shared): State<Arc<Shared>>, Path(n): Number) -> Answer<impl IntoResponse> {
    let all = |source: &PageSource| Ok(source.index().marks().cloned().collect::<Vec<_>>());
    Ok(Json(with(shared, n, all).await?))
}

/// A name for the browser's downloads.
fn download(kind: &'static str, name: &'static str) -> [(header::HeaderName, String); 2] {
    let name = format!("attachment; filename=\"{name}\"");
    [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, name)]
}

async fn picture(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<SpanQuery>,
) -> Answer<Response> {
    let as_svg = q.is_svg()?;
    let drawn = heavy(shared, n, move |source| {
        let picture = source.picture(&q)?;
        Ok(if as_svg { picture.svg()?.into_bytes() } else { picture.png()? })
    });
    let bytes = drawn.await?;
    let head = match as_svg {
        true => download("image/svg+xml", "isotherm.svg"),
        false => download("image/png", "isotherm.png"),
    };
    Ok((head, bytes).into_response())
}

async fn record(
    State(shared): State<Arc<Shared>>,
    Path(n): Number,
    Query(q): Query<SpanQuery>,
) -> Answer<Response> {
    let file = heavy(shared, n, move |source| source.cut(&q)).await?;
    let length = file.metadata().map_or(0, |m| m.len());
    let head = download("application/octet-stream", "isotherm.rec");
    let length = [(header::CONTENT_LENGTH, length)];
    let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES);
    Ok((head, length, Body::from_stream(chunks)).into_response())
}

/// The counters for the log, as text.
#[must_use]
pub fn refused_text(refused: &Refused) -> Option<String> {
    let value = serde_json::to_value(refused).ok()?;
    let parts = value.as_object()?.iter().filter(|(_, n)| n.as_u64() != Some(0));
    let parts: Vec<String> = parts.map(|(name, n)| format!("{n} {name}")).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
