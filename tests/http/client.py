"""A small HTTP client on asyncio streams, for load: many connections at once from one thread."""
import asyncio
import json


class Connection:
    """A kept connection; one request at a time."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def send(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self.writer.write(head.encode() + b"\r\n" + data)
        await self.writer.drain()

    async def head(self):
        """Status and headers of the next reply."""
        status = int((await self.reader.readline()).split()[1])
        headers = {}
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return status, headers

    async def chunk(self):
        """The next chunk of a chunked reply; b"" at its end."""
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def body(self, headers):
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers["content-length"]))
        data = b""
        while (more := await self.chunk()) != b"":
            data += more
        return data

    async def request(self, method, path, body=None):
        """(status, headers, body) of one request."""
        await self.send(method, path, body)
        status, headers = await self.head()
        return status, headers, await self.body(headers)

    def close(self):
        if self.writer is not None:
            self.writer.close()

    def abort(self):
        """Closes at once, with a reset if data is left."""
        if self.writer is not None:
            self.writer.transport.abort()

    async def __aenter__(self):
        return await self.open()

    async def __aexit__(self, *_):
        self.close()
