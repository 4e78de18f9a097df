//! From a request to its response. The one place that turns problems into statuses and bodies.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use tidegate_config::wire::{self, BODY_BYTES_MAX, PROBLEM_JSON, Problem};

use crate::service::{Encoding, Service};
use crate::store::Store;

pub(super) type Body = Full<Bytes>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
/// How long the caller's proxy lets a request take, as Envoy says it.
const TIMEOUT_HEADER: &str = "x-envoy-expected-rq-timeout-ms";

static OPENAPI: LazyLock<Bytes> = LazyLock::new(|| wire::openapi::text().into());

pub(super) async fn respond<S: Store>(service: &Service<S>, request: Request<Incoming>) -> Response<Body> {
    let arrived = Instant::now();
    let response = match (request.uri().path(), request.method()) {
        ("/v1/take", &Method::POST) => {
            let answered = take(service, request, arrived).await;
            service.metrics.took(arrived.elapsed());
            answered.unwrap_or_else(|problem| refusal(&problem))
        }
        ("/v1/take", _) => not_allowed("POST"),
        ("/healthz", &Method::GET) => page(StatusCode::OK, TEXT, "ok\n".into()),
        ("/readyz", &Method::GET) => match service.unready().await {
            None => page(StatusCode::OK, TEXT, "ready\n".into()),
            Some(why) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {why}\n").into()),
        },
        ("/metrics", &Method::GET) => page(StatusCode::OK, PROMETHEUS, service.metrics_text().into()),
        ("/openapi.json", &Method::GET) => page(StatusCode::OK, json(), OPENAPI.clone()),
        ("/healthz" | "/readyz" | "/metrics" | "/openapi.json", _) => not_allowed("GET"),
        _ => refusal(&problem(
            404,
            "not_found",
            "There is no such page",
            "see /openapi.json for what there is",
        )),
    };
    service.metrics.answered(response.status().as_u16());
    response
}

async fn take<S: Store>(
    service: &Service<S>,
    request: Request<Incoming>,
    arrived: Instant,
) -> Result<Response<Body>, Problem> {
    let admitted = admit(service, request.headers());
    let (encoding, timeout_ms, _in_flight) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => {
            swallow(service, request).await;
            return Err(problem);
        }
    };
    let body = read(service, request).await?;
    let answer = service.take(encoding, &body, arrived, timeout_ms).await?;
    Ok(page(StatusCode::OK, content_type(encoding), answer.into()))
}

/// What the head alone says: whether a batch is read, and how.
fn admit<'s, S: Store>(
    service: &'s Service<S>,
    headers: &HeaderMap,
) -> Result<(Encoding, Option<u32>, InFlight<'s, S>), Problem> {
    if !service.tokens.admit(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)) {
        let detail = "send the header authorization: Bearer TOKEN, with a token of the service's token file";
        return Err(problem(401, "unauthorized", "The token is missing or wrong", detail));
    }
    Ok((encoding(headers)?, timeout_ms(headers)?, InFlight::enter(service)?))
}

/// Reads a body that nobody wants, and keeps nothing of it. On HTTP/2 an answer that comes before the body's end is
/// followed by a word to stop sending, for which some clients, curl among them, drop the answer.
async fn swallow<S: Store>(service: &Service<S>, request: Request<Incoming>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let mut body = request.into_body();
    let mut left = BODY_BYTES_MAX;
    let swallowing = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    // Who is slower than that loses the answer.
    let _ = tokio::time::timeout(service.settings.body_time_max, swallowing).await;
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case(wire::JSON) {
        Ok(Encoding::Json)
    } else if essence.eq_ignore_ascii_case(wire::POSTCARD) {
        Ok(Encoding::Postcard)
    } else {
        let detail = format!("send the header content-type: {} or {}", wire::JSON, wire::POSTCARD);
        Err(problem(415, "unknown_content_type", "The content type is not known", &detail))
    }
}

