"""Sessions of Spark that are set alike everywhere, and errors that quote no value."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deniable.engines import base
from deniable.engines.sources import require_driver
from deniable.errors import DataError, InternalError, StorageError

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
}
"""How every session is set: the same answers whatever the cluster's own settings are."""
STARTED_WITH = {
    "spark.app.name": "deniable",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""How Spark is started, where nobody started it before."""
STARTED_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}
"""The same on this machine alone: it listens on the loopback address."""
JAVA_HERE = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""How Java is started on this machine: it makes code as fast as it can only after ten times as many calls as it would.
Most of Spark's code, and that of each question, is called too seldom for that to pay."""
QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""
"""What Spark's log shows while it starts."""
OLDEST_JAVA = 17
JAVA_SETTINGS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Where whoever runs this says how Java is to be started; what is said there stands alone."""
_LOCK = threading.Lock()


def open_session() -> Any:
    """A session of its own, with settings and temporary views of its own; a refusal says what is missing."""
    require_driver("pyspark")
    from pyspark.sql import SparkSession

    remote = os.environ.get("SPARK_REMOTE", "")
    with _LOCK, translate_errors():
        if remote:
            session: Any = SparkSession.builder.remote(remote).create()
        else:
            session = (SparkSession.getActiveSession() or _start_spark()).newSession()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark Connect warns of settings that later versions may not have
            for name, value in SETTINGS.items():
                session.conf.set(name, value)
    return session


def _start_spark() -> Any:
    """Start Spark, on a cluster or on this machine; it ends with this process."""
    from pyspark.sql import SparkSession

    require_java()
    master = os.environ.get("SPARK_MASTER", "local[*]")
    settings = STARTED_WITH | (STARTED_HERE if master.startswith("local") else {})
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it runs for a moment
    with tempfile.TemporaryDirectory() as folder:
        quiet = Path(folder) / "log4j2.properties"
        quiet.write_text(QUIET)
        java = f"-Dlog4j2.configurationFile={quiet} {choose_java_options(master)}".strip()
        builder: Any = SparkSession.builder
        builder = builder.master(master).config("spark.driver.extraJavaOptions", java)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def choose_java_options(master: str) -> str:
    """How Java is started: sparingly on this machine, unless whoever runs this has said how."""
    told = any("-XX" in os.environ.get(name, "") for name in JAVA_SETTINGS)
    return JAVA_HERE if master.startswith("local") and not told else ""


def require_java() -> None:
    """Refuse, saying what to install, when there is no Java or one that is too old for Spark."""
    found = find_java_version()
    if found is None:
        raise DataError(
            "Spark needs Java, which was not found",
            expected=f"Java {OLDEST_JAVA} or newer, on PATH or at JAVA_HOME",
            remedy="Install a Java runtime (openjdk-17-jre-headless), or set SPARK_REMOTE to a Spark Connect server",
        )
    if found < OLDEST_JAVA:
        raise DataError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and Java {found} was found",
            remedy="Install a newer Java runtime, or set JAVA_HOME to one",
        )


def find_java_version() -> int | None:
    """The version of the Java that Spark would start; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return None
    try:
        asked = [program, "-version"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


@contextmanager
def translate_errors(about: str = "a table of Spark") -> Iterator[None]:
    """Turn Spark's errors into refusals of ours. Their own text may quote a value, so it is dropped."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as failure:
        raise _translate_error(failure, about) from None
    except Exception as failure:
        if type(failure).__module__.startswith(("py4j", "pyspark", "grpc")) or isinstance(failure, OSError):
            raise _translate_failure(str(failure)) from None
        raise


def _translate_failure(text: str) -> Exception:
    """The refusal for a failure of which only a text is known; the text is looked at, and not shown."""
    if "maxResultSize" in text:
        return StorageError(
            "more rows were to be brought here than Spark lets be collected",
            expected="A technique that computes in Spark, such as a question with noise",
            remedy="The cluster's owner may set spark.driver.maxResultSize higher",
        )
    if "cancelled" in text or "interrupted" in text.lower():
        return base.refuse_late()
    return StorageError("Spark was lost", remedy="Look at Spark's log, and ask again")


def _translate_error(failure: Any, about: str) -> Exception:
    condition = str(failure.getCondition() or "")
    if condition in ("TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND", "SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND"):
        return DataError(f"Spark has no table or folder {about}", remedy="Correct the source in the policy")
    if condition in ("PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION"):
        return DataError(
            "Spark Connect needs packages that are missing or too old",
            expected="grpcio, grpcio-status, googleapis-common-protos, zstandard and pandas",
            remedy="Install them with pip install 'pyspark[connect]', or unset SPARK_REMOTE",
        )
    if "INTERRUPT" in condition or "CANCEL" in condition or "cancelled" in str(failure).lower():
        return base.refuse_late()
    if condition in ("INSUFFICIENT_PERMISSIONS", "UNAUTHORIZED_ACCESS"):
        return DataError(f"Spark may not read {about}", remedy="Grant its user the right to read the table")
    if type(failure).__name__ in ("AnalysisException", "ParseException"):
        return InternalError("SQL of our own making was not accepted by Spark")
    if "CONNECT" in type(failure).__name__.upper():
        return StorageError("the connection to Spark was lost", remedy="Look at the server's log, and ask again")
    return DataError(
        f"{about} could not be read",
        expected="Files and values that fit their types",
        remedy="Look at Spark's log, and repair the table",
    )


def begin_work(session: Any, tag: str) -> None:
    """Let what this thread asks Spark from now on be stopped under a tag."""
    if is_remote(session):
        session.addTag(tag)
    else:
        session.sparkContext.setJobGroup(tag, "deniable", interruptOnCancel=True)


def stop_work(session: Any, tag: str) -> None:
    """Stop what runs under a tag, from any thread."""
    if is_remote(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobGroup(tag)


def end_work(session: Any, tag: str) -> None:
    """What this thread asks Spark from now on is not under the tag any more."""
    if is_remote(session):
        session.removeTag(tag)
    else:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def is_remote(session: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")
