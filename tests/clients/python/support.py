"""What the tests of the Python SDK share: where the server is, tokens, journals that can be waited on, tables.

Never sleeps and never polls: a wait ends when the thing arrives, or fails at its deadline.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import psycopg
from realtime import AsyncRealtimeChannel, AsyncRealtimeClient, RealtimeSubscribeStates


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set; see tests/clients/README.md")
    return value


URL = _required("ANVILBASE_URL").rstrip("/") + "/realtime/v1"
DATABASE_URL = _required("DATABASE_URL")
ANON_KEY = _required("ANVILBASE_ANON_KEY")
SERVICE_KEY = _required("ANVILBASE_SERVICE_KEY")
JWT_SECRET = _required("ANVILBASE_JWT_SECRET")

DEADLINE_SECONDS = float(os.environ.get("ANVILBASE_TEST_DEADLINE_MS", "10000")) / 1000
"""Longest wait for anything that must happen. Only a failing test waits this long."""


def sign(claims: dict[str, Any], secret: str = JWT_SECRET) -> str:
    """An HS256 token with ``claims``."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    body = ".".join(part(json.dumps(v).encode()) for v in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{body}.{part(hmac.digest(secret.encode(), body.encode(), hashlib.sha256))}"


@dataclass(frozen=True)
class User:
    """A new user with a token that is good for an hour."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def token(self) -> str:
        return sign({"role": "authenticated", "sub": self.id, "exp": int(time.time()) + 3600})


class Journal:
    """What arrived, in order; ``first`` waits for what must still arrive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: list[Any] = []
        self._grown = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, item: Any) -> None:
        """Adds an item; callable from the SDK's synchronous callbacks."""
        self.items.append(item)
        task = asyncio.get_running_loop().create_task(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._grown:
            self._grown.notify_all()

    async def first(self, test: Callable[[Any], bool], what: str, start: int = 0) -> Any:
        """The first item from index ``start`` on for which ``test`` holds."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._grown:
                await self._grown.wait_for(lambda: any(test(i) for i in self.items[start:]))
        except TimeoutError:
            seen = "".join(f"\n  {str(item)[:600]}" for item in self.items[start:])
            raise AssertionError(f"{self.name}: no {what} in time; since then:{seen or ' nothing'}") from None
        return next(i for i in self.items[start:] if test(i))


@dataclass
class Feed:
    """A subscribed channel. ``events`` holds ``(index of the binding, payload)``."""

    channel: AsyncRealtimeChannel
    events: Journal
    system: Journal
    states: Journal

    def data(self) -> list[dict[str, Any]]:
        """``data`` of every change so far, in order."""
        return [payload["data"] for _, payload in self.events.items]

    async def row(self, key: int) -> dict[str, Any]:
        """Waits for the first change whose row has the key ``key``."""
        _, payload = await self.events.first(lambda e: key_of(e[1]["data"]) == key, f"row {key}")
        return payload["data"]

    async def live(self, start: int = 0) -> Any:
        """Waits until the server says that the feed is live."""
        return await self.system.first(is_live, '"Subscribed to PostgreSQL"', start)


def is_live(payload: Any) -> bool:
    return str(payload.message) == "Subscribed to PostgreSQL"


def key_of(data: dict[str, Any]) -> int:
    """The key of the row that a change is about."""
    return (data["old_record"] if data["type"] == "DELETE" else data["record"])["id"]


@contextlib.asynccontextmanager
async def connected(token: str | None = None, key: str = ANON_KEY) -> AsyncIterator[AsyncRealtimeClient]:
    """An unmodified client, signed in with ``token`` when there is one."""
    client = AsyncRealtimeClient(URL, key)
    await client.connect()
    try:
        if token:
            await client.set_auth(token)
        yield client
    finally:
        await client.close()


async def follow(client: AsyncRealtimeClient, name: str, *bindings: dict[str, Any]) -> Feed:
    """Subscribes to a channel with ``bindings``; returns when the server has answered."""
    feed = Feed(client.channel(name), *(Journal(f"{what} of {name}") for what in ("events", "system", "states")))

    def listener(index: int) -> Callable[[Any], None]:
        return lambda payload: feed.events.push((index, payload))

    for index, binding in enumerate(bindings):
        feed.channel.on_postgres_changes(callback=listener(index), **binding)
    feed.channel.on_system(feed.system.push)
    await feed.channel.subscribe(lambda state, error: feed.states.push((state, error)))
    return feed


async def follow_live(client: AsyncRealtimeClient, name: str, *bindings: dict[str, Any]) -> Feed:
    """Like ``follow``; insists on success and waits until the feed is live."""
    feed = await follow(client, name, *bindings)
    assert feed.states.items == [(RealtimeSubscribeStates.SUBSCRIBED, None)]
    await feed.live()
    return feed


def every(table: str, **more: str) -> dict[str, str]:
    """A binding for every change of ``table``."""
    return {"event": "*", "schema": "public", "table": table, **more}


class Database:
    """The project's database as its owner sees it. Tables have names of their own and are dropped at the end."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self._tables: list[str] = []

    async def query(self, text: str, *values: Any) -> None:
        await self.connection.execute(text, values or None)

    async def _table(self, stem: str, columns: str, policy: str) -> str:
        name = f"{stem}_{secrets.token_hex(6)}"
        async with self.connection.transaction():
            for statement in (
                f"create table public.{name} ({columns})",
                f"grant select on public.{name} to anon, authenticated, service_role",
                f"alter table public.{name} enable row level security",
                f"create policy readers on public.{name} {policy}",
            ):
                await self.connection.execute(statement)
        self._tables.append(name)
        return name

    async def notes(self) -> str:
        """A table of notes of which each user sees their own."""
        columns = "id bigint primary key, owner uuid, room int, body text"
        return await self._table("notes", columns, "for select to authenticated using (owner = auth.uid())")

    async def beacon(self) -> str:
        """A table whose rows everybody sees: its rows are the sentinels that end a wait for nothing."""
        return await self._table("beacon", "id bigint primary key", "for select using (true)")

    async def insert(self, table: str, **row: Any) -> None:
        places = ", ".join(["%s"] * len(row))
        await self.query(f"insert into public.{table} ({', '.join(row)}) values ({places})", *row.values())

    async def drop(self) -> None:
        for name in self._tables:
            await self.query(f"drop table if exists public.{name} cascade")


def assert_time(text: str) -> None:
    """UTC with exactly three fractional digits, and about now."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert abs((datetime.now(timezone.utc) - moment).total_seconds()) < 60
