"""The documentation's calls and payload, key for key, over the unmodified Python SDK.

The SDK awaits what the documentation calls plainly, and hands out ``payload["data"]["record"]`` where the
documentation has ``payload["new"]``; keys that it does not know it drops.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Self

from realtime import AsyncRealtimeChannel, AsyncRealtimeClient


def seed_payload(data: dict[str, Any]) -> dict[str, Any]:
    """The documented payload of the SDK's ``data``. An UPDATE's hidden prior row is ``{}`` there, null here."""
    old = data.get("old_record")
    return {
        **{key: data[key] for key in ("schema", "table", "commit_timestamp", "columns", "errors")},
        "eventType": data["type"],
        "new": data.get("record"),
        "old": old if data["type"] == "DELETE" else old or None,
    }


class Client:
    """``db`` of the documentation; used within a running event loop."""

    def __init__(self, url: str, key: str) -> None:
        self.realtime = AsyncRealtimeClient(url, token=key)

    def channel(self, name: str) -> "Channel":
        return Channel(self.realtime.channel(name))


class Channel:
    def __init__(self, sdk: AsyncRealtimeChannel) -> None:
        self.sdk = sdk

    def on_postgres_changes(self, *, callback: Callable[[dict[str, Any]], None], **binding: Any) -> Self:
        self.sdk.on_postgres_changes(callback=lambda frame: callback(seed_payload(frame["data"])), **binding)
        return self

    def subscribe(self) -> Self:
        self.joining = asyncio.get_running_loop().create_task(self.sdk.subscribe())
        return self
