from collections.abc import AsyncIterator

import psycopg
import pytest_asyncio

from support import DATABASE_URL, Database


@pytest_asyncio.fixture
async def database() -> AsyncIterator[Database]:
    """A connection of the project's owner; the tables made through it are dropped when the test ends."""
    async with await psycopg.AsyncConnection.connect(DATABASE_URL, autocommit=True) as connection:
        database = Database(connection)
        yield database
        await database.drop()
