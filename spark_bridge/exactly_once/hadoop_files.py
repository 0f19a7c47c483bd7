"""A folder in any Hadoop file system, through the driver's JVM and with Spark's settings.

File systems differ in how a file can be created exclusively: `LINK` and `RENAME` list those that can.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from py4j.protocol import Py4JJavaError

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.exactly_once.moving import move
from rallypoint.spark_bridge.spark_connect import refuse_connect

RENAME = frozenset({"hdfs", "webhdfs", "swebhdfs", "abfs", "abfss", "ofs", "o3fs"})
"""Schemes whose renames are atomic and replace nothing: HDFS and compatible ones (Azure with a hierarchical namespace,
Ozone).
"""
LINK = frozenset({"file"})
"""Schemes with hard links: local disks and mounted network file systems."""


class NotExclusive(BridgeError):  # noqa: N818
    """This file system cannot create a file exclusively, so that of two drivers only one succeeds."""


class HadoopFiles:
    """Implements `file_store.FileStore` below a folder, which need not exist yet."""

    def __init__(self, spark: Any, folder: str) -> None:
        """`spark`: the session whose Hadoop settings are used. `folder`: the root, as a path or URL."""
        refuse_connect(spark, "ExactlyOnceFiles")
        self._jvm = spark._jvm
        path = self._jvm.org.apache.hadoop.fs.Path(folder)
        self._files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._root = self._files.makeQualified(path)
        self.url = str(self._root.toString())

    @property
    def scheme(self) -> str:
        """The scheme of the folder's URL: `file`, `hdfs`, `s3a`."""
        return str(self._root.toUri().getScheme())

    def check_exclusive(self) -> None:
        """Raise NotExclusive if this file system cannot implement `put_if_absent`."""
        if self.scheme not in RENAME | LINK:
            raise NotExclusive(
                f"{self.url}: in the file system {self.scheme}: two drivers can create the same file, so it cannot hold"
                " the log of what is written; put the log on another file system (file, hdfs, abfs), with log='hdfs://…'"
            )

    def children(self, folder: str) -> list[str]:
        """See `FileStore.children`."""
        return [str(one.getPath().getName()) for one in self._statuses(self._at(folder))]

    def files_below(self, folder: str) -> list[str]:
        """See `FileStore.files_below`."""
        return sorted(self._walk(self._at(folder), ""))

    def read(self, path: str) -> str | None:
        """See `FileStore.read`."""
        try:
            stream = self._files.open(self._at(path))
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def put_if_absent(self, path: str, text: str) -> bool:
        """See `FileStore.put_if_absent`. Writes the file under another name, then links or renames it."""
        partial = str(PurePosixPath(path).with_name(f".{uuid.uuid4().hex}.partial"))
        return self._link(partial, path, text) if self.scheme in LINK else self._rename(partial, path, text)

    def move(self, source: str, target: str) -> None:
        """See `FileStore.move`."""
        move(self, source, target)

    def rename(self, source: str, target: str) -> bool:
        """See `Renames.rename`."""
        wanted = self._at(target)
        self._files.mkdirs(wanted.getParent())
        return bool(self._files.rename(self._at(source), wanted))

    def exists(self, path: str) -> bool:
        """See `Renames.exists`."""
        return bool(self._files.exists(self._at(path)))

    def remove(self, path: str) -> None:
        """See `FileStore.remove`."""
        self._files.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)

    def _statuses(self, folder: Any) -> Iterator[Any]:
        try:
            found = self._files.listStatus(folder)
        except Py4JJavaError as error:
            if not _is_missing(error):
                raise
        else:
            yield from found

    def _walk(self, folder: Any, before: str) -> Iterator[str]:
        for one in self._statuses(folder):
            name = str(one.getPath().getName())
            if name.startswith(".") or (name.startswith("_") and "=" not in name):
                continue
            if one.isDirectory():
                yield from self._walk(one.getPath(), f"{before}{name}/")
            else:
                yield f"{before}{name}"

    def _link(self, partial: str, path: str, text: str) -> bool:
        """Create the file by a hard link, in this process: Hadoop has no links, and its local renames replace files."""
        root = Path(str(self._root.toUri().getPath()))
        written, wanted = root / partial, root / path
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with written.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        try:
            wanted.hardlink_to(written)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        return True

    def _rename(self, partial: str, path: str, text: str) -> bool:
        written, wanted = self._at(partial), self._at(path)
        stream = self._files.create(written, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        try:
            if self._files.rename(written, wanted):
                return True
        except Py4JJavaError as error:
            if not _is(error, "org.apache.hadoop.fs.FileAlreadyExistsException"):
                raise
        finally:
            self._files.delete(written, False)
        if not self._files.exists(wanted):
            raise OSError(f"{self.url}: cannot rename {partial} to {path}")
        return False


def _is(error: Py4JJavaError, name: str) -> bool:
    return str(error.java_exception.getClass().getName()) == name


def _is_missing(error: Py4JJavaError) -> bool:
    return _is(error, "java.io.FileNotFoundException")
