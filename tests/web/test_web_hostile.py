"""Raw requests that no browser sends. None is answered by an error of the server, and each answer has the headers."""

from __future__ import annotations

import logging
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from ddefuzz.findings.database import Database
from ddefuzz.web.app import answering
from ddefuzz.web.decision_forms import ACTIONS
from ddefuzz.web.pages import PAGES
from ddefuzz.web.security import HEADERS, MOST_BYTES, Access
from tests.findings.arbitrary_findings import CHUNK
from tests.web.served import ada

pytestmark = pytest.mark.slow

SEEDS = range(3)
OF_A_GROUP = 40

FIRST = CHUNK.key
PATHS = [*(page.path.format(finding_id=FIRST) for page in PAGES), "/login", f"/findings/{FIRST}/script.py"]
POSTS = [*(f"/findings/{FIRST}/{name}" for name in ACTIONS), "/findings/bulk", "/login", "/logout"]
FIELDS = ["form_token", "by", "why", "state", "ids", "text", "url", "of", "token", "labels", "cause", "expires", "undo"]

Draw = random.Random


def garbage(draw: Draw, most: int = 40) -> bytes:
    """Bytes of any kind without an end of line."""
    kinds = (
        lambda: bytes(
            draw.choice(b"\x00\x01\x7f\x80\xff\xc3(%[]{}<>'\";:,=@/\\ \t") for _ in range(draw.randint(0, most))
        ),
        lambda: draw.randbytes(draw.randint(0, most)).replace(b"\r", b"").replace(b"\n", b""),
        lambda: draw.choice(
            ["http://[", "é.example", "\ud800", "%zz%", "../../etc/passwd", "\u202e", "1e999", "null"]
        ).encode("utf-8", "surrogatepass"),
        lambda: draw.choice([b"x", b"9", b"-", b"%00", b"a=", b"[::", b"("]) * draw.choice([1, 5, 300, 5_000]),
    )
    return draw.choice(kinds)()


def printable(draw: Draw) -> bytes:
    """Garbage that can be a value of a header: without control characters."""
    return bytes(byte for byte in garbage(draw) if byte >= 32 and byte != 127).strip()


def request(
    method: bytes = b"GET", target: bytes = b"/", headers: tuple[tuple[bytes, bytes], ...] = (), body: bytes = b""
) -> bytes:
    """The bytes of a request, with the headers that it needs unless it has its own."""
    named = {name.lower() for name, _ in headers}
    needed = [(b"Host", b"localhost"), (b"Connection", b"close")]
    if body or method == b"POST":
        needed += [(b"Content-Length", b"%d" % len(body)), (b"Content-Type", b"application/x-www-form-urlencoded")]
    lines = [*(one for one in needed if one[0].lower() not in named), *headers]
    head = b"".join(b"%s: %s\r\n" % line for line in lines)
    return b"%s %s HTTP/1.1\r\n%s\r\n%s" % (method, target, head, body)


def path_of(draw: Draw, paths: list[str]) -> bytes:
    return draw.choice(paths).encode()


def a_header(draw: Draw) -> bytes:
    names = [b"Origin", b"Host", b"Cookie", b"Referer", b"Accept", b"Range", b"If-None-Match", b"Sec-Fetch-Site"]
    names += [
        b"X-Forwarded-For",
        b"X-Forwarded-Proto",
        b"Forwarded",
        b"Expect",
        b"TE",
        b"Content-Type",
        b"Authorization",
    ]
    found = tuple((draw.choice(names), printable(draw)) for _ in range(draw.randint(1, 3)))
    post = draw.random() < 0.5
    return request(b"POST" if post else b"GET", path_of(draw, POSTS if post else PATHS), found, b"a=b" if post else b"")


def a_cookie(draw: Draw) -> bytes:
    values = [
        b"ddefuzz-session=" + printable(draw),
        b"ddefuzz-session=" + b"\xff" * 43,
        b'"' + printable(draw),
        b";=;=;",
    ]
    cookies = tuple((b"Cookie", draw.choice(values)) for _ in range(draw.randint(1, 2)))
    post = draw.random() < 0.5
    return request(
        b"POST" if post else b"GET", path_of(draw, POSTS if post else PATHS), cookies, b"form_token=a" * post
    )


