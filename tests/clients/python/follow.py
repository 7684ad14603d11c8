"""Follows one table with the SDK as it comes from PyPI, and prints a line for everything that the SDK says:

    ANVILBASE_URL=… ANVILBASE_KEY=… python follow.py <table>

For tests that do something to the server meanwhile (tests/it/restart.rs).
"""

import asyncio
import os
import sys

from realtime import AsyncRealtimeClient
from realtime.message import SuccessSystemPayload


def say(line: str) -> None:
    print(line, flush=True)


def on_system(payload: SuccessSystemPayload) -> None:
    if payload.message == "Subscribed to PostgreSQL":
        say("live")


async def main(table: str) -> None:
    client = AsyncRealtimeClient(os.environ["ANVILBASE_URL"] + "/realtime/v1", token=os.environ["ANVILBASE_KEY"])
    await client.connect()
    channel = client.channel("follow")
    channel.on_postgres_changes(
        "*", schema="public", table=table, callback=lambda payload: say(f"row {payload['data']['record']['id']}")
    )
    channel.on_system(on_system)
    await channel.subscribe(lambda state, _: say(f"status {state.value}"))
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
