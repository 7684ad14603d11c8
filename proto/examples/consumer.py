"""Follows one project's feed on NATS and prints a line per change and per hole.

    NATS_URL=… NATS_USER=… NATS_PASSWORD_FILE=… python consumer.py <project>
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import nats
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[1]


def load_messages():
    """Compiles the .proto files; a service of your own would do so when it is built."""
    out = tempfile.mkdtemp()
    files = [f"anvilbase/realtime/v1/{name}.proto" for name in ("change", "feed")]
    if protoc.main(["protoc", f"-I{PROTO}", f"--python_out={out}", *files]) != 0:
        raise SystemExit("the .proto files do not compile")
    sys.path.insert(0, out)
    from anvilbase.realtime.v1 import change_pb2, feed_pb2

    return change_pb2, feed_pb2


class Follower:
    """The rules of the feed: what is old is ignored, what is missing is told."""

    def __init__(self):
        self.epoch = 0
        self.seq = None

    def at(self, position, repeats=False):
        """Whether a message counts. ``repeats``: it names the last sequence instead of using the next."""
        if position.epoch < self.epoch:
            return False
        if position.epoch > self.epoch:
            if self.epoch:
                hole("another session")
            self.epoch, self.seq = position.epoch, None
        expected = self.seq if repeats else None if self.seq is None else self.seq + 1
        if expected is not None and position.seq > expected:
            hole(f"{position.seq - expected} messages")
        self.seq = position.seq
        return True


def hole(why):
    print(f"HOLE {why}: read again what you keep", flush=True)


async def main(project):
    change_pb2, feed_pb2 = load_messages()
    follower = Follower()

    async def reconnected():
        hole("reconnected")

    connection = await nats.connect(
        os.environ["NATS_URL"],
        user=os.environ["NATS_USER"],
        password=Path(os.environ["NATS_PASSWORD_FILE"]).read_text().strip(),
        reconnected_cb=reconnected,
        max_reconnect_attempts=-1,
    )
    # One subscription for all of the project: the order of changes and holes is kept within it.
    feed = await connection.subscribe(f"anvilbase.rt.{project}.>")
    await connection.flush()
    print("FOLLOWING", flush=True)
    async for message in feed.messages:
        if message.subject == f"anvilbase.rt.{project}.ctl":
            status = feed_pb2.FeedStatus.FromString(message.data)
            kind = status.WhichOneof("kind")
            if follower.at(status.position, repeats=kind in ("up", "down")):
                if kind == "gap":
                    hole(status.gap.reason)
                elif kind == "down":
                    hole("the feed is down")
                elif kind == "truncated":
                    print("TRUNCATE", status.truncated.schema, status.truncated.table, flush=True)
        elif message.subject.startswith(f"anvilbase.rt.{project}.cdc."):
            event = change_pb2.ChangeEvent.FromString(message.data)
            if follower.at(event.position):
                operation = change_pb2.Operation.Name(event.operation).removeprefix("OPERATION_")
                new = event.new_json if event.HasField("new_json") else "null"
                old = event.old_json if event.HasField("old_json") else "null"
                print(operation, event.schema, event.table, new, old, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
