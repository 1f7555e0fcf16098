"""Files of the gateway's machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, cast

from .api import Api, content_of, strings
from .api_types import FileChange, FileEntry, FileListed, FilePage, FileSearch, FileUpload, GitStatus
from .errors import SandboxAgentError

BINARY = {"Content-Type": "application/octet-stream"}


class Files:
    """Paths are absolute, or belong to the folder of `session_id`, or to the gateway's root."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(self, path: str, *, start: int | None = None, end: int | None = None, session_id: str | None = None) -> bytes:
        """A file, or the bytes from start up to end."""
        return (await self._api._request("GET", "v2/fs/file", {"path": path, "sessionId": session_id}, headers=part(start, end))).content

    async def read_text(self, path: str, *, session_id: str | None = None) -> str:
        return (await self.read(path, session_id=session_id)).decode()

    async def stream(self, path: str, *, start: int | None = None, end: int | None = None, session_id: str | None = None) -> AsyncIterator[bytes]:
        """A file of any length, as it comes."""
        async with self._api._stream("GET", "v2/fs/file", {"path": path, "sessionId": session_id}, headers=part(start, end)) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def write(
        self, path: str, content: str | bytes | AsyncIterator[bytes], *, mode: str | None = None, parents: bool | None = None,
        if_match: str | None = None, only_new: bool = False, session_id: str | None = None,
    ) -> FileEntry:
        """Writes a file as a whole: readers see the old one or the new one. `if_match` protects what others wrote."""
        headers = {**BINARY, **({"If-Match": if_match} if if_match else {}), **({"If-None-Match": "*"} if only_new else {})}
        query = {"path": path, "mode": mode, "parents": parents, "sessionId": session_id}
        return cast(FileEntry, await self._api._json("PUT", "v2/fs/file", query, content=content_of(content), headers=headers))

    async def list(
        self, path: str, *, recursive: bool | None = None, hidden: bool | None = None, sort: str | None = None,
        order: Literal["asc", "desc"] | None = None, cursor: str | None = None, limit: int | None = None, session_id: str | None = None,
    ) -> FilePage:
        """One page of a folder."""
        query = {"path": path, "recursive": recursive, "hidden": hidden, "sort": sort, "order": order, "cursor": cursor, "limit": limit, "sessionId": session_id}
        return cast(FilePage, await self._api._json("GET", "v2/fs/entries", query))

    async def entries(self, path: str, *, recursive: bool | None = None, hidden: bool | None = None, session_id: str | None = None) -> AsyncIterator[FileListed]:
        """All entries of a folder, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(path, recursive=recursive, hidden=hidden, cursor=cursor, session_id=session_id)
            for entry in page["entries"]:
                yield entry
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def stat(self, path: str, *, follow: bool | None = None, session_id: str | None = None) -> FileEntry:
        return cast(FileEntry, await self._api._json("GET", "v2/fs/stat", {"path": path, "follow": follow, "sessionId": session_id}))

    async def mkdir(self, path: str, *, mode: str | None = None, parents: bool | None = None, session_id: str | None = None) -> FileEntry:
        return cast(FileEntry, await self._api._json("POST", "v2/fs/mkdir", {"path": path, "mode": mode, "parents": parents, "sessionId": session_id}))

    async def move(self, source: str, to: str, *, overwrite: bool | None = None, parents: bool | None = None, session_id: str | None = None) -> FileEntry:
        return await self._place("move", source, to, overwrite, parents, session_id)

    async def copy(self, source: str, to: str, *, overwrite: bool | None = None, parents: bool | None = None, session_id: str | None = None) -> FileEntry:
        return await self._place("copy", source, to, overwrite, parents, session_id)

    async def _place(self, how: str, source: str, to: str, overwrite: bool | None, parents: bool | None, session_id: str | None) -> FileEntry:
        query = {"from": source, "to": to, "overwrite": overwrite, "parents": parents, "sessionId": session_id}
        return cast(FileEntry, await self._api._json("POST", f"v2/fs/{how}", query))

    async def delete(self, path: str, *, recursive: bool | None = None, session_id: str | None = None) -> None:
        await self._api._do("DELETE", "v2/fs/entry", {"path": path, "recursive": recursive, "sessionId": session_id})

    async def upload_archive(self, path: str, archive: bytes | AsyncIterator[bytes], *, session_id: str | None = None) -> FileUpload:
        """Unpacks a tar archive, plain, gzip or zstd, into a folder."""
        headers = {"Content-Type": "application/x-tar"}
        return cast(FileUpload, await self._api._json("POST", "v2/fs/upload-batch", {"path": path, "sessionId": session_id}, content=content_of(archive), headers=headers))

    async def download_archive(self, paths: Sequence[str], *, session_id: str | None = None) -> AsyncIterator[bytes]:
        """A tar archive of several paths, as it comes."""
        async with self._api._stream("GET", "v2/fs/download-batch", {"path": strings("paths", paths), "sessionId": session_id}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def search(
        self, path: str, *, name: str | None = None, content: str | None = None, regexp: bool | None = None, ignore_case: bool | None = None,
        hidden: bool | None = None, ignored: bool | None = None, cursor: str | None = None, limit: int | None = None, session_id: str | None = None,
    ) -> FileSearch:
        query: dict[str, Any] = {
            "path": path, "name": name, "content": content, "regexp": regexp, "ignoreCase": ignore_case, "hidden": hidden,
            "ignored": ignored, "cursor": cursor, "limit": limit, "sessionId": session_id,
        }
        return cast(FileSearch, await self._api._json("GET", "v2/fs/search", query))

    async def watch(self, path: str, *, recursive: bool | None = None, hidden: bool | None = None, session_id: str | None = None, on_ready: Callable[[], None] | None = None) -> AsyncIterator[FileChange]:
        """Changes in a folder from now on. Leaving the loop ends the watch. It ends with the folder, or with the connection: watch again, and list.

        `on_ready` is called when every later change will be told: what is listed then misses none.
        """
        query = {"path": path, "recursive": recursive, "hidden": hidden, "sessionId": session_id}
        async with self._api._events("GET", "v2/fs/watch", query) as events:
            async for event in events:
                if event.event == "ready" and on_ready is not None:
                    on_ready()
                if event.event == "change":
                    yield cast(FileChange, json.loads(event.data))

    async def git_status(self, path: str, *, session_id: str | None = None) -> GitStatus:
        return cast(GitStatus, await self._api._json("GET", "v2/fs/git/status", {"path": path, "sessionId": session_id}))

    async def git_diff(
        self, path: str, *, staged: bool | None = None, base: str | None = None, binary: bool | None = None, session_id: str | None = None
    ) -> str:
        """What changed, as a unified diff; with `binary` also in files that are no text.

        A gateway gives 16 MiB at most. More is a `SandboxAgentError`, since a part of a patch is none.
        """
        query = {"path": path, "staged": staged, "base": base, "binary": binary, "sessionId": session_id}
        answer = await self._api._request("GET", "v2/fs/git/diff", query)
        if answer.headers.get("Sandbox-Agent-Truncated") == "true":
            raise SandboxAgentError(f"the patch of {path} is too long for one answer: ask for folders or files in it")
        return answer.text


def part(start: int | None, end: int | None) -> dict[str, str]:
    """The header that asks for the bytes from start up to end."""
    return {} if start is None and end is None else {"Range": f"bytes={start or 0}-{'' if end is None else end - 1}"}
