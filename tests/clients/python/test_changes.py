"""Who sees which change of a table with row-level security: through the unmodified Python SDK.

Order is kept per project, so "nothing arrived" is proved by a later row that did: the sentinel.
"""

from typing import Any

import pytest
from support import (
    SERVICE_KEY,
    Database,
    User,
    assert_time,
    connected,
    every,
    follow_live,
    key_of,
)

UNKNOWN = [{"name": name, "type": "unknown"} for name in ("id", "owner", "room", "body")]


def shape(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` without the time, which is checked by form. The SDK keeps the keys that it knows and no other."""
    assert_time(str(data["commit_timestamp"]))
    return {k: v for k, v in data.items() if k != "commit_timestamp"}


async def test_insert_update_delete_reach_the_owner(database: Database) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        feed = await follow_live(client, "own", every(table))
        await database.insert(table, id=1, owner=user.id, room=7, body="first")
        await database.query(f"update public.{table} set body = null")
        await database.query(f"delete from public.{table}")
        await feed.events.first(lambda e: e[1]["data"]["type"] == "DELETE", "the deletion")

        inserted, updated, deleted = feed.data()
        first = {"id": 1, "owner": user.id, "room": 7, "body": "first"}
        common = {"schema": "public", "table": table, "errors": None}
        assert shape(inserted) == {**common, "type": "INSERT", "columns": UNKNOWN, "record": first}
        assert shape(updated) == {
            **common,
            "type": "UPDATE",
            "columns": UNKNOWN,
            "record": {**first, "body": None},
            "old_record": first,
        }
        assert {k: v for k, v in shape(deleted).items() if k != "columns"} == {
            **common,
            "type": "DELETE",
            "old_record": {"id": 1},
        }
        assert {"name": "id", "type": "unknown"} in deleted["columns"]


async def test_service_role_gets_the_whole_row_of_a_delete(database: Database) -> None:
    table, user = await database.notes(), User()
    async with connected(key=SERVICE_KEY) as client:
        feed = await follow_live(client, "service", every(table))
        await database.insert(table, id=1, owner=user.id, room=None, body="x")
        await database.query(f"delete from public.{table}")
        await feed.events.first(lambda e: e[1]["data"]["type"] == "DELETE", "the deletion")
        assert feed.data()[1]["old_record"] == {"id": 1, "owner": user.id, "room": None, "body": "x"}


async def test_each_user_receives_their_own_rows_only(database: Database) -> None:
    table, one, two = await database.notes(), User(), User()
    async with connected(one.token) as first, connected(two.token) as second:
        feeds = [await follow_live(client, "alike", every(table)) for client in (first, second)]
        for key in range(1, 11):
            await database.insert(table, id=key, owner=(one, two)[key % 2].id, room=key)
        for feed, keys in zip(feeds, ([2, 4, 6, 8, 10], [1, 3, 5, 7, 9]), strict=True):
            await feed.row(keys[-1])
            assert [key_of(data) for data in feed.data()] == keys


async def test_anonymous_receives_nothing_of_a_users_table(database: Database) -> None:
    table, beacon = await database.notes(), await database.beacon()
    async with connected() as client:
        feed = await follow_live(client, "anonymous", every(table), every(beacon))
        await database.insert(table, id=1, owner=User().id)
        await database.insert(beacon, id=99)
        await feed.row(99)
        assert [index for index, _ in feed.events.items] == [1]


async def test_updates_across_the_boundary(database: Database) -> None:
    table, one, two = await database.notes(), User(), User()
    async with connected(one.token) as first, connected(two.token) as second:
        loses, gains = [await follow_live(client, "boundary", every(table)) for client in (first, second)]
        await database.insert(table, id=1, owner=one.id, body="before")
        await database.query(f"update public.{table} set owner = %s, body = 'after'", two.id)
        await database.insert(table, id=2, owner=one.id)

        seen = await gains.row(1)
        assert (seen["type"], seen["record"]["body"], seen["old_record"]) == ("UPDATE", "after", {})
        await loses.row(2)
        assert [(data["type"], key_of(data)) for data in loses.data()] == [("INSERT", 1), ("INSERT", 2)]


async def test_a_new_token_counts_from_then_on(database: Database) -> None:
    table, one, two = await database.notes(), User(), User()
    async with connected(one.token) as client:
        feed = await follow_live(client, "token", every(table))
        await database.insert(table, id=1, owner=one.id)
        await feed.row(1)
        start = len(feed.system.items)
        await client.set_auth(two.token)
        await feed.live(start)
        await database.insert(table, id=2, owner=one.id)
        await database.insert(table, id=3, owner=two.id)
        await feed.row(3)
        assert [key_of(data) for data in feed.data()] == [1, 3]


@pytest.mark.parametrize(
    ("room", "keys"),
    [
        ("eq.2", [2]),
        ("neq.2", [1, 3]),
        ("gt.2", [3]),
        ("gte.2", [2, 3]),
        ("lt.2", [1]),
        ("lte.2", [1, 2]),
        ("in.(1,3,9)", [1, 3]),
    ],
)
async def test_filters(database: Database, room: str, keys: list[int]) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        feed = await follow_live(client, "filter", every(table, filter=f"room={room}"), every(table, filter="id=eq.99"))
        for key in (1, 2, 3):
            await database.insert(table, id=key, owner=user.id, room=key)
        await database.insert(table, id=4, owner=user.id, room=None)
        await database.insert(table, id=99, owner=user.id, room=None)
        await feed.row(99)
        assert [(i, key_of(p["data"])) for i, p in feed.events.items] == [*((0, key) for key in keys), (1, 99)]


async def test_a_row_too_large_arrives_as_a_reference(database: Database) -> None:
    table, user = await database.notes(), User()
    async with connected(user.token) as client:
        feed = await follow_live(client, "large", every(table))
        await database.insert(table, id=1, owner=user.id, body="é" * 6000)
        data = await feed.row(1)
        assert data["record"] == {"id": 1}
        assert data["errors"] == ["payload_too_large"]
        assert data["columns"] == [{"name": "id", "type": "int8"}]