def a_target(draw: Draw) -> bytes:
    path = path_of(draw, PATHS)
    bad = quote(garbage(draw)).encode() if draw.random() < 0.7 else bytes(b for b in garbage(draw) if 32 < b < 127)
    kinds = [path + b"/" + bad, b"/static/" + bad, b"/findings/" + bad, b"/findings/" + bad + b"/script.py", b"/" + bad]
    kinds += [
        b"//" + bad,
        b"http://localhost/" + bad,
        b"*",
        bad,
        b"/findings/%ff%fe",
        b"/%00",
        path + b"%00",
        b"/sites/source?file=" + bad,
    ]
    return request(target=draw.choice(kinds))


def a_query(draw: Draw) -> bytes:
    page = draw.choice(PAGES)
    names = [*page.query.model_fields, "nothing", "", "\x00"]
    pairs = []
    for _ in range(draw.randint(1, 4)):
        number = draw.choice(
            ["-1", "0", "1e9", "9" * 400, "NaN", "1.0", "٣", " 2", "0x1", "true", "[]", "asc", "json", "1"]
        )
        value = draw.choice([quote(garbage(draw)), quote(number), "%", "%f", "+", "&&=", "a;b", "*" * 200, "%25*_%5C"])
        pairs.append(f"{quote(draw.choice(names))}={value}")
    return request(target=f"{page.path.format(finding_id=FIRST)}?{'&'.join(pairs)}".encode())


def a_method(draw: Draw) -> bytes:
    methods = [b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"CONNECT", b"BREW", b"get", b"POST", b"PRI"]
    return request(draw.choice(methods), path_of(draw, PATHS + POSTS), body=draw.choice([b"", b"a=b"]))


def a_body(draw: Draw) -> bytes:
    kinds = [b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"multipart/form-data", b""]
    kinds += [b"multipart/form-data; boundary=" + b"y" * 300, b"application/json", b"text/plain; charset=utf-99"]
    kinds += [b"application/x-www-form-urlencoded; charset=" + printable(draw), printable(draw)]
    field = draw.choice(FIELDS).encode()
    part = b'--x\r\nContent-Disposition: form-data; name="%s"' % field
    bodies = [
        b"&".join(draw.choice(FIELDS).encode() + b"=" + garbage(draw) for _ in range(draw.randint(1, 4))),
        part + b"\r\n\r\n" + garbage(draw) + b"\r\n--x--\r\n",
        part + b'; filename="a"\r\n\r\n' + garbage(draw) + b"\r\n--x--\r\n",
        part,
        b"--x\r\n" + garbage(draw) + b"\r\n\r\n--x--",
        garbage(draw, 3_000),
        b"&".join([b"ids=a"] * 1_200),
        b"a=b&" * 3_000,
        b"",
        b"{" * 500,
    ]
    return request(b"POST", path_of(draw, POSTS), ((b"Content-Type", draw.choice(kinds)),), draw.choice(bodies))


def a_length(draw: Draw) -> bytes:
    lengths = [b"-1", b"1e3", b"0x10", b"%d" % (MOST_BYTES + 1), b"9" * 30, b"", b"+3", b"3, 3", b"3 ", b"\xb2"]
    headers = [
        ((b"Content-Length", draw.choice(lengths)),),
        ((b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"3")),
    ]
    headers += [((b"Transfer-Encoding", b"gzip"),), ((b"Content-Length", b"3"), (b"Content-Length", b"4"))]
    return request(b"POST", path_of(draw, POSTS), draw.choice(headers), b"a=b")


def an_upgrade(draw: Draw) -> bytes:
    upgrade = draw.choice([b"websocket", b"WebSocket", b"h2c", b"websocket, h2c", printable(draw)])
    headers = ((b"Connection", b"close, Upgrade"), (b"Upgrade", upgrade), (b"Sec-WebSocket-Key", b"eA=="))
    version = (b"Sec-WebSocket-Version", draw.choice([b"13", b"0", b""]))
    return request(target=path_of(draw, PATHS), headers=(*headers, version))


