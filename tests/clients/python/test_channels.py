"""Channels of the unmodified Python SDK: being live, refusals, leaving; and its protocol version by hand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import websockets
from realtime import RealtimeSubscribeStates
from support import (
    ANON_KEY,
    JWT_SECRET,
    URL,
    Database,
    Journal,
    User,
    connected,
    every,
    follow,
    follow_live,
    key_of,
    sign,
)


async def test_a_row_right_after_the_feed_is_live_arrives_every_time(database: Database) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        keep = await follow_live(client, "keep", every(table, filter="id=eq.0"))
        for key in range(1, 21):
            feed = await follow_live(client, f"fresh-{key}", every(table))
            await database.insert(table, id=key, owner=user.id)
            await feed.row(key)
            live = await feed.live()
            assert (str(live.extension), str(live.status), live.channel) == ("postgres_changes", "ok", f"fresh-{key}")
            await client.remove_channel(feed.channel)
        assert keep.events.items == []


async def test_bindings_do_not_cross_fire(database: Database) -> None:
    table, other, user = await database.notes(), await database.notes(), User()
    async with connected(user.token) as client:
        feed = await follow_live(
            client,
            "bindings",
            {"event": "INSERT", "schema": "public", "table": table},
            {"event": "UPDATE", "schema": "public", "table": table},
            every(other),
            {"event": "*", "schema": "public"},
        )
        await database.insert(table, id=1, owner=user.id)
        await database.query(f"update public.{table} set room = 1")
        await database.insert(other, id=99, owner=user.id)
        ours = lambda e: e[1]["data"]["table"] in (table, other)  # noqa: E731
        await feed.events.first(lambda e: e[0] == 3 and ours(e) and key_of(e[1]["data"]) == 99, "sentinel")
        seen = sorted((i, p["data"]["type"]) for i, p in filter(ours, feed.events.items))
        assert seen == [(0, "INSERT"), (1, "UPDATE"), (2, "INSERT"), (3, "INSERT"), (3, "INSERT"), (3, "UPDATE")]


@pytest.mark.parametrize("condition", ["nope=eq.1", "room=foo.1", "room=eq.abc"])
async def test_a_bad_binding_is_refused_and_the_socket_goes_on(database: Database, condition: str) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        started = time.monotonic()
        bad = await follow(client, "bad", every(table), every(table, filter=condition))
        assert time.monotonic() - started < 1
        [(state, error)] = bad.states.items
        assert state == RealtimeSubscribeStates.CHANNEL_ERROR
        assert json.loads(str(error))["reason"].startswith("RealtimeDisabledForConfiguration: ")
        await bad.channel.unsubscribe()
        good = await follow_live(client, "good", every(table))
        await database.insert(table, id=1, owner=user.id)
        await good.row(1)


@pytest.mark.parametrize(
    ("claims", "secret", "code"),
    [
        ({"role": "authenticated", "exp": 1}, JWT_SECRET, "InvalidJWTToken"),
        ({"exp": 4102444800}, JWT_SECRET, "InvalidJWTToken"),
        ({"role": "nobody", "exp": 4102444800}, JWT_SECRET, "Unauthorized"),
        ({"role": "authenticated", "exp": 4102444800}, "another secret of a good length", "JwtSignatureError"),
    ],
    ids=["expired", "no role", "unknown role", "signature"],  # a generated name would print the secret
)
async def test_a_bad_token_is_refused_with_its_code(
    database: Database, claims: dict[str, Any], secret: str, code: str
) -> None:
    table, user = await database.notes(), User()
    async with connected(sign(claims, secret)) as client:
        bad = await follow(client, "bad", every(table))
        [(state, error)] = bad.states.items
        assert state == RealtimeSubscribeStates.CHANNEL_ERROR
        assert json.loads(str(error))["reason"].startswith(f"{code}: ")
        await bad.channel.unsubscribe()
        await client.set_auth(user.token)
        good = await follow_live(client, "good", every(table))
        await database.insert(table, id=1, owner=user.id)
        await good.row(1)


async def test_leaving_ends_a_channel_and_no_other(database: Database) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        one, two = [await follow_live(client, name, every(table)) for name in ("one", "two")]
        await one.channel.unsubscribe()
        await one.states.first(lambda s: s[0] == RealtimeSubscribeStates.CLOSED, "state CLOSED")
        await database.insert(table, id=1, owner=user.id)
        await two.row(1)
        assert one.events.items == []
        await client.remove_all_channels()
        assert client.get_channels() == []


class Socket:
    """Protocol 1.0.0 by hand, for what the SDK does not show: the exact frames and their text."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self.connection = connection
        self.texts = Journal("frames")

    async def read(self) -> None:
        async for text in self.connection:
            self.texts.push(text)

    async def send(self, topic: str, event: str, payload: dict[str, Any], ref: str | None) -> None:
        await self.connection.send(json.dumps({"topic": topic, "event": event, "payload": payload, "ref": ref}))

    async def event(self, name: str) -> dict[str, Any]:
        return json.loads(await self.texts.first(lambda text: json.loads(text)["event"] == name, name))


@pytest_asyncio.fixture
async def socket() -> AsyncIterator[Socket]:
    address = f"{URL.replace('http', 'ws', 1)}/websocket?apikey={ANON_KEY}&vsn=1.0.0"
    async with websockets.connect(address) as connection:
        raw = Socket(connection)
        reading = asyncio.create_task(raw.read())
        yield raw
        reading.cancel()


async def test_a_heartbeat_without_reference_is_answered_without_reference(socket: Socket) -> None:
    await socket.send("phoenix", "heartbeat", {}, None)
    assert await socket.event("phx_reply") == {
        "topic": "phoenix",
        "event": "phx_reply",
        "payload": {"status": "ok", "response": {}},
        "ref": None,
    }


async def test_large_numbers_arrive_byte_for_byte(database: Database, socket: Socket) -> None:
    table, user = await database.notes(), User()
    await database.query(f"alter table public.{table} add amount numeric")
    await socket.send(
        "realtime:exact",
        "phx_join",
        {"config": {"postgres_changes": [every(table)]}, "access_token": user.token},
        "1",
    )
    live = await socket.event("system")
    assert live["payload"] == {
        "extension": "postgres_changes",
        "status": "ok",
        "message": "Subscribed to PostgreSQL",
        "channel": "exact",
        "role": "authenticated",
    }
    await database.insert(table, id=9223372036854775807, owner=user.id)
    await database.query(f"update public.{table} set amount = 12345678901234567890.123456789")
    is_update = lambda text: '"type":"UPDATE"' in text  # noqa: E731
    text = await socket.texts.first(is_update, "the update")
    assert text.count('"id":9223372036854775807') == 4
    assert text.count('"amount":12345678901234567890.123456789') == 2
    assert json.loads(text)["ref"] is None
