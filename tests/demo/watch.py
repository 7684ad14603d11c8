"""Follows channels with PyPI's realtime, unmodified, and prints a JSON line for everything that arrives.

Reads one JSON line with the address, the keys and the bindings from standard input, and ends when that ends.
"""

import asyncio
import json
import signal
import sys
import time
from typing import Any

from realtime import AsyncRealtimeClient, RealtimeSubscribeStates


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def on_change(payload: Any) -> None:
    report(data=payload["data"], at=time.time() * 1000)


def on_state(state: RealtimeSubscribeStates, error: Exception | None) -> None:
    if state in (RealtimeSubscribeStates.CHANNEL_ERROR, RealtimeSubscribeStates.TIMED_OUT):
        print(f"{state}: {error}", file=sys.stderr, flush=True)


async def main() -> None:
    # Ctrl-C in a terminal reaches this process too; the demo, which started it, decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    wish = json.loads(await stdin.readline())

    client = AsyncRealtimeClient(wish["url"], wish["key"])
    await client.set_auth(wish["token"])
    channel = client.channel("demo")
    for binding in wish["bindings"]:
        channel.on_postgres_changes(callback=on_change, **binding)
    channel.on_system(lambda payload: report(system=payload.model_dump()))
    await channel.subscribe(on_state)
    await stdin.read()
    await client.close()


asyncio.run(main())