fn timeout_ms(headers: &HeaderMap) -> Result<Option<u32>, Problem> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.parse::<u32>().ok()).filter(|ms| *ms > 0);
    let detail = format!("{TIMEOUT_HEADER}: must be a whole number of milliseconds, at least 1");
    parsed.map(Some).ok_or_else(|| problem(400, "invalid_header", "A header cannot be read", &detail))
}

/// Reads a body of bounded length in bounded time.
async fn read<S: Store>(service: &Service<S>, request: Request<Incoming>) -> Result<Bytes, Problem> {
    let declared =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut collected = pin!(collect(request.into_body()));
    if let Some(body) = soon(collected.as_mut()).await {
        return body;
    }
    match tokio::time::timeout(service.settings.body_time_max, collected).await {
        Ok(body) => body,
        Err(_) => {
            Err(problem(408, "slow_body", "The body did not come in time", "send the whole body at once"))
        }
    }
}

/// What a future gives if it needs to be asked at most twice. A body that came with its head is there by then, and costs
/// no timer.
async fn soon<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut was_asked = false;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if was_asked => Poll::Ready(None),
        Poll::Pending => {
            was_asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect(mut body: Incoming) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut more: Option<BytesMut> = None;
    while let Some(frame) = body.frame().await {
        let broken = |_| problem(400, "broken_body", "The body broke off", "send the whole body");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let length = first.len() + more.as_ref().map_or(0, BytesMut::len) + data.len();
        if length > BODY_BYTES_MAX {
            return Err(too_long());
        }
        match &mut more {
            Some(more) => more.extend_from_slice(&data),
            // Most bodies come in one piece, which is used as it is.
            None if first.is_empty() => {
                first = data;
                if body.is_end_stream() {
                    break;
                }
            }
            None => {
                let mut joined = BytesMut::from(&first[..]);
                first = Bytes::new();
                joined.extend_from_slice(&data);
                more = Some(joined);
            }
        }
    }
    Ok(more.map_or(first, BytesMut::freeze))
}

fn too_long() -> Problem {
    let detail = format!("the body may have {BODY_BYTES_MAX} bytes; send several batches");
    problem(413, "too_long", "The body is too long", &detail)
}

/// Counts a request for as long as it is read and applied.
struct InFlight<'s, S>(&'s Service<S>);

impl<'s, S: Store> InFlight<'s, S> {
    fn enter(service: &'s Service<S>) -> Result<Self, Problem> {
        let before = service.metrics.in_flight.fetch_add(1, Relaxed);
        let entered = Self(service);
        if before >= service.settings.requests_max as u64 {
            let detail = "the service reads and applies as many requests as it can; come back later";
            return Err(problem(503, "busy", "The service has too much to do at once", detail));
        }
        Ok(entered)
    }
}

impl<S> Drop for InFlight<'_, S> {
    fn drop(&mut self) {
        self.0.metrics.in_flight.fetch_sub(1, Relaxed);
    }
}

fn problem(status: u16, kind: &'static str, title: &'static str, detail: &str) -> Problem {
    Problem { status, kind, title, detail: detail.to_owned(), errors: None }
}

fn refusal(problem: &Problem) -> Response<Body> {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = page(status, HeaderValue::from_static(PROBLEM_JSON), problem.to_json().into());
    match status {
        StatusCode::UNAUTHORIZED => {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

fn not_allowed(method: &'static str) -> Response<Body> {
    let detail = format!("this page knows only {method}");
    let mut response = refusal(&problem(405, "wrong_method", "The method is not known here", &detail));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
    response
}

fn page(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn json() -> HeaderValue {
    HeaderValue::from_static(wire::JSON)
}

fn content_type(encoding: Encoding) -> HeaderValue {
    match encoding {
        Encoding::Json => json(),
        Encoding::Postcard => HeaderValue::from_static(wire::POSTCARD),
    }
}
