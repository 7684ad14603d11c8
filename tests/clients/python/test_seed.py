"""The Python snippet of the documentation, as it stands there, through the thin wrapper of ``tests/clients/seed``."""

import sys
from pathlib import Path
from typing import Any

from support import URL, Database, Journal, User, assert_time, is_live

sys.path.insert(0, str(Path(__file__).parents[1] / "seed"))
from anvilbase import Client  # noqa: E402  (the path is set just above)


async def test_the_documented_snippet(database: Database) -> None:
    table, user = await database.notes(), User()
    seen, system = Journal("new messages"), Journal("system frames")
    db = Client(URL, user.token)

    def on_insert(payload: dict[str, Any]) -> None:
        seen.push(payload)

    channel = (
        db.channel("messages-feed")
          .on_postgres_changes(event="INSERT", schema="public",
                               table=table, callback=on_insert)
          .subscribe()
    )

    channel.sdk.on_system(system.push)
    await channel.joining
    await system.first(is_live, '"Subscribed to PostgreSQL"')
    row = {"id": 1, "owner": user.id, "room": 1, "body": "hello"}
    await database.insert(table, **row)
    payload = await seen.first(lambda _: True, "message")
    assert_time(str(payload.pop("commit_timestamp")))
    assert payload == {
        "schema": "public",
        "table": table,
        "eventType": "INSERT",
        "new": row,
        "old": None,
        "columns": [{"name": name, "type": "unknown"} for name in row],
        "errors": None,
    }
    await db.realtime.remove_all_channels()
    assert db.realtime.get_channels() == []
    await db.realtime.close()


async def test_updates_and_deletions_have_the_documented_rows(database: Database) -> None:
    table, user, other = await database.notes(), User(), User()
    seen, system = Journal("changes"), Journal("system frames")
    db = Client(URL, user.token)
    channel = db.channel("orders").on_postgres_changes(
        event="*", schema="public", table=table, callback=seen.push
    )
    channel.sdk.on_system(system.push)
    await channel.subscribe().joining
    await system.first(is_live, '"Subscribed to PostgreSQL"')
    await database.insert(table, id=1, owner=other.id, room=1, body="a")
    await database.query(f"update public.{table} set owner = %s", user.id)
    await database.query(f"update public.{table} set body = 'b'")
    await database.query(f"delete from public.{table}")
    await seen.first(lambda p: p["eventType"] == "DELETE", "deletion")
    mine = {"id": 1, "owner": user.id, "room": 1, "body": "a"}
    assert [(p["eventType"], p["new"], p["old"]) for p in seen.items] == [
        ("UPDATE", mine, None),
        ("UPDATE", {**mine, "body": "b"}, mine),
        ("DELETE", None, {"id": 1}),
    ]
    await db.realtime.close()