def no_http(draw: Draw) -> bytes:
    kinds = [
        garbage(draw, 2_000) + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\r\n" * 20,
    ]
    kinds += [
        request(headers=((b"X", b"y" * 70_000),)),
        request(headers=((garbage(draw, 5), b"y"),)),
        b"\x16\x03\x01" + garbage(draw),
    ]
    kinds += [
        request(target=b"/" + b"a" * 70_000),
        request(headers=((b"Host", b"a"), (b"Host", b"b"))),
        b"GET / HTTP/1.0\r\n\r\n",
    ]
    kinds += [request(headers=tuple((b"X-%d" % at, b"y") for at in range(2_000))), b"GET / HTTP/1.1\r\n\r\n"]
    kinds += [
        request() + garbage(draw),
        request(b"POST", b"/login", ((b"Content-Length", b"99"),), b"a=b"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    return draw.choice(kinds)


GROUPS: dict[str, Callable[[Draw], bytes]] = {
    "headers": a_header,
    "cookies": a_cookie,
    "targets": a_target,
    "queries": a_query,
    "methods": a_method,
    "bodies": a_body,
    "lengths": a_length,
    "upgrades": an_upgrade,
    "no HTTP": no_http,
}


def answered(port: int, sent: bytes, seconds: float = 60) -> bytes:
    """All that the server answers until it closes the connection, or is silent for so long."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        received = b""
        try:
            connection.sendall(sent)
            while part := connection.recv(65_536):
                received += part
        except (ConnectionError, TimeoutError):  # the server closed it before it had read everything, or waits for more
            pass
        return received


def wrong_in(answer: bytes) -> Iterator[str]:
    """What must not be in an answer."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    status, *lines = head.split("\r\n")
    named = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
    if not status.startswith("HTTP/1.1 ") or not 200 <= int(status.split()[1]) < 500:
        yield status
    yield from (name for name, value in HEADERS.items() if named.get(name.lower()) != value)
    if b"Traceback" in answer:
        yield "Traceback"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_is_an_error_of_the_server(database: Database, seed: int) -> None:
    draw, wrong, statuses = random.Random(seed), [], Counter[tuple[str, str]]()
    access = Access(valid=ada if seed % 2 else None)
    with answering(database, access) as port:
        for group, make in GROUPS.items():
            for _ in range(OF_A_GROUP):
                sent = make(draw)
                may_wait = group in ("no HTTP", "lengths")  # some of these have no end, which the server waits for
                answer = answered(port, sent, 0.3 if may_wait else 60)
                if answer:
                    statuses[group, answer[9:12].decode("latin-1")] += 1
                    wrong += [(group, said, sent[:300]) for said in wrong_in(answer)]
                elif not may_wait:
                    wrong.append((group, "no answer", sent[:300]))
        assert b"HTTP/1.1 200 " in answered(port, request(target=b"/findings"))
    assert wrong == []
    assert {group for group, _ in statuses} == set(GROUPS)


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"5\r\nabcdeXX\r\n", b"-1\r\n\r\n"])
def test_a_bad_chunk_puts_no_traceback_into_the_log(
    database: Database, caplog: pytest.LogCaptureFixture, chunk: bytes
) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with answering(database, Access()) as port:
        log = logging.getLogger("uvicorn.error")  # it hands nothing on
        log.addHandler(caplog.handler)
        answer = answered(port, head + chunk)
        assert answered(port, request(target=b"/findings")).startswith(b"HTTP/1.1 200 ")
    assert answer.startswith(b"HTTP/1.1 4")
    log.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_body_that_is_none_puts_no_line_into_the_log(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    body = b"--x\r\nno header\r\n"
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    with answering(database, Access()) as port:
        answer = answered(port, head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (answer[:12], caplog.records) == (b"HTTP/1.1 400", [])


def test_head_is_answered_like_get_without_a_body(database: Database) -> None:
    with answering(database, Access()) as port:
        for path in [*PATHS, "/static/style.css"]:
            target = b"%s%s" % (path.encode(), b"?file=torch/_refs/__init__.py" if "source" in path else b"")
            head, _, body = answered(port, request(b"HEAD", target)).partition(b"\r\n\r\n")
            assert (head[9:12], body) == (b"200", b""), path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (((b"Origin", b"http://["),), 400),
        (((b"Origin", b"garbage"),), 400),
        (((b"Origin", b"http://\xc3\xa9.example"),), 400),
        (((b"Origin", b"http://" + b"a" * 5_000),), 400),
        (((b"Origin", b"http://[::1"),), 400),
        (((b"Origin", b"http://localhost:99999999"),), 400),
        (((b"Origin", b"https://evil.example"),), 403),
        (((b"Host", b"http://["),), 400),
        (((b"Host", b"\xff"),), 400),
        (((b"Host", b"a b"),), 400),
        (((b"Host", b"evil.example"),), 421),
        (((b"Connection", b"close, Upgrade"), (b"Upgrade", b"websocket")), 400),
    ],
)
def test_headers_that_are_wrong_are_refused(
    database: Database, headers: tuple[tuple[bytes, bytes], ...], status: int
) -> None:
    with answering(database, Access()) as port:
        answer = answered(port, request(b"POST", b"/login", headers, b"form_token=a"))
    assert (answer[9:12], list(wrong_in(answer))) == (b"%d" % status, [])
